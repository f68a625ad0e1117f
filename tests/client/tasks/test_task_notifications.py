"""Calls that wait for tasks whose server announces changes, or does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest
from starlette.responses import Response

from bridge.client.connection import task_notifications
from tests.client.conftest import RemoteServer
from tests.client.endpoint import error_of, result_of
from tests.client.tasks.test_remote_tasks import (
    SERVED,
    Gate,
    Progress,
    config,
    gate,
    http_config,
    provided,
    tasks_server,
)
from tests.client.tasks.test_task_answers import COMPLETED, CREATED, TaskEndpoint, called

if TYPE_CHECKING:
    from pathlib import Path

    from anyio.abc import TaskGroup

    from bridge import ServerConfig
    from bridge.client import McpToolProvider
    from bridge.types import Json

__all__ = ["config", "gate", "tasks_server"]  # fixtures

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscribe to short tasks, too."""
    monkeypatch.setattr(task_notifications, "SETTLE_SECONDS", 0.0)


class Waiting:
    """A call of a task that is polled once a minute, and its result."""

    def __init__(self, provider: McpToolProvider, gate: Gate, calls: TaskGroup) -> None:
        self.progress = Progress()
        self.text = ""

        async def call() -> None:
            result = await provider.call("wait_rarely", port=gate.port, context=self.progress.context)
            self.text = result.text

        calls.start_soon(call)


async def test_calls_wait_for_notifications_and_not_for_the_next_poll(config: ServerConfig, gate: Gate) -> None:
    async with provided(config) as provider, anyio.create_task_group() as calls:
        first = Waiting(provider, gate, calls)
        await first.progress.came.wait()  # of a poll that a notification has caused
        second = Waiting(provider, gate, calls)  # which a second subscription is for
        await second.progress.came.wait()
        gate.open()
    assert (first.text, second.text) == ("here", "here")


async def test_a_call_subscribes_again_after_a_restart_of_the_server(gate: Gate, tmp_path: Path) -> None:
    server = RemoteServer(SERVED, "--task-store", str(tmp_path / "tasks.db"))
    await server.start()
    try:
        async with provided(http_config(server)) as provider, anyio.create_task_group() as calls:
            waiting = Waiting(provider, gate, calls)
            await waiting.progress.came.wait()
            server.kill()
            await server.start()
            gate.open()
    finally:
        server.kill()
    assert waiting.text == "here"


class Announcing(TaskEndpoint):
    """Complete a task some polls after so many requests for a subscription, each refused, or acknowledged and ended."""

    def __init__(self, subscriptions: int, *, is_acknowledged: bool) -> None:
        super().__init__(COMPLETED)
        self.subscriptions = 0
        self._until, self._polls = subscriptions, 3
        self._is_acknowledged = is_acknowledged
        self._answers["subscriptions/listen"] = self._listen

    async def _get(self, message: Json) -> Response:
        if self.subscriptions >= self._until:
            self._polls -= 1
        return await super()._get(message) if self._polls <= 0 else result_of(message, CREATED)

    async def _listen(self, message: Json) -> Response:
        is_of_tasks = "taskIds" in message["params"]["notifications"]
        self.subscriptions += is_of_tasks
        if not (is_of_tasks and self._is_acknowledged):
            return error_of(message["id"], -32601, "no such method", status=404)
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        begun = {"notifications": {"taskIds": [CREATED["taskId"]]}, **meta}
        frames = (
            {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": begun},
            {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **meta}},
        )
        text = "".join(f"event: message\ndata: {json.dumps(frame)}\n\n" for frame in frames)
        return Response(text, media_type="text/event-stream")


async def test_a_server_that_refuses_a_subscription_is_polled_and_not_asked_again() -> None:
    endpoint = Announcing(1, is_acknowledged=False)
    assert await called(endpoint) == "done"
    assert endpoint.subscriptions == 1


async def test_a_subscription_that_ends_is_renewed_and_the_task_polled_meanwhile() -> None:
    endpoint = Announcing(2, is_acknowledged=True)
    assert await called(endpoint) == "done"
