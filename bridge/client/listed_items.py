"""Items of a server's lists as local ones: those that are malformed or listed twice are left out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import anyio.lowlevel

from bridge.errors import DefinitionError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.client.connection.list_methods import Listed, ListMethod
    from bridge.types import Json

T = TypeVar("T")

_ITEMS_AT_ONCE = 50
"""Items that are created before control returns to the event loop."""
_logger = logging.getLogger("bridge.client")


async def made_items(
    server: str, make: Callable[[Json], T], key_of: Callable[[T], str], *lists: tuple[ListMethod, Listed]
) -> tuple[list[T], tuple[str, ...]]:
    """Create the items of one feature in batches, so that other tasks can run; those left out are logged.

    Args:
        server: Name of the server.
        make: Creates an item.
        key_of: Returns the key of an item, which is unique.
        lists: The lists.

    Returns:
        The items, and those left out or refused by pins, each with the reason.
    """
    items: dict[str, T] = {}
    refused = [reason for _, listed in lists for reason in listed.refused.values()]
    skipped = [reason for _, listed in lists for reason in listed.malformed]
    everything = ((method.noun, wire) for method, listed in lists for wire in listed.items)
    for number, (noun, wire) in enumerate(everything):
        if number % _ITEMS_AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
        try:
            item = make(wire)
        except (WireError, DefinitionError) as error:
            skipped.append(str(error))
            continue
        if (key := key_of(item)) in items:
            skipped.append(f"the {noun} {key!r} is listed twice")
        else:
            items[key] = item
    for reason in skipped:
        _logger.warning("server %r: left out: %s", server, reason)
    return list(items.values()), (*refused, *skipped)
