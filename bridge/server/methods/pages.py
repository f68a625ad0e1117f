"""Methods that list what a server offers, in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS, METHOD_NOT_FOUND
from bridge.server.auth.access import EVERYTHING
from bridge.server.listing import CursorError
from bridge.server.methods.method import ERAS, Method

if TYPE_CHECKING:
    from mcp_types import PaginatedRequestParams

    from bridge.server.auth.access import Access
    from bridge.server.listing import Listing
    from bridge.server.methods.method import HandlerRequest, PlainRequest
    from bridge.types import Json

_LIST = frozenset({"cursor", "_meta"})


class PagedList(Method):
    """A list; a request for its first page is plain."""

    planned_in = ERAS

    def listing(self, access: Access = EVERYTHING) -> Listing[Any] | None:
        """Return the list that a caller sees; None if the server does not have this feature."""
        raise NotImplementedError

    def plan(self, request: PlainRequest) -> bytes | None:
        """Return the first page, which is written once; refuse a feature that the server does not have."""
        params, listing = request.params, self.listing(request.access)
        if listing is None:
            if not params:
                raise ProtocolError(METHOD_NOT_FOUND, "Method not found", self.name)
            return None
        if params and not (params.keys() <= _LIST and params.get("cursor") is None):
            return None
        return listing.first_page_as_json(request.write, modern=request.modern)

    def params_type(self) -> type[PaginatedRequestParams] | None:
        """Return the type of the parameters, an optional cursor; None without the feature."""
        if self.listing() is None:
            return None
        from mcp_types import PaginatedRequestParams

        return PaginatedRequestParams

    async def handle(self, request: HandlerRequest, params: PaginatedRequestParams) -> Json:
        """Return a page."""
        listing = self.listing(request.access)
        assert listing is not None
        try:
            return listing.page(params.cursor, modern=request.modern)
        except CursorError as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from None
