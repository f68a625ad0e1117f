"""Parser of HTTP/1.1 requests that uses httptools."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import httptools

from bridge.hosting.http.parser import MALFORMED, RequestHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.hosting.http.parser import Event


class HttptoolsParser:
    """A `bridge.hosting.http.parser.HttpParser`."""

    def __init__(self) -> None:
        self.is_between_requests = True
        self._parser: httptools.HttpRequestParser = httptools.HttpRequestParser(self)
        self._events: list[Event] = []
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_in_head = self._has_failed = False

    def close(self) -> None:
        """Forget the parser, which refers to this object."""
        self._parser = cast("httptools.HttpRequestParser", None)

    def feed(self, data: bytes) -> Sequence[Event]:
        """Parse data."""
        rest: bytes | memoryview = data
        try:
            while rest and not self._has_failed:
                rest = self._feed(rest)
        except httptools.HttpParserError:
            self._has_failed = True
            self._events.append(MALFORMED)
        events, self._events = self._events, []
        return events

    def _feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """Parse data up to a head that offers an upgrade, which is parsed again without the offer; return the rest.

        Raises:
            HttpParserError: The data is malformed.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser.feed_data(self._head_without_upgrade())
            return memoryview(data)[upgrade.args[0] :]
        return b""

    def on_message_begin(self) -> None:
        """Begin a head."""
        self.is_between_requests, self._is_in_head = False, True
        self._target, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        """Add a part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, or drop a trailer."""
        if self._is_in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Complete the head, unless it is parsed again.

        Raises:
            HttpParserError: The method is CONNECT.
        """
        parser, method = self._parser, self._parser.get_method()
        self._is_in_head = False
        if parser.should_upgrade():
            if method == b"CONNECT":
                raise httptools.HttpParserError("CONNECT is not supported")
            return
        version = parser.get_http_version()
        keeps_alive = version != "1.0" and parser.should_keep_alive()
        self._events.append(RequestHead(method.decode(), self._target, self._headers, version, keeps_alive))

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._events.append(body)

    def on_message_complete(self) -> None:
        """Complete the request, unless its head is parsed again."""
        if not self._parser.should_upgrade():
            self.is_between_requests = True
            self._events.append(None)

    def _head_without_upgrade(self) -> bytes:
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        headers = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self._target, version, b"".join(headers))
