"""Lifespan of what a server keeps for its callers: tasks, events, and large results."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from anyio import CancelScope

from bridge.portal import runs_on_asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.server.core import ServerCore


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
