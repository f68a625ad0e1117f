"""Listing of all pages of tools, resources, templates or prompts, without malformed ones.

A page is not validated as a whole: a large one would block all calls, and one malformed item would invalidate the page.
So its items are validated in batches.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
from pydantic_core import to_json

from bridge.client.connection.list_methods import TOOLS, Listed
from bridge.errors import WireError
from bridge.protocol.param_headers import KEYWORD, header_names
from bridge.protocol.peer import PendingRequest
from bridge.protocol.results import InvalidResultError, reason_of, valid_result
from bridge.text import short_repr
from bridge.wire.tools import object_schema

if TYPE_CHECKING:
    from bridge.client.connection.list_methods import ListMethod
    from bridge.client.connection.session import Session
    from bridge.client.connection.status import ConnectionEvents
    from bridge.protocol.param_headers import HeaderNames
    from bridge.types import Json

_logger = logging.getLogger("bridge.client")

MAX_PAGES = 10_000
"""Maximum pages of a list."""

MAX_TOOLS = 50_000
"""Maximum tools of a server, over all pages."""

MAX_RESOURCES = 100_000
"""Maximum resources, resource templates, or prompts of a server, over all pages."""

MAX_LIST_BYTES = 32 * 1024 * 1024
"""Maximum bytes of one of a server's lists as JSON, over all pages."""

_ONLY_TASKS = "can only be called as a task of version 2025-11-25, which this client does not support"
_ITEMS_AT_ONCE = 50
"""Items that are validated before control returns to the event loop."""


async def list_all_pages(
    session: Session, request: PendingRequest | None = None, *, method: ListMethod = TOOLS
) -> Listed:
    """List all pages of tools, or of other items, over one session.

    In the modern era over HTTP, headers that tools declare are sent from now on, and tools with invalid header
    declarations are left out (MCP 2026-07-28, ``x-mcp-header``).

    Args:
        session: The session.
        request: Request of the first page, in which the outcome of the last one is recorded; None for a new one.
        method: Method of the list.

    Raises:
        ProtocolError: The server responded with an error.
        PeerLostError: No response can be received.
        InvalidResultError: The response is not valid MCP.
        WireError: The list does not end, or is too long.
    """
    request = request or PendingRequest()
    request.is_checked = False
    listed = _Items(session, method)
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        request.restart()
        page = await session.request(method.method, {} if cursor is None else {"cursor": cursor}, request)
        session.usage.upkeep += 1
        following = await listed.add(page)
        if following is None:
            if method is TOOLS:
                session.headers = listed.headers
            return Listed(listed.items, listed.ttl_seconds, tuple(listed.malformed))
        if following == cursor:
            break
        cursor = following
    raise WireError(
        f"its list of {method.noun}s does not end: the page after {cursor!r} repeats its cursor, "
        "or there are too many pages"
    )


async def list_again(session: Session, events: ConnectionEvents, server: str) -> None:
    """List the tools of a new session, and notify listeners if they differ from those of the last one."""
    if events.tools is None:
        return
    try:
        tools = (await list_all_pages(session)).items
    except Exception as error:  # noqa: BLE001 - listeners will list the tools and get the error
        _logger.debug("server %r: the tools cannot be listed again: %r", server, error)
        events.list_listeners["tools"].notify()
        return
    if tools != events.tools:
        events.tools = tools
        events.list_listeners["tools"].notify()


class _Items:
    """Items of a session listed so far."""

    def __init__(self, session: Session, method: ListMethod) -> None:
        self.items: list[dict[str, Any]] = []
        self.malformed: list[str] = []
        self.ttl_seconds: float | None = None
        self.headers: dict[str, HeaderNames] = {}
        """Headers in which arguments are repeated, by tool."""
        self._session = session
        self._method = method
        self._max_items = MAX_TOOLS if method is TOOLS else MAX_RESOURCES
        self._has_headers = method is TOOLS and session.link.mirrors_arguments and session.era == "modern"
        self._count = 0
        self._size_bytes = 0

    async def add(self, page: Json) -> str | None:
        """Add the items of a page, in batches, so that other tasks can run; too many or too large ones are refused.

        Returns:
            The cursor of the next page; None if it is the last one.
        """
        method, version = self._method, self._session.version
        items = page.get(method.member)
        if not isinstance(items, list):
            items = []
            valid_result(method.method, version, page)  # says so
        page = valid_result(method.method, version, {**page, method.member: []})
        for start in range(0, len(items), _ITEMS_AT_ONCE):
            some = items[start : start + _ITEMS_AT_ONCE]
            text = to_json(some)
            self._count += len(some)
            self._size_bytes += len(text)
            if self._count > self._max_items:
                raise WireError(f"it lists more than {self._max_items:,} {method.noun}s")
            if self._size_bytes > MAX_LIST_BYTES:
                raise WireError(f"its list of {method.noun}s is longer than {MAX_LIST_BYTES / 2**20:g} MiB")
            valid, malformed = sift(page, some, version, method)
            self.malformed += malformed
            if method is TOOLS and self._session.era == "handshake":
                self.malformed += [f"the tool {tool['name']!r} {_ONLY_TASKS}" for tool in valid if _requires_task(tool)]
                valid = [tool for tool in valid if not _requires_task(tool)]
            self.items += self._with_headers(valid) if self._has_headers and KEYWORD.encode() in text else valid
            await anyio.lowlevel.checkpoint()
        if isinstance(ttl_milliseconds := page.get("ttlMs"), int | float):
            self.ttl_seconds = min(ttl_milliseconds / 1000, math.inf if self.ttl_seconds is None else self.ttl_seconds)
        following: str | None = page.get("nextCursor")
        return following

    def _with_headers(self, tools: list[Any]) -> list[Any]:
        """Note the headers that tools declare; return those whose declarations are valid."""
        found: list[Any] = []
        for tool in tools:
            try:
                if names := header_names(tool["inputSchema"]):
                    self.headers[tool["name"]] = names
                found.append(tool)
            except ValueError as error:
                self.malformed.append(f"the tool {tool['name']!r} is malformed: {error}")
        return found


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


def _requires_task(tool: Json) -> bool:
    """True for a tool that cannot be called without a task of version 2025-11-25."""
    execution = tool.get("execution")
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def _with_types(tool: Any) -> Any:
    """Return a tool whose schemas have a type: without one, they are taken as those of objects, as in the SDKs."""
    if not isinstance(tool, dict):
        return tool
    schemas = {key: tool[key] for key in ("inputSchema", "outputSchema") if isinstance(tool.get(key), dict)}
    return {**tool, **{key: object_schema(schema) for key, schema in schemas.items()}}


def _problem(page: Json, items: list[Any], protocol_version: str, method: ListMethod) -> str | None:
    """Describe the validation error of a page with these items; None if it is valid."""
    checked = list(map(_with_types, items)) if method is TOOLS else items
    try:
        valid_result(method.method, protocol_version, {**page, method.member: checked})
    except InvalidResultError as error:
        return reason_of(error, depth=2)
    return None
