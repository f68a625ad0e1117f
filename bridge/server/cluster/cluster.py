"""Cluster: the state that replicas of one server share, for one app, and their notifications of changed tools."""

from __future__ import annotations

import hashlib
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import to_json

from bridge.redis import redis_at
from bridge.server.changes import Change, Changes
from bridge.server.cluster.rates import ClusterRates
from bridge.server.cluster.replica import Replica
from bridge.server.cluster.sessions import ClusterSessions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from bridge.server.core import ServerCore
    from bridge.server.http.sessions import Sessions
    from bridge.server.lists.listing import Listing
    from bridge.server.server import Server
    from bridge.types import Feature


class ClusterChanges:
    """Notifies the clients of all replicas of each change, once.

    Most changes, such as of a configuration, happen in every replica. The first replica publishes the change, and the
    others notify their clients at once; their own, later change has the same fingerprint and is not notified again.
    """

    def __init__(self, server: ServerCore, replica: Replica) -> None:
        self._server = server
        self._replica = replica
        self._changed = anyio.Event()
        self._announced: dict[Feature, str] = {}
        self._waiting: dict[Change, None] = {}
        replica.on_message("changed", self._receive)

    @property
    def _lists(self) -> dict[Feature, Mapping[str, Listing[Any]]]:
        lists: dict[Feature, Mapping[str, Listing[Any]]] = {"tools": {"tools": self._server.catalog}}
        for served in (self._server.resources, self._server.prompts):
            if served is not None:
                lists[served.feature] = served.views.whole.lists
        return lists

    @contextmanager
    def following(self) -> Iterator[None]:
        """Context in which this object, instead of the server, notifies clients of changes."""
        self._announced = {feature: self._fingerprint(feature) for feature in self._lists}
        self._server.changes.close()
        own = Changes(self._server.announced)
        end = own.listen(self._note_changes)
        unhook = self._server.on_features(lambda: own.follow(self._server.features))
        try:
            yield
        finally:
            unhook()
            end()
            own.close()
            self._server.changes.start()

    def _note_changes(self, changes: frozenset[Change]) -> None:
        for change in changes:
            if change.caller is not None:  # over a connection of this replica
                self._server.changes.notify(change)
            else:
                self._waiting[change] = None
        self._changed.set()

    async def announce(self) -> None:
        """Notify and publish changes; runs until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            while self._waiting:
                change = next(iter(self._waiting))
                del self._waiting[change]
                fingerprint = None if change.uri is not None else self._fingerprint(change.feature)
                if self._notify(change, fingerprint):
                    with self._replica.noting_failures():
                        message = {"feature": change.feature, "uri": change.uri, "fingerprint": fingerprint}
                        await self._replica.publish({"kind": "changed", **message})

    async def _receive(self, message: Mapping[str, Any]) -> None:
        if message.get("uri") is not None and message.get("from") == self._replica.id:
            return  # its clients have been notified
        self._notify(Change(message.get("feature", "tools"), message.get("uri")), message["fingerprint"])

    def _notify(self, change: Change, fingerprint: str | None) -> bool:
        """Notify the clients of this replica, unless they were notified of the same list."""
        is_new = fingerprint is None or fingerprint != self._announced.get(change.feature)
        if is_new:
            if fingerprint is not None:
                self._announced[change.feature] = fingerprint
            self._server.changes.notify(change)
        return is_new

    def _fingerprint(self, feature: Feature) -> str:
        """Return a digest of the lists of a feature."""
        digest = hashlib.sha256()
        for member, listing in self._lists[feature].items():
            cursor: str | None = None
            while True:
                page = listing.page(cursor, modern=True)
                digest.update(to_json(page[member]))
                cursor = page.get("nextCursor")
                if cursor is None:
                    break
        return digest.hexdigest()


class Cluster:
    """Sessions, rates and changes that the replicas of one server share through Redis; replicas have the same name.

    Args:
        url: URL of the Redis.
        server: The server.
        sessions: Its sessions.
        idle_seconds: Seconds after which an unused session is ended; None for never.
        counts_rates: True to count the rates of its callers with the other replicas; of several servers with the same
            accounts, one does.
    """

    def __init__(
        self, url: str, server: Server, sessions: Sessions, idle_seconds: float | None, *, counts_rates: bool = True
    ) -> None:
        # The braces put all keys on one node of a Redis Cluster.
        self.replica = Replica(redis_at(url), f"bridge:{{{server.name}}}")
        """This replica, and its connection to the others."""
        self.sessions = ClusterSessions(server, sessions, self.replica, idle_seconds)
        """The sessions that this replica serves."""
        self._changes = ClusterChanges(server, self.replica)
        self._rates = (
            None if server.accounts is None or not counts_rates else ClusterRates(server.accounts, self.replica)
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which this replica is connected to the others."""
        async with self.replica.running(), anyio.create_task_group() as tasks:
            with self._changes.following():
                tasks.start_soon(self._changes.announce)
                rates = nullcontext() if self._rates is None else self._rates.running()
                async with rates, self.sessions.running():
                    try:
                        yield
                    finally:
                        tasks.cancel_scope.cancel()
