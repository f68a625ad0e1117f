"""Tasks in metrics, audit lines and traces, before ASGI and by the app."""

from __future__ import annotations

from typing import Any

import pytest

from bridge import InvocationContext, ToolError, tool
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.telemetry.current import enabled
from tests.server import http_server
from tests.server.tasks.client import TaskClient
from tests.server.test_observed import Watched

KEY = "a-key-of-tests-that-is-long-enough"
FORM: dict[str, Any] = {"type": "object", "properties": {}}


@tool(task=True)
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool(task=True)
async def fail() -> str:
    """Fails."""
    raise ToolError("it failed")


@tool(task=True)
async def ask(context: InvocationContext) -> str:
    """Asks."""
    await context.elicit("Sure?", FORM)
    return "sure"


@pytest.mark.parametrize("http", ["direct", "h11"], ids=["before ASGI", "the app"])
def test_tasks_are_recorded_with_their_calls(http: Any) -> None:
    watched = Watched()
    with enabled(watched.observer):
        server = Server([add, fail, ask], name="tests")
        app = http_app(server, auth=Auth(ApiKeys(ApiKey("ada", KEY, team="data"))))
        with http_server.serving(app, http=http) as origin, TaskClient(origin, KEY) as client:
            ids = [client.created("add", a=1, b=2), client.created("fail")]
            for each in ids:
                client.settled(each)
            waiting = client.created("ask")
            client.state(waiting, "input_required")
            open_tasks = list(watched.observer.tasks._running)
            assert [each.is_waiting for each in open_tasks] == [True]
            client.cancel(waiting)
            client.settled(waiting)
    assert list(watched.observer.tasks._running) == []
    told = [(each["event"], each["tool"], each["outcome"]) for each in watched.records]
    assert [each for each in told if each[0] == "task"] == [
        ("task", "add", "ok"),
        ("task", "fail", "tool_error"),
        ("task", "ask", "cancelled"),
    ]
    assert [each for each in told if each[0] == "call"] == [("call", name, "task") for name in ("add", "fail", "ask")]
    ends = [each for each in watched.records if each["event"] == "task"]
    assert [each["request_id"] for each in ends] == [each[:8] for each in (*ids, waiting)]
    assert {(each["caller"], each["team"]) for each in ends} == {("ada", "data")}
    calls = [each for each in watched.records if each["event"] == "call"]
    assert [each["trace_id"] for each in ends] == [each["trace_id"] for each in calls]
    counted = watched.counts("bridge.task.duration")
    assert {(labels["gen_ai.tool.name"], labels["bridge.task.status"], count) for labels, count in counted} == {
        ("add", "completed", 1),
        ("fail", "completed", 1),
        ("ask", "cancelled", 1),
    }
    spans = {span.name: span for span in watched.finished}
    for name in ("add", "fail", "ask"):
        work, call = spans[f"task {name}"], spans[f"tools/call {name}"]
        assert work.parent is not None
        assert call.context is not None
        assert work.parent.span_id == call.context.span_id
