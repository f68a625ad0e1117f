"""Lifespans of what a server has, and of what it keeps for its callers, open from before its first request."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope

from bridge.portal import runs_on_asyncio
from bridge.tools.lifespan import Lifespan, lifespans_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bridge.server.core import ServerCore
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


@asynccontextmanager
async def running_tasks(core: ServerCore) -> AsyncIterator[None]:
    """Context in which a server has its tasks and events: their store is open, and tasks are ended at its end.

    The store of large results is closed at its end, too.

    Raises:
        TaskStoreError: The store cannot be opened.
    """
    try:
        async with _tasks(core), _events(core):
            yield
    finally:
        if core.kept is not None:
            with CancelScope(shield=True):
                await core.kept.spill.aclose()


@asynccontextmanager
async def _events(core: ServerCore) -> AsyncIterator[None]:
    if core.features.events is None:
        yield
        return
    if not runs_on_asyncio():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(core.events.run)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
        return
    # Without a task group: over stdio this is entered within a cancel scope that ends before.
    running = asyncio.get_running_loop().create_task(core.events.run())
    try:
        yield
    finally:
        running.cancel()
        with CancelScope(shield=True), suppress(asyncio.CancelledError):
            await running


@asynccontextmanager
async def _tasks(core: ServerCore) -> AsyncIterator[None]:
    if core.task_options.is_shared:  # by what other processes run, too
        async with core.tasks.opened():
            yield
        return
    if core.has_tasks:
        await core.tasks.open()
    try:
        yield
    finally:
        if "tasks" in vars(core):  # tools may have been added meanwhile
            await core.tasks.close()
