"""Cluster: the state that replicas of one server share, for one app, and their notifications of changed tools."""

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
from bridge.wire.tools import tool_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from bridge.server.core import ServerCore
    from bridge.server.http.sessions import Sessions
    from bridge.server.publisher import Publisher


class ClusterChanges:
    """Notifies the clients of all replicas of each change of the tools, once.

    Most changes, such as of a configuration, happen in every replica. The first replica publishes the change, and the
    others notify their clients at once; their own, later change has the same fingerprint and is not notified again.
    """

    def __init__(self, publisher: ServerCore, replica: Replica) -> None:
        self._publisher = publisher
        self._replica = replica
        self._changed = anyio.Event()
        self._announced = ""
        replica.on_message("changed", self._receive)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Context in which this object, instead of the publisher, notifies clients of changes."""
        self._announced = self._fingerprint()
        self._publisher.changes.close()
        own = ToolChanges(self._publisher.tools)
        end = own.listen(self._note_change)
        try:
            yield
        finally:
            end()
            own.close()
            self._publisher.changes.close = self._publisher.tools.on_change(self._publisher.changes.notify)

    def _note_change(self) -> None:
        self._changed.set()

    async def announce(self) -> None:
        """Notify and publish changes; runs until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            fingerprint = self._fingerprint()
            if self._notify(fingerprint):
                with self._replica.noting_failures():
                    await self._replica.publish({"kind": "changed", "fingerprint": fingerprint})

    async def _receive(self, message: Mapping[str, Any]) -> None:
        self._notify(message["fingerprint"])

    def _notify(self, fingerprint: str) -> bool:
        is_new = fingerprint != self._announced
        if is_new:
            self._announced = fingerprint
            self._publisher.changes.notify()
        return is_new

    def _fingerprint(self) -> str:
        """Return a digest of the list of tools."""
        tools = [tool_to_wire(tool.specification) for tool in self._publisher.tools]
        return hashlib.sha256(to_json(tools)).hexdigest()


class Cluster:
    """Sessions, rates and changes that the replicas of one server share through Redis; replicas have the same name."""

    def __init__(self, url: str, publisher: Publisher, sessions: Sessions, idle_seconds: float | None) -> None:
        # The braces put all keys on one node of a Redis Cluster.
        self.replica = Replica(redis_at(url), f"bridge:{{{publisher.name}}}")
        """This replica, and its connection to the others."""
        self.sessions = ClusterSessions(publisher.server, sessions, self.replica, idle_seconds)
        """The sessions that this replica serves."""
        self._changes = ClusterChanges(publisher, self.replica)
        self._rates = None if publisher.accounts is None else ClusterRates(publisher.accounts, self.replica)

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
