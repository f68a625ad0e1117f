"""The server of a provider, made of a connection."""

from __future__ import annotations

from bridge.client.connection.connection import Connection
from bridge.client.connection.status import ReconnectPolicy
from bridge.client.upstream import Upstream
from bridge.client.uris import UriNames


def upstream_of(connection: Connection) -> Upstream:
    """Return the server of a connection, with the same credentials for all callers."""
    return Upstream(
        connection,
        connect=Connection,
        callers=None,
        reconnect=ReconnectPolicy(),
        headers_supplier=None,
        meta_supplier=None,
        validates_results=True,
        uris=UriNames(),
        changed=lambda _feature: None,
        updated=lambda _uri: None,
        watched=tuple,
        state_changed=lambda _state: None,
    )
