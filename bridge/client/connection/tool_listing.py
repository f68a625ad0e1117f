"""Listing of all pages of tools, without malformed ones.

The SDK validates a page as a whole on the event loop: a large page would block all calls for seconds, and one malformed
tool would invalidate the page. So tools are removed from a page before the SDK reads it, and are validated in batches
with the SDK's own rules. The same stream wrapper observes responses to the handshake and to cancelled calls, and
drops malformed notifications.
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

from bridge.client.connection.state import ToolListing
from bridge.client.transports.channel import OutgoingRequest
from bridge.errors import WireError
from bridge.text import short_repr

if TYPE_CHECKING:
    from mcp_types import JSONRPCMessage

    from bridge.client.connection.session import Session
    from bridge.types import Json

MAX_PAGES = 10_000
"""Maximum pages of a list."""

MAX_TOOLS = 50_000
"""Maximum tools of a server, over all pages."""

MAX_LIST_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a server's tools as JSON, over all pages."""

MAX_HEADER_PAGE_BYTES = 1024 * 1024
"""Maximum bytes of a page with tools that declare headers, which the SDK reads as a whole."""

_logger = logging.getLogger("bridge.client")

_TOOLS_AT_ONCE = 50
"""Tools that are validated before control returns to the event loop."""

_HEADER_KEYWORD = b'"x-mcp-header"'

TAKEN_KEY = "io.github.mcp-toolbridge/taken"
"""Key in a page for its tools in `Session.taken_tools`."""


async def list_all_pages(session: Session, outgoing: OutgoingRequest | None = None) -> ToolListing:
    """List all pages of tools over one session.

    In the modern era over HTTP, headers that tools declare are sent from now on, and tools with invalid header
    declarations are left out (MCP 2026-07-28, ``x-mcp-header``).

    Raises:
        MCPError: The server responded with an error, or the connection was lost.
        ValidationError: The response is not valid MCP.
        WireError: The list does not end, or is too long.
    """
    outgoing = outgoing or OutgoingRequest()
    listed = _Listed(session)
    cursor: str | None = None
    async with session.listing:
        for _ in range(MAX_PAGES):
            page = await _page(session, cursor, outgoing)
            await listed.add(page, cursor)
            following = page.get("nextCursor")
            if following is None:
                return ToolListing(listed.tools, listed.ttl_seconds, tuple(listed.malformed))
            if following == cursor:
                break
            cursor = following
    raise WireError(
        f"its list of tools does not end: the page after {cursor!r} repeats its cursor, or there are too many pages"
    )


async def _page(session: Session, cursor: str | None, outgoing: OutgoingRequest) -> dict[str, Any]:
    """Request one page, with unvalidated tools."""
    session.takes_tools = True
    try:
        page = await session.request("tools/list", {} if cursor is None else {"cursor": cursor}, outgoing)
        key = page.pop(TAKEN_KEY, None)
        return page if key is None else {**page, "tools": session.taken_tools[key]}
    finally:
        session.takes_tools = False
        session.taken_tools.clear()


class _Listed:
    """Tools of a session listed so far."""

    def __init__(self, session: Session) -> None:
        self.tools: list[dict[str, Any]] = []
        self.malformed: list[str] = []
        self.ttl_seconds: float | None = None
        self._session = session
        self._count = 0
        self._size_bytes = 0

    async def add(self, page: dict[str, Any], cursor: str | None) -> None:
        """Add the tools of a page, in batches, so that other tasks can run; too many or too large ones are refused."""
        session, tools, frame = self._session, page["tools"], {**page, "tools": []}
        size_before, wants_headers = self._size_bytes, False
        found: list[dict[str, Any]] = []
        for start in range(0, len(tools), _TOOLS_AT_ONCE):
            some = tools[start : start + _TOOLS_AT_ONCE]
            text = to_json(some)
            wants_headers = wants_headers or _HEADER_KEYWORD in text
            self._count += len(some)
            self._size_bytes += len(text)
            if self._count > MAX_TOOLS:
                raise WireError(f"it lists more than {MAX_TOOLS:,} tools")
            if self._size_bytes > MAX_LIST_BYTES:
                raise WireError(f"its list of tools is longer than {MAX_LIST_BYTES / 2**20:g} MiB")
            valid, malformed = sift(frame, some, session.protocol_version)
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
        self.tools += found
        if isinstance(ttl_milliseconds := page.get("ttlMs"), int | float):
            self.ttl_seconds = min(ttl_milliseconds / 1000, math.inf if self.ttl_seconds is None else self.ttl_seconds)


class ToolListFilter(ObjectReceiveStream[SessionMessage | Exception]):
    """Stream that the SDK reads messages from; removes tools from pages while the session's ``takes_tools`` is set."""

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
            if isinstance(item.message, JSONRPCNotification):
                if not valid_notification(item.message, self._session.protocol_version):
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
        if session.takes_tools and isinstance(message, JSONRPCResponse):
            _take_tools(message.result, session)

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


def _take_tools(page: Json, session: Session) -> None:
    page.pop(TAKEN_KEY, None)  # the key is reserved
    tools = page.get("tools")
    if isinstance(tools, list) and "content" not in page:
        key = len(session.taken_tools)
        session.taken_tools[key] = tools
        page["tools"], page[TAKEN_KEY] = [], key


def sift(page: Json, tools: list[Any], protocol_version: str) -> tuple[list[Any], list[str]]:
    """Separate valid tools of a page, given without its tools, from malformed ones.

    Returns:
        The valid tools, and one sentence with name and reason for each malformed one.
    """
    if _problem(page, tools, protocol_version) is None:
        return tools, []
    valid: list[Any] = []
    malformed: list[str] = []
    for tool in tools:
        problem = _problem(page, [tool], protocol_version)
        if problem is None:
            valid.append(tool)
        else:
            name = tool.get("name") if isinstance(tool, dict) else None
            shown = repr(name) if isinstance(name, str) and name else short_repr(tool)
            malformed.append(f"the tool {shown} is malformed: {problem}")
    return valid, malformed


def _problem(page: Json, tools: list[Any], protocol_version: str) -> str | None:
    """Describe the validation error of a page with these tools; None if it is valid."""
    try:
        validate_server_result("tools/list", protocol_version, {**page, "tools": tools})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join(map(str, first["loc"][2:]))
        return f"{path}: {first['msg']}" if path else first["msg"]
    return None
