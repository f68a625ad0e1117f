"""Methods that list what a server offers, in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bridge.protocol.envelope import invalid_params
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS
from bridge.server.auth.access import EVERYTHING
from bridge.server.channel import context_of
from bridge.server.lists.listing import CursorError
from bridge.server.methods.method import Method

if TYPE_CHECKING:
    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.server.lists.listing import Edition, Listing
    from bridge.server.lists.lists import Lists
    from bridge.tools.middleware import Hook
    from bridge.types import Json


class PagedList(Method):
    """A list; its first page is written once, until the list changes."""

    hook: ClassVar[Hook]

    @property
    def is_served(self) -> bool:
        """True if the server has this feature."""
        return self.listing(self._core.lists, EVERYTHING) is not None

    def listing(self, lists: Lists, access: Access) -> Listing[Any] | None:
        """Return the list that a caller sees; None if the server does not have this feature."""
        raise NotImplementedError

    def plan(self, exchange: ServedExchange) -> bytes | None:
        """Return a page, unless the list has to be loaded, or there is middleware around it."""
        cursor = exchange.params.get("cursor")
        if cursor is not None and type(cursor) is not str:
            raise invalid_params("'cursor' must be text")
        listing = None if self._layers or self._core.surrounds_part(self.hook) else self._ready(exchange)
        if listing is None:
            return None
        if cursor is None:
            return listing.first_page_as_json(exchange.write, modern=exchange.modern)
        return exchange.write(page_of(listing.current(), exchange))

    def _ready(self, exchange: ServedExchange) -> Listing[Any] | None:
        """Return the list that the caller sees; None if it has to be loaded."""
        lists = self._core.lists_for(exchange.origin.caller, current=True)
        return None if lists is None else self._shown(lists, exchange)

    def _shown(self, lists: Lists, exchange: ServedExchange) -> Listing[Any] | None:
        """Return the list that the caller sees of those that are loaded."""
        return self.listing(lists, exchange.access)

    async def _loaded(self, exchange: ServedExchange) -> Listing[Any]:
        """Return the list that the caller sees, loaded if it has to be."""
        core = self._core
        lists = core.lists_for(exchange.origin.caller, current=True) or await core.load_lists(context_of(exchange))
        listing = self._shown(lists, exchange)
        assert listing is not None, "it is served"
        return listing

    async def run(self, exchange: ServedExchange) -> bytes:
        """Return a page of the items that the middleware leaves."""
        listing = await self._loaded(exchange)
        edition = listing.current()
        items = tuple(edition.items.values())

        context = self._core.prepared(context_of(exchange))
        found = await self._core.left_by_middleware(self.hook, self.name, items, edition.version, context)
        if found is not items:
            edition = listing.edition_of(found)
        return exchange.write(page_of(edition, exchange))


def page_of(edition: Edition[Any], exchange: ServedExchange) -> Json:
    """Return the page that a request names by its cursor, or the first one.

    Raises:
        ProtocolError: The cursor is not one of this server's.
    """
    cursor = exchange.params.get("cursor")
    try:
        return dict(edition.page(0 if cursor is None else edition.position(cursor), modern=exchange.modern))
    except CursorError as error:
        raise ProtocolError(INVALID_PARAMS, str(error)) from None
