"""One supervised connection to a server: sessions, calls, reconnection."""
