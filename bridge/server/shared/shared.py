"""What replicas of one server share: the whole of it, for one app."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import anyio

from bridge.redis import redis_at
from bridge.server.cluster.cluster import SharedChanges
from bridge.server.cluster.rates import SharedRates
from bridge.server.cluster.replica import Link
from bridge.server.cluster.sessions import SharedSessions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.server.http.sessions import Sessions
    from bridge.server.publisher import Publisher


class Shared:
    """The Redis by which replicas are one server; for one app, and the time in which it runs.

    Args:
        url: The Redis, such as ``redis://localhost:6379/0``.
        publisher: What is served. Servers of one name share, and those of other names do not.
        sessions: The sessions that are open here.
        idle_seconds: How long a session may go unused.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not one of Redis.
    """

    def __init__(self, url: str, publisher: Publisher, sessions: Sessions, idle_seconds: float | None) -> None:
        self.link = Link(redis_at(url), f"bridge:{{{publisher.name}}}")  # the braces keep all on one node of a cluster
        """The way to the other replicas."""
        self.sessions = SharedSessions(publisher.server, sessions, self.link, idle_seconds)
        """The sessions that are alive here."""
        self._changes = SharedChanges(publisher, self.link)
        self._rates = None if publisher.accounts is None else SharedRates(publisher.accounts, self.link)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time during which this replica is one of several."""
        async with self.link.running(), anyio.create_task_group() as tasks:
            with self._changes.following():
                tasks.start_soon(self._changes.announce)
                rates = nullcontext() if self._rates is None else self._rates.running()
                async with rates, self.sessions.running():
                    try:
                        yield
                    finally:
                        tasks.cancel_scope.cancel()
