"""Tasks of several replicas: one runs them, and any answers for them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import pytest

from bridge import InvocationContext, TaskPolicy, tool
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.tasks.options import TaskOptions
from bridge.server.tasks.shared import runner, shared_tasks
from bridge.server.tasks.shared.redis_store import RedisTaskStore
from tests.server import http_server
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis_server import RedisServer

KEY = "a-key-of-tests-that-is-long-enough"
OTHER_KEY = "b-key-of-tests-that-is-long-enough"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
WAIT_SECONDS = 30


def named(name: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


@tool(task=True)
async def ask_optional(context: InvocationContext) -> str:
    """Ask, and tell the action."""
    return (await context.elicit("first?", FORM, key="first")).action


class Tools:
    """The tools of one replica, which tell where they ran.

    Args:
        replica: Its name.
    """

    def __init__(self, replica: str) -> None:
        self.replica = replica
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.cleaned_up = threading.Event()

    def functions(self) -> list[Callable[..., Any]]:
        @tool(task=True)
        async def where() -> str:
            """Tells where it runs."""
            return self.replica

        @tool(task=True)
        async def wait(context: InvocationContext) -> str:
            """Waits for the test."""
            await context.progress(1, 2, "half")
            self.begun.set()
            try:
                await anyio.to_thread.run_sync(self.gate.wait, WAIT_SECONDS, abandon_on_cancel=True)
            finally:
                self.cleaned_up.set()
            return self.replica

        @tool(task=True, annotations={"idempotentHint": True})
        async def wait_again() -> str:
            """Waits for the test, and may run again."""
            self.begun.set()
            await anyio.to_thread.run_sync(self.gate.wait, WAIT_SECONDS, abandon_on_cancel=True)
            return self.replica

        @tool(task=True)
        async def ask(context: InvocationContext) -> str:
            """Asks two questions at once."""
            questions = [context.elicit(f"{key}?", FORM, key=key) for key in ("first", "last")]
            answers: dict[int, Any] = {}

            async def wait_for(index: int) -> None:
                answers[index] = await questions[index]

            async with anyio.create_task_group() as asking:
                for index in range(2):
                    asking.start_soon(wait_for, index)
            return " ".join((answers[index].content or {})["name"] for index in range(2))

        @tool(task=True)
        def caller(context: InvocationContext) -> dict[str, Any]:
            """Tells who called it."""
            assert context.caller is not None
            names = ("x-tenant", "authorization", "x-api-key")
            return {
                "name": context.caller.name,
                "scopes": sorted(context.caller.scopes),
                "memory": context.memory_id,
                "headers": {name: context.headers[name] for name in names if name in context.headers},
                "tasks": "extensions" in context.client_capabilities,
            }

        @tool(task=TaskPolicy(starts_at_once=False))
        async def start(context: InvocationContext) -> str:
            """Begins in the request."""
            await context.start_task()
            self.begun.set()
            await anyio.to_thread.run_sync(self.gate.wait, WAIT_SECONDS, abandon_on_cancel=True)
            return self.replica

        @tool(task=True, annotations={"idempotentHint": True})
        async def ask_twice(context: InvocationContext) -> str:
            """Asks one question after another, and may run again."""
            names = [await context.elicit(f"{key}?", FORM, key=key) for key in ("first", "last")]
            return " ".join((each.content or {})["name"] for each in names)

        return [where, wait, wait_again, ask, ask_optional, ask_twice, caller, start]


class Cluster:
    """Replicas of one server."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack
        self.name = f"tests-{uuid4().hex}"

    def replica(self, name: str, stack: ExitStack | None = None, **options: Any) -> tuple[Tools, TaskClient]:
        """Start a replica; its tools, and a client of it."""
        tools, auth = Tools(name), options.pop("auth", None)
        tasks = TaskOptions(store=RedisTaskStore(self.url), **options)
        server = Server(tools.functions(), name=self.name, tasks=tasks)
        app = http_app(server, auth=auth)
        stack = stack or self._stack
        stack.callback(tools.gate.set)
        origin = stack.enter_context(http_server.serving(app))
        return tools, stack.enter_context(TaskClient(origin, None if auth is None else KEY))


@pytest.fixture
def cluster(redis: RedisServer) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(redis.url, stack)


def test_a_task_that_its_replica_leaves_to_others_runs_at_another(cluster: Cluster) -> None:
    _, client = cluster.replica("web", max_running=0)
    task_id = client.created("where")
    assert client.get(task_id)["status"] == "working"
    _, other = cluster.replica("worker")
    for each in (client, other):
        assert each.settled(task_id)["result"]["content"] == [{"type": "text", "text": "worker"}]


def test_any_replica_notifies_of_progress_and_cancels(cluster: Cluster) -> None:
    tools, client = cluster.replica("one")
    _, other = cluster.replica("other", max_running=0)
    task_id = client.created("wait")
    states = other.states(task_id)
    assert next(states)["notifications"] == {"taskIds": [task_id]}
    while other.get(task_id).get("statusMessage") != "half":
        next(states)
    assert tools.begun.is_set()
    for _ in range(2):
        assert other.cancel(task_id)["resultType"] == "complete"
    while (state := next(states))["status"] != "cancelled":
        pass
    assert state["taskId"] == task_id
    assert tools.cleaned_up.is_set()
    assert client.get(task_id)["status"] == "cancelled"


def test_a_task_that_waits_is_cancelled_at_once_and_never_runs(cluster: Cluster) -> None:
    _, client = cluster.replica("web", max_running=0)
    task_id = client.created("wait")
    client.cancel(task_id)
    assert client.get(task_id)["status"] == "cancelled"
    tools, other = cluster.replica("worker")
    other.settled(other.created("where"))
    assert not tools.begun.is_set()


def test_answers_may_reach_any_replica_one_after_another(cluster: Cluster) -> None:
    _, client = cluster.replica("one")
    _, other = cluster.replica("other", max_running=0)
    task_id = client.created("ask")
    while other.state(task_id, "input_required")["inputRequests"].keys() != {"first", "last"}:
        pass
    assert other.update(task_id, first={"action": "what"})["code"] == -32602
    other.update(task_id, last=named("Lovelace"), unknown=named("?"))
    assert client.get(task_id)["inputRequests"].keys() == {"first"}
    client.update(task_id, first=named("Ada"), last=named("Eve"))
    assert other.settled(task_id)["result"]["content"] == [{"type": "text", "text": "Ada Lovelace"}]


def test_an_answer_that_fits_at_no_replica_is_refused_once_and_then_a_decline(cluster: Cluster) -> None:
    _, client = cluster.replica("one")
    _, other = cluster.replica("other", max_running=0)
    task_id = client.created("ask_optional")
    other.state(task_id, "input_required")
    wrong = named(["Ada"])
    assert other.update(task_id, first={"action": "what"})["code"] == -32602  # no answer at all
    refused = other.update(task_id, first=wrong)
    assert (refused["code"], "name: expected text" in refused["message"]) == (-32602, True)
    assert client.get(task_id)["inputRequests"].keys() == {"first"}
    assert client.update(task_id, first=wrong)["resultType"] == "complete"
    assert other.settled(task_id)["result"]["content"] == [{"type": "text", "text": "decline"}]


def test_a_task_that_no_process_takes_says_so(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_tasks, "_UNSERVED_SECONDS", 0)  # within which a process would say that it takes it
    _, client = cluster.replica("web", max_running=0)
    task_id = client.created("where")
    assert client.get(task_id)["statusMessage"] == (
        "no process that takes tasks of 'where' is connected: the task waits for one, such as bridge worker"
    )
    tools, worker = cluster.replica("worker", max_running=1)
    client.settled(task_id)
    client.created("wait")
    assert tools.begun.wait(WAIT_SECONDS)
    waiting = client.created("where")  # for a place
    deadline = monotonic() + WAIT_SECONDS
    while "statusMessage" in worker.get(waiting):
        assert monotonic() < deadline


def test_the_caller_and_headers_without_credentials_travel(cluster: Cluster) -> None:
    auth = Auth(ApiKeys(ApiKey(name="a", key=KEY, scopes=frozenset({"read"})), ApiKey(name="b", key=OTHER_KEY)))
    _, client = cluster.replica("web", max_running=0, auth=auth)
    _, other = cluster.replica("worker", auth=auth)
    created = client.send(
        "tools/call",
        {"name": "caller", "arguments": {}},
        **{"x-tenant": "t", "x-api-key": "secret", "mcp-name": "caller"},
    )
    found = other.settled(created["taskId"])["result"]["structuredContent"]
    assert found == {"name": "a", "scopes": ["read"], "memory": "a", "headers": {"x-tenant": "t"}, "tasks": True}


def test_the_maximum_holds_for_all_replicas_together(cluster: Cluster) -> None:
    tools, client = cluster.replica("one", max_tasks=2)
    _, other = cluster.replica("other", max_tasks=2, max_running=0)
    first = client.created("wait")
    for each in (client, other):  # a single caller gets half of the places
        refused = each.call("where")
        assert (refused["code"], refused["data"]) == (-32005, {"limit": "--max-tasks", "retryAfterSeconds": 10})
    tools.gate.set()
    client.settled(first)
    other.created("where")


def test_stored_bytes_are_counted_for_all_replicas_together(cluster: Cluster) -> None:
    _, client = cluster.replica("one", max_bytes=3000)
    _, other = cluster.replica("other", max_bytes=3000)
    client.settled(client.created("where"))
    for each in (client, other):
        refused = each.call("where")
        assert (refused["code"], refused["data"]["limit"]) == (-32005, "--max-task-bytes")


def test_a_replica_that_ends_hands_idempotent_work_to_another_and_fails_the_rest(cluster: Cluster) -> None:
    with ExitStack() as ending:
        tools, client = cluster.replica("one", ending)
        again = client.created("wait_again")
        assert tools.begun.wait(WAIT_SECONDS)
        tools.begun.clear()
        once = client.created("wait")
        assert tools.begun.wait(WAIT_SECONDS)
    assert tools.cleaned_up.is_set()
    other_tools, other = cluster.replica("other")
    other_tools.gate.set()
    assert other.settled(again)["result"]["content"] == [{"type": "text", "text": "other"}]
    failed = other.settled(once)
    assert failed["error"] == {
        "code": -32603,
        "message": "the server ended while 'wait' ran, and its outcome is unknown",
    }


def test_answers_to_a_replica_that_ends_are_not_asked_for_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_RESYNC_SECONDS", 3600)  # which would find them some time
    with ExitStack() as ending:
        _, client = cluster.replica("one", ending)
        task_id = client.created("ask_twice")
        client.state(task_id, "input_required")
        client.update(task_id, first=named("Ada"))
        while client.state(task_id, "input_required")["inputRequests"].keys() != {"last"}:
            pass
    _, other = cluster.replica("other")
    deadline = monotonic() + WAIT_SECONDS
    while other.get(task_id).get("inputRequests", {}).keys() != {"last"}:
        assert monotonic() < deadline
    other.update(task_id, last=named("Lovelace"))
    assert other.settled(task_id)["result"]["content"] == [{"type": "text", "text": "Ada Lovelace"}]


def test_a_call_that_becomes_a_task_runs_on_where_it_began(cluster: Cluster) -> None:
    tools, client = cluster.replica("web", max_running=0)
    _, other = cluster.replica("worker")
    task_id = client.created("start")
    assert other.get(task_id)["status"] == "working"
    tools.gate.set()
    assert other.settled(task_id)["result"]["content"] == [{"type": "text", "text": "web"}]


def test_a_task_of_a_tool_that_a_replica_does_not_have_waits_for_one_that_has(cluster: Cluster) -> None:
    @tool(task=True)
    def new() -> str:
        """A tool of the next version."""
        return "new"

    _, old = cluster.replica("old")

    def served(stack: ExitStack, **options: Any) -> TaskClient:
        tasks = TaskOptions(store=RedisTaskStore(cluster.url), **options)
        server = Server(new, name=cluster.name, tasks=tasks)
        return stack.enter_context(TaskClient(stack.enter_context(http_server.serving(http_app(server)))))

    with ExitStack() as stack:
        task_id = served(stack, max_running=0).created("new")
        assert old.get(task_id)["status"] == "working"
        served(stack)
        assert old.settled(task_id)["result"]["content"] == [{"type": "text", "text": "new"}]
