"""Events of a server: their log, and their delivery by poll, stream and webhook."""
