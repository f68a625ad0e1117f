"""Detached: a task that belongs to no task group, and so outlives whoever started it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_running: set[asyncio.Task[None]] = set()
"""An event loop refers to its tasks only weakly."""


def start_detached(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Run a coroutine function in a task of its own, in the running event loop.

    Nothing waits for the task, and nothing cancels it before the event loop ends. It must handle its own exceptions.

    Args:
        function: What to run.
        name: What the task is called where tasks are listed.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio  # noqa: PLC0415 - whoever runs on it has it

        trio.lowlevel.spawn_system_task(function, name=name)
        return
    task = loop.create_task(function(), name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
