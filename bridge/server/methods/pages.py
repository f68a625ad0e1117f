"""Methods that list what a server offers, in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.envelope import invalid_params
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS
from bridge.server.auth.access import EVERYTHING
from bridge.server.listing import CursorError
from bridge.server.methods.method import Method

if TYPE_CHECKING:
    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.server.listing import Listing


class PagedList(Method):
    """A list; its first page is written once, until the list changes."""

    @property
    def is_served(self) -> bool:
        """True if the server has this feature."""
        return self.listing() is not None

    def listing(self, access: Access = EVERYTHING) -> Listing[Any] | None:
        """Return the list that a caller sees; None if the server does not have this feature."""
        raise NotImplementedError

    def plan(self, exchange: ServedExchange) -> bytes:
        """Return a page."""
        listing, cursor = self.listing(exchange.access), exchange.params.get("cursor")
        assert listing is not None, "it is served"
        if cursor is None:
            return listing.first_page_as_json(exchange.write, modern=exchange.modern)
        if type(cursor) is not str:
            raise invalid_params("'cursor' must be text")
        try:
            return exchange.write(dict(listing.page(cursor, modern=exchange.modern)))
        except CursorError as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from None
