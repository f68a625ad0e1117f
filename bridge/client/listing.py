"""Listing: all pages of a server's tools, each tool as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_types import PaginatedRequestParams
from pydantic import ValidationError
from pydantic_core import to_json

from bridge.client.attempt import Attempt
from bridge.client.calling import asked
from bridge.client.sieve import MALFORMED_KEY
from bridge.client.states import ToolListing
from bridge.errors import WireError

if TYPE_CHECKING:
    from bridge.client.link import Link
    from bridge.client.owner import Owner
    from bridge.client.server_config import ServerConfig

MAX_PAGES = 10_000
"""A list that is longer than this many pages does not end."""

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
        WireError: The list does not end.
    """
    attempt = attempt or Attempt()
    tools: list[dict[str, Any]] = []
    malformed: list[str] = []
    cursor: str | None = None
    ttl_seconds: float | None = None
    for _ in range(MAX_PAGES):
        page = await _page(link, {} if cursor is None else {"cursor": cursor}, attempt)
        if link.sifts_tools:
            malformed += page.get(MALFORMED_KEY, ())
        kept = await _kept_names(link, page["tools"], cursor)
        tools += page["tools"] if kept is None else [tool for tool in page["tools"] if tool["name"] in kept]
        ttl_seconds = _shorter(ttl_seconds, page.get("ttlMs"))
        following = page.get("nextCursor")
        if following is None:
            return ToolListing(tools, ttl_seconds, tuple(malformed))
        if following == cursor:
            break
        cursor = following
    raise WireError(
        f"its list of tools does not end: the page after {cursor!r} is the same again, or there are too many"
    )


async def _page(link: Link, params: dict[str, Any], attempt: Attempt) -> dict[str, Any]:
    """One page; of one that has what is no tool, the rest."""
    try:
        return await link.request("tools/list", params, attempt)
    except ValidationError:
        if link.sifts_tools:
            raise
        link.sifts_tools = True
        return await link.request("tools/list", params, attempt)


async def _kept_names(link: Link, tools: list[dict[str, Any]], cursor: str | None) -> set[str] | None:
    """Have the SDK note the headers that tools ask for; returns the names that it keeps, or None for all."""
    if link.kind != "http" or link.era != "modern" or _HEADER_KEYWORD not in to_json(tools):
        return None
    page = await link.client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
    return {tool.name for tool in page.tools}


def _shorter(seconds: float | None, ttl_milliseconds: Any) -> float | None:
    if not isinstance(ttl_milliseconds, int | float):
        return seconds
    return min(ttl_milliseconds / 1000, float("inf") if seconds is None else seconds)
