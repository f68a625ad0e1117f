"""Ports for servers that are told their port, or that are started again at it."""

from __future__ import annotations

import secrets
import socket

PORTS = range(10_000, 30_000)
"""Ports below those that systems give to clients and to servers at port 0, of which other tests start many."""


def free_port() -> int:
    """Return a random free port, which no server gets that asks for any."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
