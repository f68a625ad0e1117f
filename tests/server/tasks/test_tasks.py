"""Tasks over HTTP, before ASGI and by the app, in the process and on Redis."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from datetime import datetime
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge import TaskPolicy, tool
from bridge.client import CallOptions, Connection, MemoryTransport, ServerConfig
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.limits import Limits
from tests.server import http_server
from tests.server.tasks import served_tools
from tests.server.tasks.client import TaskClient
from tests.server.tasks.served_tools import FORM, Gate, publisher_of, served

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "a-key-of-tests-that-is-long-enough"
OTHER_KEY = "b-key-of-tests-that-is-long-enough"
SERVERS = pytest.mark.parametrize("http", ["direct", "h11"], ids=["before ASGI", "the app"])


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


@pytest.fixture(autouse=True, params=["in the process", "on Redis"])
def place(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the tasks of `served` in this process, or on Redis."""
    if request.param == "in the process":
        yield
        return
    served_tools.redis_urls.append(request.getfixturevalue("redis").url)
    yield
    served_tools.redis_urls.clear()


@SERVERS
def test_a_call_becomes_a_task_that_is_found_at_once_and_has_the_result(http: str) -> None:
    with served(http=http) as origin, TaskClient(origin) as client:
        created = client.call("add", a=1, b=2)
        found = client.settled(created["taskId"])
    assert created.pop("_meta").keys() == {"io.modelcontextprotocol/serverInfo"}
    times = [created.pop(name) for name in ("createdAt", "lastUpdatedAt")]
    assert all(datetime.fromisoformat(each).tzinfo is not None for each in times)
    assert len(created.pop("taskId")) == 32
    assert created == {"resultType": "task", "status": "working", "ttlMs": 3_600_000, "pollIntervalMs": 1000}
    assert (found["resultType"], found["status"]) == ("complete", "completed")
    assert found["result"]["content"] == [text("3")]
    assert found["result"]["structuredContent"] == {"result": 3}


@SERVERS
def test_a_task_is_run_by_the_version_that_its_call_names(http: str) -> None:
    made = [tool(name="greet", version=version, task=True)(lambda version=version: version) for version in ("1", "2")]
    with http_server.serving(http_app(publisher_of(made)), http=http) as origin, TaskClient(origin) as client:
        for meta, said in (({}, "2"), ({"io.github.mcp-toolbridge/version": "1"}, "1")):
            created = client.send("tools/call", {"name": "greet", "arguments": {}, "_meta": meta})
            assert client.settled(created["taskId"])["result"]["content"] == [text(said)]


@SERVERS
def test_a_client_that_declares_nothing_gets_the_result_directly(http: str) -> None:
    with served(http=http) as origin, TaskClient(origin, capabilities={}) as client:
        assert client.call("add", a=1, b=2)["structuredContent"] == {"result": 3}
        error = client.call("fail")
        assert (error["code"], error["data"]) == (
            -32021,
            {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}},
        )
        assert client.get("x")["code"] == client.cancel("x")["code"] == client.update("x")["code"] == -32021


@pytest.mark.parametrize("capabilities", [5, "x", [[]], {"extensions": 4}])
def test_capabilities_that_are_malformed_are_refused(capabilities: Any, caplog: pytest.LogCaptureFixture) -> None:
    with served() as origin, TaskClient(origin, capabilities=capabilities) as client:
        assert client.get("x")["code"] == client.cancel("x")["code"] == -32602
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@SERVERS
def test_a_client_of_the_handshake_era_gets_the_result_directly(http: str) -> None:
    with served(http=http) as origin, httpx.Client() as client:
        url = f"{origin}/mcp"
        headers = http_server.open_session(client, url, {"extensions": {"io.modelcontextprotocol/tasks": {}}})
        added = http_server.answer(client.post(url, json=http_server.call("add", {"a": 1, "b": 2}), headers=headers))
        failed = http_server.answer(client.post(url, json=http_server.call("fail"), headers=headers))
        got = http_server.answer(
            client.post(url, json=http_server.request("tasks/get", {"taskId": "x"}), headers=headers)
        )
    assert added["result"]["structuredContent"] == {"result": 3}
    assert failed["error"]["code"] == -32021
    assert got["error"]["code"] == -32601


@pytest.mark.parametrize(("backend", "kind"), [("asyncio", "task"), ("trio", "complete")])
def test_a_server_on_trio_answers_calls_directly(backend: str, kind: str) -> None:
    @tool(task="required")
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    async def called() -> dict[str, Any]:
        transport = MemoryTransport(Server(add, name="adding"))
        with anyio.fail_after(20):
            async with Connection(ServerConfig(name="adding", transport=transport)) as connection:
                return await connection.call_tool("add", {"a": 1, "b": 2}, options=CallOptions(hands_on_tasks=True))

    result = anyio.run(called, backend=backend)
    assert result["resultType"] == kind
    assert (kind == "complete") is (result.get("structuredContent") == {"result": 3})


def test_a_server_whose_tools_make_no_tasks_has_no_extension() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    with http_server.serving(http_app(add)) as origin, TaskClient(origin) as client:
        assert "extensions" not in client.send("server/discover", {})["capabilities"]
        assert client.get("x") == {"code": -32601, "message": "Method not found", "data": "tasks/get"}


@SERVERS
def test_the_extension_is_declared_if_a_tool_makes_tasks(http: str) -> None:
    with served(http=http) as origin, TaskClient(origin) as client:
        capabilities = client.send("server/discover", {})["capabilities"]
    assert capabilities["extensions"] == {"io.modelcontextprotocol/tasks": {}}


def test_a_tool_sets_the_times_of_its_tasks() -> None:
    with served() as origin, TaskClient(origin) as client:
        created = client.call("declared")
    assert (created["ttlMs"], created["pollIntervalMs"]) == (7_200_000, 250)


def test_progress_is_the_status_message() -> None:
    gate = Gate()
    with served(gate) as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        states = client.states(task_id)
        assert next(states)["notifications"] == {"taskIds": [task_id]}
        while (state := client.get(task_id)).get("statusMessage") is None:
            next(states)
        assert (state["status"], state["statusMessage"]) == ("working", "half")
        gate.open()
        while (last := next(states))["status"] == "working":
            pass
    assert (last["taskId"], last["result"]["content"]) == (task_id, [text("done")])


def test_an_error_of_the_tool_is_a_result_and_one_of_the_server_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with served() as origin, TaskClient(origin) as client:
        failed, crashed = (client.settled(client.created(name)) for name in ("fail", "crash"))
    assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
    assert failed["result"]["content"] == [text("it failed")]
    assert (crashed["status"], crashed["error"]["code"]) == ("failed", -32603)
    assert "secret" not in json.dumps(crashed)
    assert "result" not in crashed
    assert "a secret" in caplog.text


@SERVERS
def test_a_cancelled_task_is_cancelled_and_may_be_cancelled_again(http: str) -> None:
    with served(http=http) as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        for _ in range(2):
            answer = client.cancel(task_id)
            assert answer.pop("_meta")
            assert answer == {"resultType": "complete"}
        assert client.settled(task_id)["status"] == "cancelled"
        assert client.cancel(task_id)["resultType"] == "complete"


@SERVERS
def test_questions_of_a_task_are_answered_by_updates(http: str) -> None:
    def named(name: str) -> dict[str, Any]:
        return {"action": "accept", "content": {"name": name}}

    with served(http=http) as origin, TaskClient(origin) as client:
        task_id = client.created("greet")
        asked = client.state(task_id, "input_required")
        assert asked["inputRequests"] == {
            "first": {
                "method": "elicitation/create",
                "params": {"mode": "form", "message": "Your first name?", "requestedSchema": FORM},
            }
        }
        assert client.update(task_id, first={"action": "what"})["code"] == -32602
        assert client.update(task_id, nothing=named("?"))["resultType"] == "complete"
        assert client.get(task_id)["inputRequests"].keys() == {"first"}
        client.update(task_id, first=named("Ada"), last=named("too early"))
        while client.state(task_id, "input_required")["inputRequests"].keys() != {"last"}:
            pass
        client.update(task_id, first=named("Eve"), last=named("Lovelace"))
        assert client.settled(task_id)["result"]["content"] == [text("Ada Lovelace")]


@SERVERS
def test_an_answer_of_a_task_that_does_not_fit_is_refused_once_and_then_a_decline(http: str) -> None:
    wrong = {"action": "accept", "content": {"name": 5}}
    with served(http=http) as origin, TaskClient(origin) as client:
        task_id = client.created("greet")
        client.state(task_id, "input_required")
        refused = client.update(task_id, first=wrong)
        assert (refused["code"], "name: expected text, not 5" in refused["message"]) == (-32602, True)
        assert client.get(task_id)["inputRequests"].keys() == {"first"}
        client.update(task_id, first={"action": "accept", "content": {"name": "Ada"}})
        while client.state(task_id, "input_required")["inputRequests"].keys() != {"last"}:
            pass
        assert client.update(task_id, last=wrong)["code"] == -32602
        assert client.update(task_id, last=wrong)["resultType"] == "complete"
        assert client.settled(task_id)["result"]["content"] == [text("Ada None")]


def test_a_question_that_the_client_cannot_answer_fails_the_task() -> None:
    capabilities: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    with served() as origin, TaskClient(origin, capabilities=capabilities) as client:
        failed = client.settled(client.created("greet"))
    assert (failed["status"], failed["error"]["code"]) == ("failed", -32021)
    assert failed["error"]["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@SERVERS
@pytest.mark.parametrize(("name", "said"), [("ask_first", "Hello, Ada"), ("ask_again", "Ada Ada")])
def test_questions_before_a_task_are_asked_in_rounds_and_not_again_after_it(http: str, name: str, said: str) -> None:
    with served(http=http) as origin, TaskClient(origin) as client:
        asked = client.call(name)
        assert asked["resultType"] == "input_required"
        created = client.send(
            "tools/call",
            {
                "name": name,
                "arguments": {},
                "requestState": asked["requestState"],
                "inputResponses": {"name": {"action": "accept", "content": {"name": "Ada"}}},
            },
        )
        assert created["resultType"] == "task"
        found = client.settled(created["taskId"])
    assert found["result"]["content"] == [text(said)]


@SERVERS
def test_a_call_that_takes_longer_than_a_time_becomes_a_task(http: str) -> None:
    gate = Gate()
    with served(gate, http=http, after_seconds=0.01) as origin:
        with TaskClient(origin) as client:
            task_id = client.created("plain")
            gate.open()
            assert client.settled(task_id)["result"]["content"] == [text("plain")]
        with TaskClient(origin, capabilities={}) as client:
            assert client.call("plain")["content"] == [text("plain")]


def test_an_unknown_id_and_that_of_another_caller_get_the_same_error() -> None:
    auth = Auth(ApiKeys(ApiKey(name="a", key=KEY), ApiKey(name="b", key=OTHER_KEY)))
    with served(auth=auth) as origin, TaskClient(origin, KEY) as client, TaskClient(origin, OTHER_KEY) as other:
        task_id = client.created("wait")
        unknown = "x" * len(task_id)
        for send in (other.get, other.cancel, other.update):
            refused, missing = send(task_id), send(unknown)
            assert refused.pop("message") == missing.pop("message").replace(unknown, task_id)
            assert refused == missing == {"code": -32602}
        assert client.get(task_id)["status"] == "working"
        states = other.states(task_id)
        assert next(states)["notifications"] == {}


@SERVERS
def test_the_routing_header_has_to_be_the_id(http: str) -> None:
    with served(http=http) as origin, TaskClient(origin) as client:
        task_id = client.created("add", a=1, b=2)
        assert client.send("tasks/get", {"taskId": task_id}, **{"mcp-name": "other"})["code"] == -32020
        assert client.send("tasks/get", {"taskId": task_id})["taskId"] == task_id
        encoded = f"=?base64?{b64encode(task_id.encode()).decode()}?="
        assert client.send("tasks/get", {"taskId": task_id}, **{"mcp-name": encoded})["taskId"] == task_id


def test_a_subscription_needs_a_client_that_supports_tasks() -> None:
    with served() as origin, TaskClient(origin, capabilities={}) as client:
        refused = client.send("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
    assert refused["code"] == -32021


def test_a_task_over_the_maximum_is_refused_with_the_time_to_try_again() -> None:
    gate = Gate()
    auth = Auth(ApiKeys(ApiKey(name="a", key=KEY), ApiKey(name="b", key=OTHER_KEY)))
    with (
        served(gate, auth=auth, max_tasks=2) as origin,
        TaskClient(origin, KEY) as client,
        TaskClient(origin, OTHER_KEY) as other,
    ):
        task_id = client.created("wait")
        refused = client.call("wait")
        assert (refused["code"], refused["data"]) == (-32005, {"limit": "--max-tasks", "retryAfterSeconds": 10})
        other.settled(other.created("add", a=1, b=2))
        gate.open()
        client.settled(task_id)
        client.created("wait")


@SERVERS
def test_a_task_of_a_function_without_a_context_belongs_to_its_caller(http: str) -> None:
    auth = Auth(ApiKeys(ApiKey(name="a", key=KEY), ApiKey(name="b", key=OTHER_KEY)))
    with (
        served(auth=auth, http=http) as origin,
        TaskClient(origin, KEY) as client,
        TaskClient(origin, OTHER_KEY) as other,
    ):
        task_id = client.created("add", a=1, b=2)
        assert client.settled(task_id)["result"]["structuredContent"] == {"result": 3}
        assert other.get(task_id)["code"] == -32602


def test_a_result_without_room_fails_the_task_and_says_so() -> None:
    @tool(task=True)
    def large() -> str:
        """Returns more than may be stored."""
        return "x" * 4096

    server = publisher_of(large, max_bytes=4096)
    with http_server.serving(http_app(server)) as origin, TaskClient(origin) as client:
        failed = client.settled(client.created("large"))
    assert (failed["status"], failed["error"]["code"]) == ("failed", -32005)


def test_an_expired_task_is_cancelled_and_unknown() -> None:
    ended = threading.Event()

    @tool(task=TaskPolicy(ttl_seconds=0.05))
    async def wait() -> None:
        """Waits for its end."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    server = publisher_of(wait)
    with http_server.serving(http_app(server)) as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        assert ended.wait(20)
        assert client.get(task_id)["code"] == -32602


def test_requests_for_tasks_are_admitted_while_tasks_take_all_places_of_their_caller() -> None:
    gate = Gate()
    with served(gate, limits=Limits(concurrency=1)) as origin, TaskClient(origin) as client:
        task_id = client.created("wait")
        assert client.get(task_id)["status"] == "working"
        refused = client.settled(client.created("add", a=1, b=2))
        assert refused["result"]["isError"]
        gate.open()
        assert client.settled(task_id)["status"] == "completed"


def test_a_server_that_ends_fails_its_tasks_and_their_functions_clean_up() -> None:
    cleaned_up = threading.Event()

    @tool(task=True)
    async def wait() -> None:
        """Waits for its end."""
        try:
            await anyio.sleep_forever()
        finally:
            cleaned_up.set()

    server = publisher_of(wait)
    with http_server.serving(http_app(server)) as origin, TaskClient(origin) as client:
        client.created("wait")
    assert cleaned_up.is_set()
