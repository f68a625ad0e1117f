"""Listing of all pages of tools, resources, templates or prompts, without malformed ones.

The SDK validates a page as a whole on the event loop: a large page would block all calls for seconds, and one malformed
item would invalidate the page. So items are removed from a page before the SDK reads it, and are validated in batches
with the SDK's own rules. The same stream wrapper reports all messages, observes responses to the handshake and to
cancelled calls, and drops malformed notifications.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse, PaginatedRequestParams
from mcp_types.methods import parse_server_notification, validate_server_result
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import to_json

from bridge.client.connection.list_methods import TOOLS, Listed
from bridge.client.transports.channel import OutgoingRequest
from bridge.errors import WireError
from bridge.text import short_repr

if TYPE_CHECKING:
    from mcp_types import JSONRPCMessage

    from bridge.client.connection.list_methods import ListMethod
    from bridge.client.connection.session import Session
    from bridge.types import Json

MAX_PAGES = 10_000
"""Maximum pages of a list."""

MAX_TOOLS = 50_000
"""Maximum tools of a server, over all pages."""

MAX_RESOURCES = 100_000
"""Maximum resources, resource templates, or prompts of a server, over all pages."""

MAX_LIST_BYTES = 32 * 1024 * 1024
"""Maximum bytes of one of a server's lists as JSON, over all pages."""

MAX_HEADER_PAGE_BYTES = 1024 * 1024
"""Maximum bytes of a page with tools that declare headers, which the SDK reads as a whole."""

_logger = logging.getLogger("bridge.client")

_ITEMS_AT_ONCE = 50
"""Items that are validated before control returns to the event loop."""

_HEADER_KEYWORD = b'"x-mcp-header"'

_RESULTS = frozenset({"content", "contents", "messages"})
"""Members of results that are no pages."""

TAKEN_KEY = "io.github.mcp-toolbridge/taken"
"""Key in a page for its items in `Session.taken_items`."""


async def list_all_pages(
    session: Session, outgoing: OutgoingRequest | None = None, *, method: ListMethod = TOOLS
) -> Listed:
    """List all pages of tools, or of other items, over one session.

    In the modern era over HTTP, headers that tools declare are sent from now on, and tools with invalid header
    declarations are left out (MCP 2026-07-28, ``x-mcp-header``).

    Raises:
        MCPError: The server responded with an error, or the connection was lost.
        ValidationError: The response is not valid MCP.
        WireError: The list does not end, or is too long.
    """
    outgoing = outgoing or OutgoingRequest()
    listed = _Items(session, method)
    cursor: str | None = None
    async with session.listing:
        for _ in range(MAX_PAGES):
            page = await _page(session, method, cursor, outgoing)
            await listed.add(page, cursor)
            following = page.get("nextCursor")
            if following is None:
                return Listed(listed.items, listed.ttl_seconds, tuple(listed.malformed))
            if following == cursor:
                break
            cursor = following
    raise WireError(
        f"its list of {method.noun}s does not end: the page after {cursor!r} repeats its cursor, "
        "or there are too many pages"
    )


async def _page(session: Session, method: ListMethod, cursor: str | None, outgoing: OutgoingRequest) -> dict[str, Any]:
    """Request one page, with unvalidated items."""
    session.taken_member = method.member
    try:
        page = await session.request(method.method, {} if cursor is None else {"cursor": cursor}, outgoing)
        key = page.pop(TAKEN_KEY, None)
        return page if key is None else {**page, method.member: session.taken_items[key]}
    finally:
        session.taken_member = None
        session.taken_items.clear()


class _Items:
    """Items of a session listed so far."""

    def __init__(self, session: Session, method: ListMethod) -> None:
        self.items: list[dict[str, Any]] = []
        self.malformed: list[str] = []
        self.ttl_seconds: float | None = None
        self._session = session
        self._method = method
        self._max_items = MAX_TOOLS if method is TOOLS else MAX_RESOURCES
        self._count = 0
        self._size_bytes = 0

    async def add(self, page: dict[str, Any], cursor: str | None) -> None:
        """Add the items of a page, in batches, so that other tasks can run; too many or too large ones are refused."""
        session, method = self._session, self._method
        items, frame = page[method.member], {**page, method.member: []}
        size_before, wants_headers = self._size_bytes, False
        found: list[dict[str, Any]] = []
        for start in range(0, len(items), _ITEMS_AT_ONCE):
            some = items[start : start + _ITEMS_AT_ONCE]
            text = to_json(some)
            wants_headers = wants_headers or (method is TOOLS and _HEADER_KEYWORD in text)
            self._count += len(some)
            self._size_bytes += len(text)
            if self._count > self._max_items:
                raise WireError(f"it lists more than {self._max_items:,} {method.noun}s")
            if self._size_bytes > MAX_LIST_BYTES:
                raise WireError(f"its list of {method.noun}s is longer than {MAX_LIST_BYTES / 2**20:g} MiB")
            valid, malformed = sift(frame, some, session.protocol_version, method)
            found += valid
            self.malformed += malformed
            await anyio.lowlevel.checkpoint()
        if wants_headers and session.channel.mirrors_arguments and session.era == "modern":
            if self._size_bytes - size_before > MAX_HEADER_PAGE_BYTES:
                raise WireError(
                    f"a page of tools that declare headers is longer than {MAX_HEADER_PAGE_BYTES / 2**20:g} MiB: "
                    "configure the server to use smaller pages"
                )
            # The SDK records their headers, and drops tools with invalid header declarations.
            noted = await session.client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            names = {tool.name for tool in noted.tools}
            session.channel.mirrored_tools |= names
            found = [tool for tool in found if tool["name"] in names]
        self.items += found
        if isinstance(ttl_milliseconds := page.get("ttlMs"), int | float):
            self.ttl_seconds = min(ttl_milliseconds / 1000, math.inf if self.ttl_seconds is None else self.ttl_seconds)


class ListFilter(ObjectReceiveStream[SessionMessage | Exception]):
    """Stream that the SDK reads messages from; removes items from pages while the session's ``taken_member`` is set."""

    def __init__(self, messages: Any, session: Session) -> None:
        self._messages = messages
        self._session = session

    @property
    def last_context(self) -> Any:
        """Sender's context of the last message, if the transport provides it."""
        return getattr(self._messages, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Receive the next message; malformed notifications are dropped, since the SDK would log their tracebacks."""
        while True:
            item = await self._messages.receive()
            if not isinstance(item, SessionMessage):
                return item  # type: ignore[no-any-return]  # the transport's type
            if self._session.large:
                item.message = self._session.whole(item.message)
            self._session.report("received", item.message)
            if isinstance(item.message, JSONRPCNotification):
                if not valid_notification(item.message, self._session.protocol_version):
                    continue
                if self._session.take_notification(item.message):
                    continue
                if self._session.progress_tokens:
                    self._session.map_progress_token(item.message)
            self._observe(item.message)
            return item

    def _observe(self, message: JSONRPCMessage) -> None:
        session = self._session
        if session.handshake is not None:
            session.handshake.received(message)
        if session.cancelled_calls is not None and isinstance(message, JSONRPCResponse | JSONRPCError):
            session.cancelled_calls.answered(message.id)
        if session.taken_member is not None and isinstance(message, JSONRPCResponse):
            _take_items(message.result, session.taken_member, session)

    async def aclose(self) -> None:
        """Close the stream."""
        self._session.channel.is_closed = True
        await self._messages.aclose()


def valid_notification(message: JSONRPCNotification, protocol_version: str) -> bool:
    """Remove malformed parameters that a notification does not need; False if it is malformed without them.

    A notification that the version does not have is valid. During the handshake the version is empty, and all versions
    are tried.
    """
    for version in (protocol_version,) if protocol_version else KNOWN_PROTOCOL_VERSIONS:
        try:
            with suppress(KeyError):
                parse_server_notification(message.method, version, message.params)
        except ValidationError as error:
            malformed = {each["loc"][1] for each in error.errors(include_url=False) if len(each["loc"]) > 1}
            params = {key: value for key, value in (message.params or {}).items() if key not in malformed}
            if len(params) == len(message.params or {}):
                _logger.debug("dropped a malformed notification: %s", error)
                return False
            message.params = params
            return valid_notification(message, protocol_version)
    return True


def _take_items(page: Json, member: str, session: Session) -> None:
    page.pop(TAKEN_KEY, None)  # the key is reserved
    items = page.get(member)
    if isinstance(items, list) and _RESULTS.isdisjoint(page):
        key = len(session.taken_items)
        session.taken_items[key] = items
        page[member], page[TAKEN_KEY] = [], key


def sift(
    page: Json, items: list[Any], protocol_version: str, method: ListMethod = TOOLS
) -> tuple[list[Any], list[str]]:
    """Separate valid items of a page, given without its items, from malformed ones.

    Returns:
        The valid items, and one sentence with name and reason for each malformed one.
    """
    if _problem(page, items, protocol_version, method) is None:
        return items, []
    valid: list[Any] = []
    malformed: list[str] = []
    for item in items:
        problem = _problem(page, [item], protocol_version, method)
        if problem is None:
            valid.append(item)
        else:
            name = item.get(method.key) if isinstance(item, dict) else None
            shown = repr(name) if isinstance(name, str) and name else short_repr(item)
            malformed.append(f"the {method.noun} {shown} is malformed: {problem}")
    return valid, malformed


def _problem(page: Json, items: list[Any], protocol_version: str, method: ListMethod) -> str | None:
    """Describe the validation error of a page with these items; None if it is valid."""
    try:
        validate_server_result(method.method, protocol_version, {**page, method.member: items})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join(map(str, first["loc"][2:]))
        return f"{path}: {first['msg']}" if path else first["msg"]
    return None
