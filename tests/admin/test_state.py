"""The states of several workers as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge import Server, ToolBox, http_app, tool
from bridge.admin.actions import AdminActions
from bridge.admin.state import merged
from bridge.server.features import Features
from bridge.server.http.probes import HealthState
from bridge.telemetry.activity import MAX_RECORDS, MAX_REFUSALS, Activity, latencies
from bridge.telemetry.conventions import TOOLS_CALL
from bridge.telemetry.instruments import Peer
from bridge.telemetry.observer import Observer

if TYPE_CHECKING:
    from bridge.server.caller_features import CallerView

TEAM = {"calls": 1, "errors": {"tool_error": 1}, "seconds": 0.5, "resultBytes": 10, "estimatedResultTokens": 3}


def state(pid: int, time: str, **other: Any) -> dict[str, Any]:
    return {
        "name": "tools",
        "pid": pid,
        "uptimeSeconds": 3,
        "state": "ready",
        "missing": [],
        "servers": [{"name": "files"}],
        "callCount": 2,
        "recent": [{"time": time}],
        "teams": {"data": TEAM},
        "keys": [{"name": "ada"}],
        "tools": [{"name": "add"}],
        **other,
    }


def test_the_state_of_workers_has_the_items_of_all_with_their_numbers() -> None:
    found = merged({"2": state(20, "12:00"), "1": state(10, "13:00", state="draining", missing=["it is draining"])})
    assert found["servers"] == [{"name": "files", "worker": "1"}, {"name": "files", "worker": "2"}]
    assert found["recent"] == [{"time": "13:00", "worker": "1"}, {"time": "12:00", "worker": "2"}]
    assert (found["keys"], found["tools"]) == ([{"name": "ada"}], [{"name": "add"}])
    assert (found["callCount"], found["state"], found["missing"]) == (4, "draining", ["it is draining"])
    assert found["teams"]["data"] == {
        "calls": 2,
        "errors": {"tool_error": 2},
        "seconds": 1.0,
        "resultBytes": 20,
        "estimatedResultTokens": 6,
    }
    assert [(each["worker"], each["pid"], each["callCount"]) for each in found["processes"]] == [
        ("1", 10, 2),
        ("2", 20, 2),
    ]


def test_records_and_refusals_are_bounded_and_records_have_no_arguments() -> None:
    activity = Activity()
    observer = Observer(activity=activity, shows_arguments=True)
    series = observer.series(TOOLS_CALL, "add", Peer("http", ""))
    for number in range(MAX_RECORDS + 50):
        details = observer.call_details("add", "files", None, "http", {"password": "hunter2"})
        operation = observer.serve(series, number, None, None, details)
        assert list(activity.calls) == [operation.id]
        operation.end()
    assert not activity.calls
    for number in range(MAX_REFUSALS + 50):
        observer.refused(401, b'{"error": {"message": "no %d"}}' % number)
    recent = activity.recent()
    assert (len(recent), recent[0]["client_request_id"]) == (MAX_RECORDS, MAX_RECORDS + 49)
    assert "arguments" not in recent[0]
    assert (len(activity.refusals()), activity.refusals()[0]["reason"]) == (MAX_REFUSALS, f"no {MAX_REFUSALS + 49}")


@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b"[" * 512, b"\xff", b'{"error": null}', b'{"error": ["x"]}'])
def test_a_refusal_of_any_form_has_a_reason(body: bytes) -> None:
    activity = Activity()
    activity.refused(400, body)
    (refusal,) = activity.refusals()
    assert isinstance(refusal["reason"], str)


def test_latencies_are_those_of_the_calls_of_each_server() -> None:
    records = [{"event": "call", "server": "files", "duration_ms": float(number)} for number in range(100)]
    others: list[dict[str, Any]] = [{"event": "admin"}, {"event": "call", "server": None, "duration_ms": 1.0}]
    assert latencies([*records, *others]) == {"files": {"calls": 100, "p50Ms": 50.0, "p95Ms": 95.0}}


class OneCaller:
    """Tools that are listed for one caller alone."""

    may_be_more = True

    def of(self, *_: Any, **__: Any) -> CallerView | None:
        return None

    async def load(self, context: Any) -> CallerView:
        raise AssertionError(context)

    def on_change(self, _: Any) -> Any:
        return lambda: None


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_that_is_listed_for_a_caller_alone_is_not_disabled_and_the_reason_is_said() -> None:
    server = Server(Features(tools=ToolBox(add), caller_features=OneCaller()), name="tests")

    async def restart(_: str) -> bool:
        return False

    actions = AdminActions(
        app=http_app(server), server=server, activity=Activity(), operations=HealthState(), restart=restart, drain_pid=0
    )
    assert (await actions.act("disable", "add")).is_done
    outcome = await actions.act("disable", "mine")
    assert not outcome.is_done
    assert str(outcome.problem).startswith("no tool 'mine' is listed for all callers: tools that are listed for single")
