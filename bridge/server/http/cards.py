"""Routes of the server card, at the endpoint's URL and ``/server-card``, and of the catalogue of the host."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from pydantic_core import to_json
from starlette.responses import Response

from bridge.errors import DefinitionError
from bridge.server.card import ServerCard, catalog_of
from bridge.server.http.routes import OwnRoute
from bridge.text import short_repr
from bridge.wire.cards import CARD_SUFFIX, CARD_TYPE, CATALOG_PATH, CATALOG_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from bridge.server.auth.auth import Auth
    from bridge.server.core import ServerCore
    from bridge.types import Json

_METHODS = ("GET", "OPTIONS")
_HEADERS = {
    "cache-control": "public, max-age=3600",
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "Content-Type, If-None-Match",
    "access-control-expose-headers": "ETag",
}


def card_routes(
    core: ServerCore, *, path: str | None, sse_path: str | None, auth: Auth | None, hidden: Sequence[str] = ()
) -> list[OwnRoute]:
    """Return the routes of a server's card and catalogue; none if it has none.

    Args:
        core: The server.
        path: Path of streamable HTTP; None if it is not served.
        sse_path: Path of SSE; None if it is not served.
        auth: Authentication; None admits everyone.
        hidden: Paths of other routes, which come first.

    Raises:
        DefinitionError: ``card`` of the server is none.
    """
    given = core.options.get("card", True)
    if given is False:
        return []
    if not (given is True or isinstance(given, ServerCard)):
        raise DefinitionError(f"card is a ServerCard, True or False: not {short_repr(given)}")
    described = ServerCard() if given is True else given
    endpoint = (path if path is not None else sse_path or "").rstrip("/")
    resource_url = None if auth is None else auth.resource_url
    needs_key = auth is not None and not auth.authorization_servers

    def card_at(request: Request) -> tuple[Json, str]:
        """Return the card, and its URL, as the client has reached the server."""
        root = f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '').rstrip('/')}"
        url = root + endpoint if resource_url is None else resource_url.rstrip("/")
        http_url = None if path is None else url or root
        sse_url = None if sse_path is None else url.removesuffix(endpoint) + sse_path
        card = described.document(core.implementation, http_url=http_url, sse_url=sse_url, needs_key=needs_key)
        return card, (http_url or sse_url or root) + CARD_SUFFIX

    async def card(request: Request) -> Response:
        return _answer(request, card_at(request)[0], CARD_TYPE)

    async def catalog(request: Request) -> Response:
        return _answer(request, catalog_of(*card_at(request)), CATALOG_TYPE)

    return [
        OwnRoute(each, function, auth=False, methods=_METHODS, name=each, include_in_schema=False)
        for each, function in ((endpoint + CARD_SUFFIX, card), (CATALOG_PATH, catalog))
        if each not in hidden
    ]


def _answer(request: Request, document: Json, kind: str) -> Response:
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=_HEADERS)
    body = to_json(document)
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = {**_HEADERS, "etag": tag}
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=kind)
