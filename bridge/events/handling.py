"""Handling of events as they come, such as by an AI service."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

import anyio

from bridge.tools.checks import require_count
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from bridge.events.occurrence import Event

_logger = logging.getLogger("bridge.events")


async def handle_events(
    events: AsyncIterable[Event], function: Callable[[Event], Any], *, max_running: int = 1
) -> None:
    """Call a function with each event, such as a method of an AI service with ``event.text``, until the events end.

    An exception of the function is logged, and the next event is handled. While as many calls run as may, no further
    event is taken.

    Args:
        events: The events, such as a subscription.
        function: Coroutine function of an event; another function runs in a worker thread.
        max_running: Maximum of calls at a time.

    Raises:
        DefinitionError: ``max_running`` is not positive.
        ServerError: The server has ended the subscription.
    """
    require_count(max_running, "max_running")
    running = anyio.Semaphore(max_running)

    async def handle(event: Event) -> None:
        try:
            if inspect.iscoroutinefunction(function):
                await function(event)
            else:
                value = await run_in_thread(lambda: function(event))
                if inspect.isawaitable(value):
                    await value
        except Exception:
            _logger.exception("the event %r of %r could not be handled", event.id, event.name)
        finally:
            running.release()

    async with anyio.create_task_group() as tasks:
        async for event in events:
            await running.acquire()
            tasks.start_soon(handle, event)
