"""uvicorn's protocol for httptools, which ignores offers to upgrade a connection and refuses CONNECT.

httptools stops behind the head of such a request. uvicorn then takes the request for one without a body, and the body
for the next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from array import array


class PlainHttpToolsProtocol(HttpToolsProtocol):
    """One connection, which never becomes one of another protocol (RFC 9110, section 7.8)."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.parser = PlainParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn

    def on_headers_complete(self) -> None:
        """Begin a request, unless its head is parsed again without the offer.

        Raises:
            HttpParserError: The method is CONNECT (RFC 9110, section 9.3.6), which is answered with 400.
        """
        if not self.parser.should_upgrade():
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise httptools.HttpParserError("CONNECT is not supported")

    def on_message_complete(self) -> None:
        """End a request that was begun."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def head_without_upgrade(self) -> bytes:
        """The head of the request that was parsed last, without the offer."""
        first = b"%b %b HTTP/%b\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode("ascii"),
        )
        headers = [b"%b: %b\r\n" % header for header in self.scope["headers"] if header[0] != b"upgrade"]
        return b"%b%b\r\n" % (first, b"".join(headers))


class PlainParser(httptools.HttpRequestParser):
    """A parser that parses the head of a request that offers an upgrade twice, the second time without the offer.

    Args:
        protocol: Receives what was parsed.
    """

    def __init__(self, protocol: PlainHttpToolsProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """As in httptools, but without HttpParserUpgrade."""
        while True:
            try:
                super().feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                super().feed_data(self._protocol.head_without_upgrade())
                data = memoryview(data)[upgrade.args[0] :]
            else:
                return
