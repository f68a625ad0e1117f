"""All pages of tools, without malformed ones.

Listing: all pages of a server's tools, each tool as it came.

Sieve: what the SDK's client reads from a server, with lists of tools taken out.

The SDK validates a page of a list as a whole, on the event loop: a page of 22 MB would stop every caller for seconds,
and one malformed tool would cost all the others. So the tools of a page go around it, and are validated in parts, by
the SDK's own rules; see `bridge.client.connection.tool_listing`. The stream also sees the answers that nobody waits for
any more, and those to the greeting.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse, PaginatedRequestParams
from mcp_types.methods import validate_server_result
from pydantic import ValidationError
from pydantic_core import to_json

from bridge.client.connection.requests import OutgoingRequest
from bridge.client.connection.state import ToolListing
from bridge.errors import WireError
from bridge.text import short_repr

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from bridge.client.connection.session import Session
    from bridge.types import Json

MAX_PAGES = 10_000
"""A list that is longer than this many pages does not end."""

MAX_TOOLS = 50_000
"""Maximum tools of a server, over all pages."""

MAX_LIST_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a server's tools as JSON, over all pages."""

MAX_HEADER_PAGE_BYTES = 1024 * 1024
"""Maximum bytes of a page with tools that ask for headers: the SDK reads that as a whole."""

_TOOLS_AT_ONCE = 50
"""Tools that are validated before other tasks get a turn."""

_HEADER_KEYWORD = b'"x-mcp-header"'

TAKEN_KEY = "io.github.mcp-toolbridge/taken"
"""The key of a page under which its tools are found in `Session.taken_tools`."""


async def list_all_pages(link: Session, attempt: OutgoingRequest | None = None) -> ToolListing:
    """The tools of a server over one link: all pages, without what is no tool.

    In the modern era over HTTP, tools whose schemas ask for headers have these sent from now on, and tools that ask for
    impossible ones are left out (MCP 2026-07-28, ``x-mcp-header``).

    Raises:
        MCPError: The server answered with an error, or cannot answer any more.
        ValidationError: It answered what the protocol does not know.
        WireError: The list does not end, or is too long.
    """
    attempt = attempt or OutgoingRequest()
    listed = _Listed()
    cursor: str | None = None
    ttl_seconds: float | None = None
    async with link.listing:
        for _ in range(MAX_PAGES):
            page = await _page(link, cursor, attempt)
            await _add_page(listed, link, page, cursor)
            ttl_seconds = _shorter(ttl_seconds, page.get("ttlMs"))
            following = page.get("nextCursor")
            if following is None:
                return ToolListing(listed.tools, ttl_seconds, tuple(listed.malformed))
            if following == cursor:
                break
            cursor = following
    raise WireError(
        f"its list of tools does not end: the page after {cursor!r} is the same again, or there are too many"
    )


@dataclass(slots=True)
class _Listed:
    """What has been listed so far."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0

    def add(self, tools: list[Any], size_bytes: int) -> None:
        """Count tools, malformed or not.

        Raises:
            WireError: They are too many, or too long.
        """
        self.count += len(tools)
        self.size_bytes += size_bytes
        if self.count > MAX_TOOLS:
            raise WireError(f"it lists more than {MAX_TOOLS:,} tools")
        if self.size_bytes > MAX_LIST_BYTES:
            raise WireError(f"its list of tools is longer than {MAX_LIST_BYTES / 2**20:g} MiB")


async def _page(link: Session, cursor: str | None, attempt: OutgoingRequest) -> dict[str, Any]:
    """One page, with its tools as they came, whatever they are."""
    link.takes_tools = True
    try:
        page = await link.request("tools/list", {} if cursor is None else {"cursor": cursor}, attempt)
        key = page.pop(TAKEN_KEY, None)
        return page if key is None else {**page, "tools": link.taken_tools[key]}
    finally:
        link.takes_tools = False
        link.taken_tools.clear()


async def _add_page(listed: _Listed, link: Session, page: dict[str, Any], cursor: str | None) -> None:
    """Add the tools of a page, a few at a time, so that others get their turn however long it is."""
    tools, frame = page["tools"], {**page, "tools": []}
    size_bytes, wants_headers = 0, False
    found: list[dict[str, Any]] = []
    for start in range(0, len(tools), _TOOLS_AT_ONCE):
        some = tools[start : start + _TOOLS_AT_ONCE]
        text = to_json(some)
        size_bytes += len(text)
        wants_headers = wants_headers or _HEADER_KEYWORD in text
        listed.add(some, len(text))
        kept, malformed = sift(frame, some, link.protocol_version)
        found += kept
        listed.malformed += malformed
        await anyio.lowlevel.checkpoint()
    if wants_headers and link.kind == "http" and link.era == "modern":
        if size_bytes > MAX_HEADER_PAGE_BYTES:
            raise WireError(
                f"a page of tools that ask for headers is longer than {MAX_HEADER_PAGE_BYTES / 2**20:g} MiB: "
                "have it list them in more pages"
            )
        # The SDK notes the headers that they ask for, and drops those that ask for impossible ones.
        noted = await link.client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        names = {tool.name for tool in noted.tools}
        found = [tool for tool in found if tool["name"] in names]
    listed.tools += found


def _shorter(seconds: float | None, ttl_milliseconds: Any) -> float | None:
    if not isinstance(ttl_milliseconds, int | float):
        return seconds
    return min(ttl_milliseconds / 1000, float("inf") if seconds is None else seconds)


class HandshakeWriter(ObjectSendStream[SessionMessage]):
    """The stream that the SDK writes its messages to.

    Args:
        messages: The transport's own.
        link: The connection.
    """

    def __init__(self, messages: Any, link: Session) -> None:
        self._messages = messages
        self._link = link

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        if self._link.greeting is not None:
            self._link.greeting.sent(item.message)
        await self._messages.send(item)

    async def aclose(self) -> None:
        """Write no more."""
        await self._messages.aclose()


class ToolListFilter(ObjectReceiveStream[SessionMessage | Exception]):
    """The stream that the SDK reads a server's messages from.

    Args:
        messages: The transport's own, with whatever it offers beside the messages.
        link: The connection; tools are taken out while its ``takes_tools`` is set.
    """

    def __init__(self, messages: Any, link: Session) -> None:
        self._messages = messages
        self._link = link

    @property
    def last_context(self) -> Any:
        """The context that the last message was sent in, where the transport keeps it."""
        return getattr(self._messages, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        item = await self._messages.receive()
        if self._link.large and isinstance(item, SessionMessage):
            item.message = self._link.whole(item.message)
        if self._link.greeting is not None and isinstance(item, SessionMessage):
            self._link.greeting.received(item.message)
        if self._link.abandoned is not None and isinstance(item, SessionMessage):
            message = item.message
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._link.abandoned.answered(message.id)
        if self._link.takes_tools and isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            _take_tools(item.message.result, self._link)
        return item  # type: ignore[no-any-return]  # it is what the transport gives

    async def aclose(self) -> None:
        """Read no more."""
        self._link.is_deaf = True
        await self._messages.aclose()


@asynccontextmanager
async def filtered(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], link: Session
) -> AsyncIterator[tuple[ToolListFilter, Any]]:
    """A transport of the SDK with a sieve before what it reads."""
    async with transport as (messages, writer):
        yield ToolListFilter(messages, link), writer if link.greeting is None else HandshakeWriter(writer, link)


def _take_tools(page: Json, link: Session) -> None:
    page.pop(TAKEN_KEY, None)  # a server has no say in that
    tools = page.get("tools")
    if isinstance(tools, list) and "content" not in page:
        key = len(link.taken_tools)
        link.taken_tools[key] = tools
        page["tools"], page[TAKEN_KEY] = [], key


def sift(page: Json, tools: list[Any], protocol_version: str) -> tuple[list[Any], list[str]]:
    """Tell the tools among some from what is none.

    Args:
        page: The page that lists them, without them.
        tools: Some of its tools.
        protocol_version: By whose rules.

    Returns:
        The tools, and for each of the others a sentence that names it and the reason.
    """
    if _problem(page, tools, protocol_version) is None:
        return tools, []
    kept: list[Any] = []
    malformed: list[str] = []
    for tool in tools:
        problem = _problem(page, [tool], protocol_version)
        if problem is None:
            kept.append(tool)
        else:
            malformed.append(f"{_shown(tool)} is malformed: {problem}")
    return kept, malformed


def _problem(page: Json, tools: list[Any], protocol_version: str) -> str | None:
    """Why a page with these tools is none; None where it is one."""
    try:
        validate_server_result("tools/list", protocol_version, {**page, "tools": tools})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"][2:]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    return None


def _shown(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return f"the tool {name!r}" if isinstance(name, str) and name else f"the tool {short_repr(tool)}"
