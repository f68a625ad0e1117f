from __future__ import annotations

import anyio
import pytest

from bridge.client import Connection, ServerConfig
from tests.client.conftest import DEADLINE_SECONDS
from tests.client.scripted import listed, scripted_config
from tests.client.upstreams import upstream_of

pytestmark = pytest.mark.anyio


class StillClosing(Connection):
    """A connection that is opened again while it is being closed, which takes time."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        self.is_opening = anyio.Event()

    async def open(self, *, wait: bool = True) -> None:
        if not self.is_opening.is_set():
            self.is_opening.set()
            await anyio.sleep_forever()
        await super().open(wait=wait)


async def test_a_server_whose_opening_was_cancelled_halfway_can_be_closed_and_opened_again() -> None:
    connection = StillClosing(scripted_config([listed("add")]))
    upstream = upstream_of(connection)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upstream.start)
        await connection.is_opening.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(DEADLINE_SECONDS):
        await upstream.settled()
        await upstream.refresh()
        await upstream.aclose()
        await upstream.start()
        await upstream.settled()
        assert [tool.name for tool in upstream.tools] == ["add"]
        await upstream.aclose()
