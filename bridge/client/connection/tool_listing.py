"""Listing: all pages of a server's tools, each tool as it came."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
from mcp_types import PaginatedRequestParams
from pydantic_core import to_json

from bridge.client.attempt import Attempt
from bridge.client.connection.calls import asked
from bridge.client.connection.state import ToolListing
from bridge.client.sieve import TAKEN_KEY, sift
from bridge.errors import WireError

if TYPE_CHECKING:
    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.session import Link
    from bridge.client.connection.supervisor import Owner

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


async def list_tools(owner: Owner, config: ServerConfig) -> ToolListing:
    """The tools of a server, over whatever link there is.

    Raises:
        ServerError: They cannot be listed.
    """
    return await asked(owner, config, "listing tools", tools_over, is_repeatable=True)


async def tools_over(link: Link, attempt: Attempt | None = None) -> ToolListing:
    """The tools of a server over one link: all pages, without what is no tool.

    In the modern era over HTTP, tools whose schemas ask for headers have these sent from now on, and tools that ask for
    impossible ones are left out (MCP 2026-07-28, ``x-mcp-header``).

    Raises:
        MCPError: The server answered with an error, or cannot answer any more.
        ValidationError: It answered what the protocol does not know.
        WireError: The list does not end, or is too long.
    """
    attempt = attempt or Attempt()
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


async def _page(link: Link, cursor: str | None, attempt: Attempt) -> dict[str, Any]:
    """One page, with its tools as they came, whatever they are."""
    link.takes_tools = True
    try:
        page = await link.request("tools/list", {} if cursor is None else {"cursor": cursor}, attempt)
        key = page.pop(TAKEN_KEY, None)
        return page if key is None else {**page, "tools": link.taken_tools[key]}
    finally:
        link.takes_tools = False
        link.taken_tools.clear()


async def _add_page(listed: _Listed, link: Link, page: dict[str, Any], cursor: str | None) -> None:
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
