"""A task that belongs to nobody's task group, for what must outlive the function that starts it.

An iteration may be left at any point, and whoever leaves it says nothing. What runs behind it can therefore not live in
a task group around the ``yield``: it would be closed in another task, or cancel its consumer. It lives in a task of its
own, which ends by a cancel scope.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_tasks: set[asyncio.Task[None]] = set()
"""The event loop itself holds its tasks only weakly."""


def start_detached(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a function in a task of its own, in the running event loop; it must raise nothing but its cancellation."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio  # noqa: PLC0415 - the other event loop, and it runs

        trio.lowlevel.spawn_system_task(function)
        return
    task = loop.create_task(function())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
