"""Cluster of one app; change announcements.

Changes of tools, announced by replicas as if they were one server.

Every replica makes most changes itself: of a configuration, of a server behind a gateway. The first that makes one
tells the others, whose subscribers hear of it at once; when they then make it themselves it is no news.

What replicas of one server share: the whole of it, for one app.
"""

from __future__ import annotations

import hashlib
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import to_json

from bridge.redis import redis_at
from bridge.server.cluster.rates import ClusterRates
from bridge.server.cluster.replica import Replica
from bridge.server.cluster.sessions import ClusterSessions
from bridge.server.tool_list import ToolChanges

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from bridge.server.core import ServerCore
    from bridge.server.http.sessions import Sessions
    from bridge.server.publisher import Publisher


class ClusterChanges:
    """Announces each change once, wherever it was made first.

    Args:
        publisher: Whose tools change, and who announces it.
        link: The way to the other replicas.
    """

    def __init__(self, publisher: ServerCore, link: Replica) -> None:
        self._publisher = publisher
        self._link = link
        self._changed = anyio.Event()
        self._announced = ""
        link.hear("changed", self._heard)

    @contextmanager
    def following(self) -> Iterator[None]:
        """The time during which the tools' own changes are announced here, and nowhere else."""
        self._announced = self._fingerprint()
        self._publisher.changes.close()
        own = ToolChanges(self._publisher.tools)
        end = own.listen(self._tell_of_change)
        try:
            yield
        finally:
            end()
            own.close()
            self._publisher.changes.close = self._publisher.tools.on_change(self._publisher.changes.ring)

    def _tell_of_change(self) -> None:
        self._changed.set()

    async def announce(self) -> None:
        """Announce changes as they come; runs until it is cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            fingerprint = self._fingerprint()
            if self._announces(fingerprint):
                try:
                    await self._link.tell({"kind": "changed", "fingerprint": fingerprint})
                except self._link.failures as error:
                    self._link.failed(error)

    async def _heard(self, message: Mapping[str, Any]) -> None:
        self._announces(message["fingerprint"])

    def _announces(self, fingerprint: str) -> bool:
        is_news = fingerprint != self._announced
        if is_news:
            self._announced = fingerprint
            self._publisher.changes.ring()
        return is_news

    def _fingerprint(self) -> str:
        """What is listed, in short."""
        digest, cursor = hashlib.sha256(), None
        while True:
            page = self._publisher.catalog.page(cursor, modern=True)
            digest.update(to_json(page["tools"]))
            cursor = page.get("nextCursor")
            if cursor is None:
                return digest.hexdigest()


class Cluster:
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
        self.link = Replica(
            redis_at(url), f"bridge:{{{publisher.name}}}"
        )  # the braces keep all on one node of a cluster
        """The way to the other replicas."""
        self.sessions = ClusterSessions(publisher.server, sessions, self.link, idle_seconds)
        """The sessions that are alive here."""
        self._changes = ClusterChanges(publisher, self.link)
        self._rates = None if publisher.accounts is None else ClusterRates(publisher.accounts, self.link)

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
