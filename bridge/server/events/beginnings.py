"""Beginning of a webhook: the position that a reader of its events gives, within a deadline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import anyio

from bridge.errors import ToolError

if TYPE_CHECKING:
    from bridge.events.occurrence import EventReader, EventRequest
    from bridge.tools.context import InvocationContext

DEADLINE_SECONDS = 30.0
"""Seconds within which the position is found."""
MAX_PAGES = 1_000
"""Maximum pages without events, since they are too old, before the first one with some."""


class Beginning(NamedTuple):
    """Position at which a subscription begins."""

    cursor: str | None
    truncated: bool
    """True if events after the given cursor are missing."""


async def beginning_of(reader: EventReader, name: str, request: EventRequest, context: InvocationContext) -> Beginning:
    """Return the position at which a subscription begins, and if events after the given cursor are missing.

    Args:
        reader: Reads the events.
        name: Name of their type.
        request: The arguments and the given cursor.
        context: Context of the request.

    Raises:
        ToolError: The position was not found in time, or the pages have no end.
        ServerError: The events of another server cannot be read.
        EventStoreError: Those of this one cannot.
    """
    try:
        with anyio.fail_after(DEADLINE_SECONDS):
            return await _found(reader, name, request, context)
    except TimeoutError as error:
        message = f"the events {name!r} were not read within {DEADLINE_SECONDS:g} seconds; try again later"
        raise ToolError(message) from error


async def _found(reader: EventReader, name: str, request: EventRequest, context: InvocationContext) -> Beginning:
    batch = await reader.poll(request, context)
    if request.cursor is None:
        return Beginning(batch.cursor, truncated=False)
    if not batch.truncated:
        return Beginning(request.cursor, truncated=False)
    before: str | None = request.cursor
    pages = 1
    while batch.has_more and not batch.events:  # they were too old
        if batch.cursor == before or pages == MAX_PAGES:
            raise ToolError(f"the events {name!r} have pages without end; subscribe without a cursor")
        pages, before = pages + 1, batch.cursor
        batch = await reader.poll(replace(request, cursor=before), context)
    before = before if batch.start is None else batch.start
    return Beginning(before if batch.events else batch.cursor, truncated=True)
