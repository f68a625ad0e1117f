"""Tasks of servers through a gateway, and tasks that a gateway makes of calls of other servers."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import Caller, InvocationContext, ServerConfig
from bridge.client import ClientHandlers, HttpTransport, McpToolProvider, ReconnectPolicy
from bridge.errors import OutcomeUnknownError
from bridge.gateway.tasks import GatewayTasks
from bridge.protocol.messages import ProtocolError
from bridge.tools.task import Task
from bridge.wire.extension import TASKS
from tests.client.conftest import RemoteServer
from tests.client.raw_http import MODERN, http, raw_server
from tests.client.reports import listening
from tests.client.tasks.test_remote_tasks import SERVED, Gate, Progress, by_name, gate
from tests.gateway.conftest import write_config
from tests.redis_server import redis_server
from tests.server.tasks.client import SUPPORTS_TASKS, TaskClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from bridge.tools import ElicitationAnswer
    from bridge.types import Json
    from tests.client.raw_http import Request
    from tests.client.reports import Reports

__all__ = ["gate"]  # a fixture

pytestmark = pytest.mark.anyio
LIMITED = pytest.mark.usefixtures("limited")

STATE_KEY = "a key that two gateways share with enough bytes"
SOON = ReconnectPolicy(first_delay_seconds=0.01, max_delay_seconds=0.05)
DEADLINE_SECONDS = 60


@pytest.fixture
async def limited() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(DEADLINE_SECONDS):
        yield


@pytest.fixture
async def reports() -> AsyncIterator[Reports]:
    """Reports of the servers."""
    async with listening() as reports:
        yield reports


@contextmanager
def started(target: str, *options: str) -> Iterator[RemoteServer]:
    server = RemoteServer(target, *options)
    anyio.run(server.start)
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def running(target: str, *options: str) -> AsyncIterator[RemoteServer]:
    """A server that may be killed and started again."""
    server = RemoteServer(target, *options)
    await server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[RemoteServer]:
    """A server with tasks."""
    with started(SERVED) as server:
        yield server


@pytest.fixture(scope="module")
def config(server: RemoteServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two servers with tasks."""
    folder: Path = tmp_path_factory.mktemp("config")
    entry = {"type": "http", "url": server.url}
    return write_config(folder / "mcp.json", one=entry, two=entry)


@pytest.fixture(scope="module")
def gateway(config: str) -> Iterator[RemoteServer]:
    """A gateway before both."""
    with started(config, "--state-keys", STATE_KEY) as gateway:
        yield gateway


def provider_of(gateway: RemoteServer, **options: Any) -> McpToolProvider:
    config = ServerConfig(name="gateway", transport=HttpTransport(gateway.url))
    return McpToolProvider([config], reconnect=SOON, **options)


def origin_of(gateway: RemoteServer) -> str:
    return f"http://127.0.0.1:{gateway.port}"


@LIMITED
async def test_a_call_returns_the_result_of_the_task_of_its_server(gateway: RemoteServer) -> None:
    async with provider_of(gateway) as provider:
        for name in ("one", "two"):
            assert (await provider.call(f"{name}_add", a=1, b=2)).structured_content == {"result": 3}
        assert (await provider.call("one_add_directly", a=1, b=2)).structured_content == {"result": 3}
        failed = await provider.call("two_fail")
        assert (failed.is_error, failed.text) == (True, "it failed")


@LIMITED
async def test_progress_questions_and_cancellation_pass(gateway: RemoteServer, reports: Reports) -> None:
    progress, handlers = Progress(), ClientHandlers(elicitation=by_name)
    async with provider_of(gateway, handlers=handlers) as provider:
        assert (await provider.call("two_greet")).text == "Ada Lovelace"
        async with anyio.create_task_group() as calls:

            async def call() -> None:
                await provider.call("one_hold", port=reports.port, context=progress.context)

            calls.start_soon(call)
            await progress.came.wait()
            calls.cancel_scope.cancel()
        await reports.wait_for("cancelled")
    assert progress.reports == [(1, None, "holding")]


@LIMITED
async def test_another_replica_answers_for_a_task_and_so_does_the_next_process(
    gateway: RemoteServer, config: str, gate: Gate
) -> None:
    async with provider_of(gateway) as provider:
        task = await provider.start("one_wait_for", port=gate.port)
    async with running(config, "--state-keys", STATE_KEY) as replica, provider_of(replica) as provider:
        again = provider.task(str(task))
        assert (await again.status()).status == "working"
        replica.kill()
        await replica.start()
        gate.open()
        assert (await again.result()).text == "here"


@LIMITED
async def test_a_call_goes_on_through_a_restart_of_the_gateway(config: str, gate: Gate) -> None:
    progress, results = Progress(), []
    async with (
        running(config, "--state-keys", STATE_KEY) as replica,
        provider_of(replica) as provider,
        anyio.create_task_group() as calls,
    ):

        async def call() -> None:
            results.append((await provider.call("two_wait_for", port=gate.port, context=progress.context)).text)

        calls.start_soon(call)
        await progress.came.wait()
        replica.kill()
        await replica.start()
        gate.open()
    assert results == ["here"]


@LIMITED
async def test_ids_of_other_gateways_and_invented_ones_are_unknown(gateway: RemoteServer, config: str) -> None:
    async with provider_of(gateway) as provider:
        task = await provider.start("one_add", a=1, b=2)
    async with running(config, "--state-keys", STATE_KEY[::-1]) as other, provider_of(other) as provider:
        for wrong in (task.id, "gateway.x", "gateway.", "x", "gateway.é"):
            with pytest.raises(OutcomeUnknownError, match="there is no task"):
                await provider.task(f"task:gateway/one_add/{wrong}").status()


def test_a_subscription_announces_the_states_of_tasks_of_servers(gateway: RemoteServer) -> None:
    with TaskClient(origin_of(gateway)) as client:
        task_id = client.created("one_greet")
        state = client.state(task_id, "input_required")
        assert list(state["inputRequests"]) == ["first"]
        states = client.states(task_id)
        assert next(states)["notifications"] == {"taskIds": [task_id]}
        client.update(task_id, first={"action": "accept", "content": {"name": "Ada"}})
        while "last" not in (state := next(states)).get("inputRequests", {}):
            assert state["taskId"] == task_id
        client.update(task_id, last={"action": "accept", "content": {"name": "Lovelace"}})
        while (state := next(states))["status"] != "completed":
            pass
        assert state["result"]["content"] == [{"type": "text", "text": "Ada Lovelace"}]
        states.close()  # type: ignore[attr-defined]  # a generator


def test_an_answer_that_does_not_fit_is_refused_once_by_the_gateway_and_then_a_decline(gateway: RemoteServer) -> None:
    wrong = {"action": "accept", "content": {"name": ["Ada"]}}
    with TaskClient(origin_of(gateway)) as client:
        task_id = client.created("one_greet")
        client.state(task_id, "input_required")
        assert client.update(task_id, first={"action": "what"})["code"] == -32602  # no answer at all
        refused = client.update(task_id, first=wrong)
        assert (refused["code"], "name: expected text" in refused["message"]) == (-32602, True)
        assert client.get(task_id)["inputRequests"].keys() == {"first"}
        assert client.update(task_id, first=wrong)["resultType"] == "complete"
        while client.state(task_id, "input_required")["inputRequests"].keys() != {"last"}:
            pass
        client.update(task_id, last={"action": "accept", "content": {"name": "Lovelace"}})
        assert client.settled(task_id)["result"]["content"] == [{"type": "text", "text": "None Lovelace"}]


def test_a_caller_that_does_not_support_tasks_gets_the_result(gateway: RemoteServer) -> None:
    with TaskClient(origin_of(gateway), capabilities={"elicitation": {"form": {}}}) as client:
        assert client.call("one_add", a=1, b=2)["structuredContent"] == {"result": 3}
        asked = client.call("two_greet")
        assert asked["resultType"] == "input_required"
        for name in ("Ada", "Lovelace"):
            answers = {key: {"action": "accept", "content": {"name": name}} for key in asked["inputRequests"]}
            more = {"inputResponses": answers, "requestState": asked["requestState"]}
            asked = client.send("tools/call", {"name": "two_greet", "arguments": {}, **more})
        assert asked["content"] == [{"type": "text", "text": "Ada Lovelace"}]


def test_a_server_does_not_ask_for_what_the_caller_has_not_declared(gateway: RemoteServer) -> None:
    roots: Json = {"requiredCapabilities": {"roots": {}}}
    with TaskClient(origin_of(gateway)) as client:
        failed = client.settled(client.created("one_find"))
        assert (failed["status"], failed["error"]["code"], failed["error"]["data"]) == ("failed", -32021, roots)
        refused = client.call("two_find_directly")
        assert (refused["code"], refused["data"]) == (-32021, roots)
    capabilities = SUPPORTS_TASKS | {"roots": {}}
    with TaskClient(origin_of(gateway), capabilities=capabilities) as client:
        client.state(client.created("one_find"), "input_required")
        assert list(client.call("two_find_directly")["inputRequests"].values()) == [{"method": "roots/list"}]


def test_a_tool_that_requires_tasks_refuses_a_caller_that_does_not_support_them(gateway: RemoteServer) -> None:
    with TaskClient(origin_of(gateway), capabilities={}) as client:
        refused = client.call("one_add_later", a=1, b=2)
    assert (refused["code"], refused["data"]) == (-32021, TASKS.required)


@LIMITED
async def test_a_caller_of_the_handshake_era_gets_the_result(gateway: RemoteServer) -> None:
    async def answer(question: Any, context: InvocationContext) -> ElicitationAnswer:
        return await by_name(question, context)

    transport = HttpTransport(gateway.url)
    config = ServerConfig(name="gateway", transport=transport, protocol="legacy")
    async with McpToolProvider([config], handlers=ClientHandlers(elicitation=answer)) as provider:
        for name in ("one_add", "one_add_later"):
            assert (await provider.call(name, a=1, b=2)).structured_content == {"result": 3}
        assert (await provider.call("two_greet")).text == "Ada Lovelace"
        assert "capability roots" in (await provider.call("two_find_directly")).text
        assert (await (await provider.start("one_add", a=1, b=2)).result()).text == "3"


@LIMITED
async def test_the_gateway_makes_tasks_of_calls_of_servers_without_tasks(
    tmp_path: Path, gate: Gate, reports: Reports
) -> None:
    async with running(SERVED, "--max-tasks", "0") as server:
        entry = {"type": "http", "url": server.url}
        target = write_config(tmp_path / "mcp.json", one=entry, two=entry)
        async with running(target, "--task-after", "0.05") as gateway, provider_of(gateway) as provider:
            assert (await provider.call("one_add", a=1, b=2)).structured_content == {"result": 3}
            task = await provider.start("two_wait_for", port=gate.port)
            assert task.id
            assert (await task.status()).status_message in {None, "waiting"}
            gate.open()
            assert (await task.result()).text == "here"
            task = await provider.start("one_hold", port=reports.port)
            await task.cancel()
            await reports.wait_for("cancelled")


@LIMITED
async def test_replicas_of_a_gateway_share_the_tasks_that_they_make_of_calls(
    tmp_path: Path, server: RemoteServer, gate: Gate, reports: Reports
) -> None:
    with redis_server(tmp_path) as redis:
        async with running(SERVED, "--max-tasks", "0") as direct:
            entry = {"type": "http", "url": direct.url}
            target = write_config(tmp_path / "mcp.json", one=entry, two={"type": "http", "url": server.url})
            options = ("--task-after", "0.05", "--redis-url", redis.url, "--state-keys", STATE_KEY)
            async with (
                running(target, *options) as gateway,
                running(target, *options) as replica,
                provider_of(gateway) as provider,
                provider_of(replica) as other,
            ):
                assert (await provider.call("one_add", a=1, b=2)).structured_content == {"result": 3}
                task = await provider.start("one_wait_for", port=gate.port)
                passed_on = await provider.start("two_wait_for", port=gate.port)
                assert not task.id.startswith("gateway.")
                assert passed_on.id.startswith("gateway.")
                again = [other.task(str(each)) for each in (task, passed_on)]
                assert [(await each.status()).status for each in again] == ["working", "working"]
                gate.open()
                assert [(await each.result()).text for each in again] == ["here", "here"]
                task = await provider.start("one_hold", port=reports.port)
                await other.task(str(task)).cancel()
                await reports.wait_for("cancelled")
                async with provider_of(replica, handlers=ClientHandlers(elicitation=by_name)) as asked:
                    assert (await asked.call("one_greet")).text == "Ada Lovelace"


@LIMITED
async def test_a_gateway_that_makes_tasks_passes_those_of_servers_on(config: str, gate: Gate) -> None:
    async with running(config, "--task-after", "5") as gateway, provider_of(gateway) as provider:
        task = await provider.start("one_wait_for", port=gate.port)
        assert task.id.startswith("gateway.")
        gate.open()
        assert (await task.result()).text == "here"


async def test_a_task_is_known_to_its_caller_alone() -> None:
    tasks = GatewayTasks(McpToolProvider())
    wire = {"resultType": "task", "taskId": "x", "status": "working"}
    ada, bob = (InvocationContext(caller=Caller(name)) for name in ("ada", "bob"))
    task_id = tasks.created(wire, "one", ada)["taskId"]
    with pytest.raises(ProtocolError, match="the server 'one' of the task is not configured any more"):
        await tasks.get(task_id, ada)
    for stranger in (bob, InvocationContext()):
        for request in (tasks.get(task_id, stranger), tasks.cancel(task_id, stranger)):
            with pytest.raises(ProtocolError, match="there is no task"):
                await request
    assert tasks.created(wire, "one", ada)["taskId"] != task_id


async def test_a_task_of_another_gateway_with_the_same_keys_is_refused() -> None:
    first, other = GatewayTasks(McpToolProvider()), GatewayTasks(McpToolProvider())
    for name, tasks in (("first", first), ("other", other)):
        tasks.bind(name, [STATE_KEY.encode()])
    ada, bob = (InvocationContext(caller=Caller(name)) for name in ("ada", "bob"))
    task_id = first.created({"resultType": "task", "taskId": "x", "status": "working"}, "one", ada)["taskId"]
    with pytest.raises(ProtocolError, match="is one of the gateway 'first', not of 'other'"):
        await other.get(task_id, ada)
    with pytest.raises(ProtocolError, match="there is no task"):
        await other.get(task_id, bob)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@LIMITED
async def test_an_error_about_a_task_stays_short_whatever_its_id_is() -> None:
    message = f"no task 'a', a-b or a; {'a ' * 500_000}"
    error = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32602, "message": message}}

    def answer(request: Request) -> list[bytes]:
        return [http(200, json.dumps(error | {"id": request.call_id}).encode(), Content_Type="application/json")]

    async with raw_server(MODERN, answer) as server, McpToolProvider([server.config()]) as provider:
        tasks, context = GatewayTasks(provider), InvocationContext()
        task_id = tasks.created({"resultType": "task", "taskId": "a", "status": "working"}, "raw", context)["taskId"]
        with pytest.raises(ProtocolError) as refused:
            await tasks.get(task_id, context)
    assert str(refused.value).startswith(f"no task '{task_id}', a-b or {task_id}; {task_id} a a")
    assert len(str(refused.value)) < 1100 + 3 * len(task_id)


@LIMITED
async def test_a_subscription_notifies_of_a_task_that_has_ended_before_it_was_first_looked_at() -> None:
    ended = Task(id="a", status="completed", created_at=0, updated_at=0, ttl_seconds=None, poll_interval_seconds=1)

    class Ended(GatewayTasks):
        """Tasks that have ended."""

        async def get(self, task_id: str, context: InvocationContext) -> Task:
            return ended

    notified = anyio.Event()
    async with McpToolProvider([]) as provider:
        end = Ended(provider).watch(["a"], InvocationContext(), lambda _: notified.set())
        await notified.wait()
        end()
