"""Requests that end, meet or ask while the store writes."""

from __future__ import annotations

import asyncio
import shutil
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import InvocationContext, tool
from bridge.protocol.messages import ProtocolError
from bridge.server import Server, SqliteTaskStore, http_app
from bridge.server.auth.access import EVERYTHING
from bridge.server.tasks.options import TaskOptions
from bridge.server.tasks.store import MemoryTaskStore, TaskStoreError
from bridge.tools.questions import Elicitation
from bridge.tools.task import TaskPolicy
from tests.server import http_server
from tests.server.tasks.client import SUPPORTS_TASKS, TaskClient

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.server.tasks.store import TaskRecord

pytestmark = pytest.mark.anyio

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
SERVERS = pytest.mark.parametrize("http", ["direct", "h11"], ids=["before ASGI", "the app"])


def named(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


class SlowStore(MemoryTaskStore):
    """A store that writes when the test lets it."""

    is_durable = True

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.began, self.gate = asyncio.Event(), asyncio.Event()
        self.error = error

    async def save(self, record: TaskRecord) -> None:
        self.began.set()
        await self.gate.wait()
        await asyncio.sleep(0)
        error, self.error = self.error, None
        if error is not None:
            raise error
        await super().save(record)


def call(server: Server) -> asyncio.Task[Any]:
    (called,) = server.tools
    assert server.tasks is not None
    context = InvocationContext(client_capabilities=SUPPORTS_TASKS)
    return asyncio.get_running_loop().create_task(server.tasks.call(called, {}, context, EVERYTHING))


async def wait_for_room(server: Server) -> None:
    """Call until there is a place."""
    while True:
        try:
            await call(server)
        except ProtocolError:
            await asyncio.sleep(0)
        else:
            return


@pytest.mark.parametrize("policy", [True, TaskPolicy(required=True, starts_at_once=False)])
async def test_a_call_that_is_cancelled_while_its_task_is_stored_ends_and_leaves_no_place_taken(
    policy: bool | TaskPolicy,
) -> None:
    store = SlowStore()

    @tool(task=policy)
    async def wait(context: InvocationContext) -> None:
        """Waits for its end."""
        await context.start_task()
        await asyncio.Event().wait()

    server = Server(wait, name="tests", tasks=TaskOptions(store=store, max_tasks=1))
    with anyio.fail_after(20):
        cancelled = call(server)
        await store.began.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        store.gate.set()
        await wait_for_room(server)


async def test_a_store_that_fails_unexpectedly_leaves_no_place_taken() -> None:
    store = SlowStore(OSError("unexpected"))
    store.gate.set()

    @tool(task=True)
    async def run() -> None:
        """Runs."""

    server = Server(run, name="tests", tasks=TaskOptions(store=store, max_tasks=1))
    with anyio.fail_after(20):
        with pytest.raises(OSError, match="unexpected"):
            await call(server)
        await call(server)


async def test_a_call_that_is_cancelled_before_its_task_cannot_be_stored_ends() -> None:
    store, ended = SlowStore(TaskStoreError("the disk is full")), asyncio.Event()

    @tool(task=TaskPolicy(starts_at_once=False))
    async def wait(context: InvocationContext) -> None:
        """Waits for its end."""
        try:
            await context.start_task()
            await asyncio.Event().wait()
        finally:
            ended.set()

    server = Server(wait, name="tests", tasks=TaskOptions(store=store))
    with anyio.fail_after(20):
        cancelled = call(server)
        await store.began.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        store.gate.set()
        await ended.wait()


async def test_answers_that_arrive_together_are_all_stored() -> None:
    store, asked = SlowStore(), asyncio.Event()
    store.gate.set()

    @tool(task=True, annotations={"idempotentHint": True})
    async def greet(context: InvocationContext) -> None:
        """Asks twice, and waits for its end."""
        await context.ask({"a": Elicitation("First name?", FORM), "b": Elicitation("Last name?", FORM)})
        await asyncio.Event().wait()

    server = Server(greet, name="tests", tasks=TaskOptions(store=store))
    tasks = server.tasks
    assert tasks is not None
    with anyio.fail_after(20):
        task_id = (await call(server))["taskId"]
        tasks.listeners.add([task_id], lambda _: asked.set())
        if (await tasks.get(task_id, None)).status != "input_required":
            await asked.wait()
        answers = {"a": named("Ada"), "b": named("Lovelace")}
        await asyncio.gather(*(tasks.update(task_id, None, {key: each}) for key, each in answers.items()))
        stored = await store.find(task_id)
        assert stored is not None
        assert stored.answers == answers
        await tasks.close()


@SERVERS
def test_a_question_while_the_task_is_stored_is_asked_by_the_task(http: Any) -> None:
    store = SlowStore()

    @tool
    async def greet(context: InvocationContext) -> str:
        """Asks when the store begins to write."""
        await store.began.wait()
        asyncio.get_running_loop().call_soon(store.gate.set)
        answer = await context.elicit("Your name?", FORM, key="name")
        return f"Hello, {(answer.content or {}).get('name')}"

    server = Server(greet, name="tests", tasks=TaskOptions(store=store, after_seconds=0.01))
    app = http_app(server)
    with http_server.serving(app, http=http) as origin, TaskClient(origin) as client:
        task_id = client.created("greet")
        assert client.state(task_id, "input_required")["inputRequests"].keys() == {"name"}
        client.update(task_id, name=named("Ada"))
        assert client.settled(task_id)["result"]["content"] == [{"type": "text", "text": "Hello, Ada"}]


def test_a_cancelled_task_does_not_run_again_after_its_process_was_killed(tmp_path: Path) -> None:
    began, gate, runs = threading.Event(), threading.Event(), list[int]()

    @tool(task=True, annotations={"idempotentHint": True})
    async def wait() -> None:
        """Waits for its end, and cleans up at length."""
        runs.append(1)
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(gate.wait, 20)

    def app(path: Path) -> Any:
        server = Server(wait, name="tests", tasks=TaskOptions(store=SqliteTaskStore(path)))
        return http_app(server)

    path, copy = tmp_path / "tasks.db", tmp_path / "copy.db"
    with http_server.serving(app(path), http="direct") as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        assert began.wait(20)
        assert client.cancel(task_id)["resultType"] == "complete"
        for suffix in ("", "-wal"):  # what a process that is killed now leaves
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
        gate.set()
    with http_server.serving(app(copy), http="direct") as origin, TaskClient(origin) as client:
        assert client.get(task_id)["status"] == "cancelled"
    assert runs == [1]
