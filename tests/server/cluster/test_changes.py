from __future__ import annotations

from contextlib import asynccontextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import httpx
import pytest

from bridge import ToolBox, tool
from bridge.server import http_app
from bridge.server.cluster import Cluster
from bridge.server.http.sessions import Sessions
from bridge.server.server import Server
from bridge.tools.transform import renamed
from tests.server.cluster.speaking import Talk, events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.redis_server import RedisServer

DEADLINE_SECONDS = 60
PACE_SECONDS = 0.05


@tool
def one() -> None:
    """Do nothing."""


@tool
def more() -> None:
    """Do nothing."""


@tool
def last() -> None:
    """Do nothing."""


class Replica:
    """One replica, and the number of notifications to its subscribers."""

    def __init__(self, name: str, url: str) -> None:
        self.tools = ToolBox([one])
        self.server = Server(self.tools, name=name)
        self.shared = Cluster(url, self.server, Sessions(), None)
        self.told = 0
        self._heard = anyio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.shared.running():
            end = self.server.changes.listen(self._tell)
            yield
            end()

    def _tell(self, _: object) -> None:
        self.told += 1
        self._heard.set()
        self._heard = anyio.Event()

    async def until_told(self, times: int) -> None:
        while self.told < times:
            await self._heard.wait()


@pytest.mark.anyio
async def test_a_change_that_every_replica_makes_is_announced_once_by_each(redis: RedisServer) -> None:
    name = f"changing-{uuid4().hex}"
    # With connections of their own, like two processes.
    first, second = Replica(name, redis.url), Replica(name, f"{redis.url}?client_name=second")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with first.running(), second.running():
            while await first.shared.replica.publish({"kind": "changed", "fingerprint": ""}) < 2:
                await anyio.lowlevel.checkpoint()
            await second.until_told(1)  # it is notified of changes only
            second.told = 0
            first.tools.add(more)
            await first.until_told(1)
            await second.until_told(1)
            second.tools.add(more)  # like every replica
            second.tools.add(last)
            await second.until_told(2)
            await first.until_told(2)
            assert (first.told, second.told) == (2, 2)


def test_a_session_hears_of_a_change_where_its_stream_is_open(redis: RedisServer, serving: Callable[..., str]) -> None:
    name = f"heard-{uuid4().hex}"
    changing, other = ToolBox([one]), ToolBox([one])
    opened_at, streamed_from = (
        f"{serving(http_app(Server(tools, name=name), redis_url=redis.url))}/mcp" for tools in (changing, other)
    )
    talk, heard = Talk(opened_at), Event()

    def change() -> None:
        while not heard.wait(PACE_SECONDS):  # until the stream is open, no subscriber is notified
            changing.replace(renamed(each, f"one_{uuid4().hex}") for each in tuple(changing))

    with httpx.stream("GET", streamed_from, headers=talk.headers, timeout=DEADLINE_SECONDS) as stream:
        assert stream.status_code == 200
        changes = Thread(target=change)
        changes.start()
        try:
            told = next(events(stream))
        finally:
            heard.set()
            changes.join()
    assert told.message is not None
    assert told.message["method"] == "notifications/tools/list_changed"
