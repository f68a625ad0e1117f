"""Replacement of servers: new ones are opened first, and old ones are closed after their last call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio

from bridge.client.connection_pool import all_at_once
from bridge.portal import start_detached

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bridge.client.upstream import Upstream

_BUSY_SECONDS = 0.1
"""Seconds between two looks at the calls of a server that was replaced."""


async def open_new(
    upstreams: Collection[Upstream], then: Callable[[], None], *, wait_seconds: float | None = None
) -> None:
    """Open servers, and close them again after an error.

    Args:
        upstreams: The servers.
        then: Called once they are open.
        wait_seconds: Maximum seconds to wait until servers that are not required are listed, or have failed to list;
            required ones are waited for without a limit. None waits for none of them.

    Raises:
        ServerError: A required server cannot be reached or listed.
    """
    try:
        await all_at_once(each.start for each in upstreams)
        if wait_seconds is not None:
            with anyio.move_on_after(wait_seconds) as waiting:
                await all_at_once(each.settled for each in upstreams)
            judged = [each for each in upstreams if each.config.required or not waiting.cancelled_caught]
            await all_at_once(each.require_settled for each in judged)
        then()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await all_at_once(each.aclose for each in upstreams)
        raise


class ReplacedServers:
    """Servers that were replaced, and still have calls."""

    def __init__(self) -> None:
        self._upstreams: set[Upstream] = set()

    def add(self, upstream: Upstream) -> None:
        """Close a server after its last call, at the latest when the time limit of that call is over."""
        self._upstreams.add(upstream)
        upstream.mute()
        start_detached(partial(self._retire, upstream), f"end of the server {upstream.name}")

    async def _retire(self, upstream: Upstream) -> None:
        with anyio.move_on_after(upstream.config.max_call_seconds):
            while upstream.is_busy:  # noqa: ASYNC110 - an event would cost time in every call
                await anyio.sleep(_BUSY_SECONDS)
        await upstream.aclose()
        self._upstreams.discard(upstream)

    async def aclose(self) -> None:
        """Close all of them now."""
        await all_at_once(each.aclose for each in tuple(self._upstreams))
