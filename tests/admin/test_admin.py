"""The administration of a gateway over HTTP: its state, its actions, and who may use them."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import pytest

from bridge import InvocationContext, McpToolProvider, ServerConfig
from bridge.client import HttpTransport
from bridge.errors import ServerError
from bridge.tools.execution import execute
from bridge.tools.tool import ToolExecutionRequest
from tests.admin.board import ADA_KEY, OPERATOR_KEY, OTHER_OPERATOR_KEY, SECRET, board
from tests.processes import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.admin.board import Board

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def caller(gateway: Board, path: str = "/mcp") -> AsyncIterator[McpToolProvider]:
    """Ada, connected to the gateway."""
    transport = HttpTransport(url=gateway.origin + path, headers={"Authorization": f"Bearer {ADA_KEY}"})
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider([ServerConfig(name="gateway", transport=transport)]) as provider:
            yield provider


async def called(provider: McpToolProvider, tool: str, **arguments: Any) -> str:
    """Call a tool; return its text, or the message of the error."""
    try:
        result = await execute(provider.tools, ToolExecutionRequest(tool, arguments), InvocationContext())
    except ServerError as error:
        return str(error)
    return result.text


async def test_the_state_has_servers_calls_with_progress_limits_keys_and_recent_calls(gateway: Board) -> None:
    async with caller(gateway) as provider, anyio.create_task_group() as tasks:
        assert await called(provider, "tools_add", a=1, b=2) == "3"
        tasks.start_soon(lambda: called(provider, "tools_wait", text=SECRET))
        state = await anyio.to_thread.run_sync(
            gateway.state_when, lambda state: state["calls"] and state["calls"][0]["progress"]
        )
        servers = {each["name"]: each for each in state["servers"]}
        assert (servers["tools"]["state"], servers["gone"]["state"]) == ("ready", "failed")
        assert "command not found" in servers["gone"]["lastError"]
        assert servers["tools"]["memoryBytes"] > 1_000_000
        assert servers["tools"]["latency"]["calls"] == 1
        (call,) = state["calls"]
        assert call["ageSeconds"] >= 0
        assert {
            name: call[name] for name in ("name", "server", "caller", "team", "progress", "total", "mayCancel")
        } == {
            "name": "tools_wait",
            "server": "tools",
            "caller": "ada",
            "team": "data",
            "progress": 3.0,
            "total": 10.0,
            "mayCancel": True,
        }
        (added,) = (each for each in state["recent"] if each.get("tool") == "tools_add")
        assert (added["caller"], added["outcome"]) == ("ada", "ok")
        limits = {each["name"]: each for each in state["callers"]}
        assert (limits["ada"]["calls"], limits["ada"]["maxCalls"], limits["ada"]["kind"]) == (1, 20, "caller")
        assert limits["data"]["kind"] == "team"
        assert 0 < limits["data"]["rateUsed"] < 1
        of_bytes = {"bytes": 52428800, "perSeconds": 3600.0}
        assert limits["ada"]["bytes"] == of_bytes
        keys = [tuple(each[of] for of in ("name", "team", "rate", "tasks", "bytes")) for each in state["keys"]]
        rate = {"calls": 1000, "perSeconds": 60.0}
        assert keys == [("ada", "data", rate, 30, of_bytes), ("root", None, None, None, None)]
        assert gateway.act("cancel", call=call["id"]).json() == {"done": True}
    last = gateway.state_when(lambda state: not state["calls"])
    assert last["recent"][0]["request_id"] == call["id"] or last["recent"][1]["request_id"] == call["id"]


async def test_the_state_is_shown_with_names_of_clients_that_utf_8_cannot_have(gateway: Board) -> None:
    info = r'{"name": "\ud800client", "version": "1"}'
    params = f'{{"protocolVersion": "2025-11-25", "capabilities": {{}}, "clientInfo": {info}}}'
    headers = {
        "authorization": f"Bearer {ADA_KEY}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    async with httpx.AsyncClient(timeout=DEADLINE_SECONDS, headers=headers) as client:
        opening = f'{{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {params}}}'
        opened = await client.post(f"{gateway.origin}/mcp", content=opening)
        session = opened.headers["mcp-session-id"]
        state = await anyio.to_thread.run_sync(gateway.state)
        assert "\ud800client" in [each["client"] for each in state["sessions"]]
        await client.delete(f"{gateway.origin}/mcp", headers={"mcp-session-id": session})
    unknown = r'{"action": "cancel", "call": "\ud800"}'
    refused = gateway.operator.post("/admin/actions", content=unknown)
    assert refused.status_code == 409


async def test_a_cancelled_call_is_answered_with_an_error_and_the_action_is_audited(gateway: Board) -> None:
    answers: list[str] = []

    async with caller(gateway) as provider, anyio.create_task_group() as tasks:

        async def wait() -> None:
            answers.append(await called(provider, "tools_wait"))

        tasks.start_soon(wait)
        state = await anyio.to_thread.run_sync(gateway.state_when, lambda state: state["calls"])
        call_id = state["calls"][0]["id"]
        assert gateway.act("cancel", call=call_id).json() == {"done": True}
    assert "an operator of the server cancelled 'tools_wait'" in answers[0]
    again = gateway.act("cancel", call=call_id)
    assert (again.status_code, again.json()["problem"]) == (409, f"there is no call '{call_id}'")
    gateway.state_when(lambda _: sum(each.get("target") == call_id for each in gateway.audit) == 2)
    (done, refused) = (each for each in gateway.audit if each.get("target") == call_id)
    assert {name: done[name] for name in ("event", "action", "caller", "outcome")} == {
        "event": "admin",
        "action": "cancel",
        "caller": "olga",
        "outcome": "ok",
    }
    assert (refused["outcome"], "error" in refused) == ("error", True)


async def test_a_task_is_shown_and_can_be_cancelled(gateway: Board) -> None:
    async with caller(gateway) as provider:
        task = await provider.start("job", {"text": SECRET})
        state = await anyio.to_thread.run_sync(gateway.state_when, lambda state: state["tasks"])
        (shown,) = state["tasks"]
        assert (shown["tool"], shown["caller"], shown["status"]) == ("job", "ada", "working")
        assert str(task).endswith(shown["id"]) is False
        assert gateway.act("cancel-task", task=shown["id"]).json() == {"done": True}
        await anyio.to_thread.run_sync(gateway.state_when, lambda state: not state["tasks"])
        assert (await task.status()).status == "cancelled"
    assert gateway.act("cancel-task", task=shown["id"]).status_code == 409


async def test_a_disabled_tool_is_neither_listed_nor_called_until_it_is_enabled(gateway: Board) -> None:
    assert gateway.act("disable", tool="tools_add").json() == {"done": True}
    try:
        assert {each["name"]: each["enabled"] for each in gateway.state()["tools"]}["tools_add"] is False
        async with caller(gateway) as provider:
            assert "tools_add" not in [tool.name for tool in provider.tools]
    finally:
        assert gateway.act("enable", tool="tools_add").json() == {"done": True}
    async with caller(gateway) as provider:
        assert await called(provider, "tools_add", a=1, b=2) == "3"


async def test_a_restarted_server_has_another_process(gateway: Board) -> None:
    def pid(state: dict[str, Any]) -> int | None:
        found: int | None = next(each["pid"] for each in state["servers"] if each["name"] == "tools")
        return found

    before = pid(gateway.state_when(pid))
    assert gateway.act("restart", server="tools").json() == {"done": True}
    assert pid(gateway.state_when(lambda state: pid(state) not in {None, before})) != before
    assert gateway.act("restart", server="nobody").json()["problem"] == "there is no server 'nobody'"


def test_refused_requests_are_shown_with_their_reasons(gateway: Board) -> None:
    wrong = {"authorization": "Bearer wrong-wrong-wrong"}
    assert httpx.post(f"{gateway.origin}/mcp", json={}, headers=wrong).status_code == 401
    state = gateway.state_when(lambda state: state["refusals"])
    assert state["refusals"][0]["status"] == 401
    assert "wrong-wrong" not in json.dumps(state)


async def test_nothing_secret_is_in_the_state(gateway: Board) -> None:
    async with caller(gateway) as provider:
        await called(provider, "tools_add", a=SECRET, b=2)
        uri = f"tools+db://table/users?token={SECRET}"
        await provider.connections["gateway"].request("resources/read", {"uri": uri})
        state = await anyio.to_thread.run_sync(
            gateway.state_when, lambda state: any(each.get("resource") for each in state["recent"])
        )
    shown = json.dumps(state)
    for secret in (SECRET, OPERATOR_KEY, ADA_KEY):
        assert secret not in shown


@pytest.mark.parametrize("key", [None, ADA_KEY, "wrong-wrong-wrong-wrong-wrong"])
@pytest.mark.parametrize("path", ["/admin/state", "/admin/actions"])
def test_only_operators_may_use_it(gateway: Board, key: str | None, path: str) -> None:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    method = "GET" if path.endswith("state") else "POST"
    answer = httpx.request(
        method, gateway.admin_origin + path, headers=headers, content=b"{}", timeout=DEADLINE_SECONDS
    )
    assert answer.status_code in {401, 429}


def test_other_hosts_and_origins_may_not_use_it(gateway: Board) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        assert gateway.operator.get("/admin/state", headers=headers).status_code in {403, 421}


def test_keys_of_operators_are_not_keys_of_callers(gateway: Board) -> None:
    answer = httpx.post(
        f"{gateway.origin}/mcp", json={}, headers={"authorization": f"Bearer {OPERATOR_KEY}"}, timeout=DEADLINE_SECONDS
    )
    assert answer.status_code in {401, 429}
    assert httpx.get(f"{gateway.origin}/admin/state").status_code in {401, 404, 429}


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"{", "not JSON"),
        (b"[]", "the action is one of"),
        (b'{"action":"explode"}', "the action is one of cancel"),
        (b'{"action":"cancel"}', "needs a 'call'"),
        (b'{"action":"restart","server":7}', "needs a 'server'"),
        (b" " * 20_000, "longer than 16 KiB"),
    ],
)
def test_other_actions_are_refused(gateway: Board, body: bytes, part: str) -> None:
    answer = gateway.operator.post("/admin/actions", content=body)
    assert answer.status_code in {400, 413}
    assert part in answer.text


async def test_a_reloaded_configuration_applies_and_a_broken_one_does_not(tmp_path: Path) -> None:
    with board(tmp_path) as gateway:
        path = tmp_path / "mcp.json"
        text = path.read_text(encoding="utf-8")
        path.write_text("{", encoding="utf-8")
        broken = gateway.act("reload")
        assert (broken.status_code, "the configuration is not used" in broken.json()["problem"]) == (409, True)
        configuration = json.loads(text)
        del configuration["mcpServers"]["gone"]
        path.write_text(json.dumps(configuration), encoding="utf-8")
        assert gateway.act("reload").json() == {"done": True}
        assert [each["name"] for each in gateway.state()["servers"]] == ["tools"]


async def test_profiles_have_their_own_tools_and_a_disabled_tool_is_in_none(tmp_path: Path) -> None:
    profiles = {"one": {"include": ["tools_add"]}, "two": {"servers": ["tools"]}}
    with board(tmp_path, profiles=profiles) as gateway:
        found = {each["name"]: each["tools"] for each in gateway.state()["profiles"]}
        assert found == {"one": 1, "two": 2}
        assert gateway.act("disable", tool="tools_add").json() == {"done": True}
        assert {each["name"]: each["tools"] for each in gateway.state()["profiles"]} == {"one": 0, "two": 1}
        async with caller(gateway, "/mcp/two") as provider:
            assert sorted(tool.name for tool in provider.tools) == ["tools_wait"]
        path = tmp_path / "mcp.json"
        configuration = json.loads(path.read_text(encoding="utf-8"))
        del configuration["mcpServers"]["gone"]
        others = {"three": {}, "one": {"include": ["tools_wait"]}}
        path.write_text(json.dumps({**configuration, "profiles": others, "tools": "search"}), encoding="utf-8")
        refused = gateway.act("reload")
        assert refused.status_code == 409
        parts = "the new profile 'three', the removed profile 'two', the changed profile 'one', tools"
        assert parts in refused.json()["problem"]
        assert "serve with --workers" in refused.json()["problem"]
        assert [each["name"] for each in gateway.state()["servers"]] == ["tools", "gone"]
        in_other_order = dict(reversed(profiles.items()))
        path.write_text(json.dumps({**configuration, "profiles": in_other_order}), encoding="utf-8")
        assert gateway.act("reload").json() == {"done": True}
        assert [each["name"] for each in gateway.state()["servers"]] == ["tools"]


def test_a_drained_server_ends_and_says_who_has_asked(tmp_path: Path) -> None:
    with board(tmp_path) as gateway:
        assert gateway.act("drain").json() == {"done": True}
        assert gateway.process.process.wait(DEADLINE_SECONDS) == 0
    assert "'olga': drain" in gateway.process.log
    assert [each["action"] for each in gateway.audit] == ["drain"]


def test_changed_keys_of_operators_apply(tmp_path: Path) -> None:
    with board(tmp_path) as gateway:
        (tmp_path / "operators").write_text(f"otto {OTHER_OPERATOR_KEY}\n", encoding="utf-8")
        new = {"authorization": f"Bearer {OTHER_OPERATOR_KEY}"}
        deadline = time.monotonic() + DEADLINE_SECONDS
        with httpx.Client(base_url=gateway.admin_origin, headers=new) as operator:
            while operator.get("/admin/state").status_code != 200:
                assert time.monotonic() < deadline
        assert gateway.operator.get("/admin/state").status_code == 401


def test_without_a_key_of_operators_there_is_no_administration(tmp_path: Path) -> None:
    from tests.ports import free_port  # noqa: PLC0415 - of this test alone
    from tests.processes import serving  # noqa: PLC0415 - as above

    port = free_port()
    arguments = ("serve", "servers/calculator.py", "--transport", "http", "--port", "0", "--admin-port", str(port))
    with serving("-m", "bridge", *arguments):
        assert httpx.get(f"http://127.0.0.1:{port}/admin/").status_code == 404


@pytest.mark.slow
async def test_with_workers_the_state_and_the_actions_are_those_of_all(tmp_path: Path) -> None:
    with board(tmp_path, "--workers", "2") as gateway:
        state = gateway.state_when(lambda state: len(state.get("processes", ())) == 2)
        assert sorted(each["worker"] for each in state["servers"] if each["name"] == "tools") == ["1", "2"]
        pids = {each["pid"] for each in state["servers"] if each["name"] == "tools"}
        async with caller(gateway) as provider, anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(called, provider, "tools_wait")
            state = await anyio.to_thread.run_sync(gateway.state_when, lambda state: state["callCount"] == 6)
            for call in state["calls"]:
                assert gateway.act("cancel", call=call["id"]).json() == {"done": True}
        assert gateway.act("disable", tool="tools_add").json() == {"done": True}
        for _ in range(6):
            async with caller(gateway) as provider:
                assert "tools_add" not in [tool.name for tool in provider.tools]
        assert gateway.act("restart", server="tools").json() == {"done": True}
        gateway.state_when(
            lambda state: pids.isdisjoint(each["pid"] for each in state["servers"] if each["name"] == "tools")
        )
        path, outcomes = tmp_path / "mcp.json", list[Any]()
        configuration = json.loads(path.read_text(encoding="utf-8"))
        del configuration["mcpServers"]["gone"]
        path.write_text(json.dumps(configuration), encoding="utf-8")
        async with anyio.create_task_group() as tasks:  # a later one gives an earlier one up
            for _ in range(3):
                tasks.start_soon(anyio.to_thread.run_sync, lambda: outcomes.append(gateway.act("reload").json()))
        assert outcomes == [{"done": True}] * 3
        assert gateway.act("drain").json() == {"done": True}
        assert gateway.process.process.wait(DEADLINE_SECONDS) == 0
