"""Peers: a server as telemetry tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bridge.client.config.servers import HttpTransport
from bridge.telemetry.conventions import SERVER_ADDRESS, SERVER_PORT
from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from bridge.client.config.servers import ServerConfig

_PORTS = {"http": 80, "https": 443}

NOBODY = Peer("memory", "")
"""The peer of a link that has not been greeted."""


def peer_of(config: ServerConfig, kind: str | None, protocol_version: str) -> Peer:
    """A server, as telemetry tells of it.

    Args:
        config: The server.
        kind: How it is reached.
        protocol_version: The revision that it speaks.
    """
    address: tuple[tuple[str, str | int], ...] = ()
    if isinstance(config.transport, HttpTransport):
        url = urlsplit(config.transport.url)
        address = ((SERVER_ADDRESS, url.hostname or ""), (SERVER_PORT, url.port or _PORTS.get(url.scheme, 0)))
    return Peer(kind or "memory", protocol_version, config.name, address)
