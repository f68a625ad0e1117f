"""Beside: what a request begins, waits for briefly, and then leaves to go on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import Event, move_on_after

from bridge.client.transports.http import START_SOON
from bridge.portal import start_detached

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import httpx2


async def begun(work: Callable[[], Coroutine[Any, Any, None]], request: httpx2.Request, wait_seconds: float) -> None:
    """Begin some work, and wait for its end for so long.

    It belongs to the connection that the request goes over, if to any: that ends when what is shielded of it has.

    Args:
        work: What to do; it handles its own exceptions.
        request: Who begins it.
        wait_seconds: How long this waits, at most.
    """
    is_over = Event()

    async def run() -> None:
        try:
            await work()
        finally:
            is_over.set()

    if (start_soon := request.extensions.get(START_SOON)) is not None:
        start_soon(run)
    else:
        start_detached(run, "renewal of a login")
    with move_on_after(wait_seconds):
        await is_over.wait()
