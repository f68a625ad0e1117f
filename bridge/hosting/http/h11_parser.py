"""Parser of HTTP/1.1 requests that uses h11."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import h11

from bridge.hosting.http.parser import MALFORMED, RequestHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.hosting.http.parser import Event

_RESPONSE = h11.Response(status_code=200, headers=[(b"content-length", b"0")])


class H11Parser:
    """A `bridge.hosting.http.parser.HttpParser`."""

    def __init__(self) -> None:
        # The connection limits what is incomplete.
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=sys.maxsize)
        self._has_ended = False

    @property
    def is_between_requests(self) -> bool:
        """True if the parser has no part of a request."""
        return self._connection.their_state is h11.IDLE and not self._connection.trailing_data[0]

    def close(self) -> None:
        """Do nothing: no reference cycles."""

    def feed(self, data: bytes) -> Sequence[Event]:
        """Parse data; nothing behind a request that closes its connection."""
        events: list[Event] = []
        if self._has_ended:
            return events
        self._connection.receive_data(data)
        try:
            while (event := self._connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Request):
                    events.append(_head_of(event))
                elif isinstance(event, h11.Data):
                    events.append(bytes(event.data))
                else:
                    events.append(None)
                    if not self._begins_next():
                        break
        except h11.RemoteProtocolError:
            self._has_ended = True
            events.append(MALFORMED)
        return events

    def _begins_next(self) -> bool:
        """Let h11 parse the next request, if one may follow: it waits for the response, which others send."""
        self._connection.send(_RESPONSE)
        self._connection.send(h11.EndOfMessage())
        self._has_ended = self._connection.our_state is not h11.DONE
        if not self._has_ended:
            self._connection.start_next_cycle()
        return not self._has_ended


def _head_of(request: h11.Request) -> RequestHead:
    """Convert a head.

    Raises:
        RemoteProtocolError: The method is CONNECT.
    """
    if request.method == b"CONNECT":
        raise h11.RemoteProtocolError("CONNECT is not supported")
    version = request.http_version.decode()
    headers = [header for header in request.headers if header[0] != b"upgrade"]
    options = b",".join(value for name, value in headers if name == b"connection").lower().split(b",")
    keeps_alive = version == "1.1" and b"close" not in map(bytes.strip, options)
    return RequestHead(request.method.decode(), request.target, headers, version, keeps_alive)
