"""uvicorn's protocol for h11, which also limits complete request heads and ignores upgrades.

h11 itself limits only incomplete heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from bridge.hosting.protocols import TOO_LONG

if TYPE_CHECKING:
    from bridge.hosting.connection_limits import ConnectionLimits


def h11_protocol(bounds: ConnectionLimits) -> type[H11Protocol]:
    """Create the protocol class for `bridge.hosting.protocols.with_connection_limits`."""

    class BoundedH11Protocol(H11Protocol):
        """One connection."""

        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self.conn = LimitedConnection(bounds)

    return BoundedH11Protocol


class LimitedConnection(h11.Connection):
    """h11 connection with a limited request head."""

    def __init__(self, bounds: ConnectionLimits) -> None:
        super().__init__(h11.SERVER, bounds.max_header_bytes)
        self._bounds = bounds

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """As in h11.

        Raises:
            RemoteProtocolError: As in h11; also if the request head exceeds its limits.
        """
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        if self._bounds.are_exceeded_by(event.target, event.headers):
            raise h11.RemoteProtocolError("the head is over its bounds", error_status_hint=TOO_LONG)
        return _without_upgrade(event)


def _without_upgrade(request: h11.Request) -> h11.Request:
    """Remove the upgrade header (RFC 9110 section 7.8), for which uvicorn would log a warning."""
    kept = [(name, value) for name, value in request.headers if name != b"upgrade"]
    if len(kept) == len(request.headers):
        return request
    return h11.Request(method=request.method, target=request.target, headers=kept, http_version=request.http_version)
