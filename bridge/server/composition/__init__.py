"""Servers of servers: what they serve of others, under other names and within the middleware of those."""
