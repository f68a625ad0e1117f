"""One supervised connection: session, calls, recovery."""
