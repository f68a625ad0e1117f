"""Lifespans of what a server has, open from before its first request until after its last one."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from bridge.tools.lifespan import Lifespan, lifespans_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bridge.server.features import Features


@asynccontextmanager
async def lifespans_open(features: Features, own: Lifespan[Any] | None = None) -> AsyncIterator[None]:
    """Keep the lifespans of features open during this block, in the order of the features.

    Args:
        features: The tools, resources and prompts.
        own: The server's own lifespan, which is opened first and closed last; None for none.

    Raises:
        Exception: As raised by a lifespan that could not be opened.
    """
    async with AsyncExitStack() as stack:
        if Lifespan.are_there:
            first = () if own is None else (own,)
            for each in dict.fromkeys((*first, *features.lifespans, *features.mounted_lifespans, *_needed(features))):
                await stack.enter_async_context(each.opened())
        yield


def _needed(features: Features) -> Iterator[Lifespan[Any]]:
    for item in (each for box in features.boxes.values() for each in box):
        for name in ("executor", "reader", "renderer"):  # of a tool, a resource or a prompt
            yield from lifespans_of(getattr(item, name, None))
        yield from lifespans_of(getattr(item, "completions", None))
