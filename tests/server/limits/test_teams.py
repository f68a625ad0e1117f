"""Limits of single callers and of teams, and who is a member of which."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge.errors import DefinitionError
from bridge.protocol.versions import CAPABILITIES_KEY
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth, JwtVerifier, KeyFile
from bridge.server.auth.keys import KeyFileError
from bridge.server.limits import CallerLimits, Limits, Rate, guard
from bridge.tools.function import tools_from
from bridge.tools.task import TaskPolicy
from bridge.tools.toolbox import ToolBox
from bridge.wire.extension import TASKS
from tests.processes import serving as process
from tests.server import http_server as http
from tests.server.auth.conftest import issuer
from tests.server.auth.guarded import ADA, BOB, bearer, talking
from tests.server.auth.issuer import AUDIENCE
from tests.server.limits.test_over_http import Held, add

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.auth.issuer import Issuer

__all__ = ["issuer"]  # a fixture
CARL = "carl-carl-carl-carl-carl"
ADD = {"a": 1, "b": 2}


@pytest.fixture(autouse=True)
def _refusals_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "HOLD_SECONDS", 0)


@contextmanager
def served(auth: Any, limits: Limits, *more: Any, http_kind: str = "direct") -> Iterator[str]:
    app = http_app(Server(ToolBox(add, *more), name="tests", limits=limits), auth=auth)
    with http.serving(app, http=http_kind) as origin:
        yield origin


def statuses(origin: str, token: str, count: int) -> list[int]:
    with talking("modern", origin, token) as peer:
        return [peer.send(http.call("add", ADD)).status_code for _ in range(count)]


@pytest.mark.parametrize("http_kind", ["direct", "h11"])
def test_members_of_a_team_share_its_rate_and_others_have_their_own(http_kind: str) -> None:
    keys = ApiKeys(ApiKey("ada", ADA, team="data"), ApiKey("bob", BOB, team="data"), ApiKey("carl", CARL, team="ops"))
    limits = Limits(team_rates={"data": Rate(3, 600), "*": Rate(2, 600)})
    with served(keys, limits, http_kind=http_kind) as origin:
        assert statuses(origin, ADA, 2) == [200, 200]
        assert statuses(origin, BOB, 2) == [200, 429]
        assert statuses(origin, CARL, 3) == [200, 200, 429]
        with talking("modern", origin, ADA) as peer:
            error = peer.send(http.call("add", ADD)).json()["error"]
    assert error["message"].startswith("too many requests: the team 'data' has 3 in 600 s; try again in")
    assert error["data"]["limit"] == "--team-rate"


@pytest.mark.parametrize("http_kind", ["direct", "h11"])
def test_a_limit_of_a_key_replaces_that_of_all_callers(http_kind: str) -> None:
    keys = ApiKeys(ApiKey("ada", ADA, limits=CallerLimits(rate=Rate(3, 600))), ApiKey("bob", BOB))
    with served(keys, Limits(rate=Rate(1, 600), of_callers=True), http_kind=http_kind) as origin:
        assert statuses(origin, ADA, 4) == [200, 200, 200, 429]
        assert statuses(origin, BOB, 2) == [200, 429]


@pytest.mark.parametrize("kind", ["modern", "handshake"])
def test_members_of_a_team_share_its_running_calls(kind: str) -> None:
    held = Held()
    keys = ApiKeys(ApiKey("ada", ADA, team="data"), ApiKey("bob", BOB, team="data"), ApiKey("carl", CARL))
    with (
        served(keys, Limits(team_concurrency={"data": 1}), held.tool()) as origin,
        talking(kind, origin, BOB) as bob,
        talking(kind, origin, CARL) as carl,
    ):
        call = http.modern(http.call("hold"))
        with http.posted(f"{origin}/mcp", call, http.modern_headers(call) | bearer(ADA)):
            assert held.started.acquire(timeout=30)
            answer = bob.ask(http.call("add", ADD))
            assert answer["result"]["isError"]
            text = answer["result"]["content"][0]["text"]
            assert text.startswith("too many calls at once: the team 'data' has 1 at once")
            assert not carl.ask(http.call("add", ADD))["result"].get("isError")
            held.go_on.set()
        while bob.ask(http.call("add", ADD))["result"].get("isError"):
            pass


def test_tokens_have_a_team_by_scope_or_claim(issuer: Issuer) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE), team_claim="groups", team_scopes={"admin": "ops"})
    server = Server(ToolBox(add), name="tests", limits=Limits(team_rates={"data": Rate(1, 600), "ops": Rate(2, 600)}))
    with http.serving(http_app(server, auth=auth)) as origin:
        for claims, expected in (
            ({"sub": "a", "groups": ["data", "other"]}, [200, 429, 429]),
            ({"sub": "b", "groups": "data"}, [429, 429, 429]),
            ({"sub": "c", "groups": "data", "scope": "admin"}, [200, 200, 429]),
            ({"sub": "d"}, [200, 200, 200]),
            ({"sub": "e", "groups": 7}, [200, 200, 200]),
        ):
            assert statuses(origin, issuer.token(**claims), 3) == expected


def test_tokens_have_limits_of_their_own_by_claim(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE), limits_claim="limits")
    assert auth.has_limits
    with served(auth, Limits(rate=Rate(1, 600), of_callers=True)) as origin:
        for claims, expected in (
            ({"sub": "a", "limits": {"rate": "3/10m", "concurrency": 2}}, [200, 200, 200, 429]),
            ({"sub": "b", "limits": {"rate": "2/600"}}, [200, 200, 429, 429]),
            ({"sub": "c"}, [200, 429, 429, 429]),
            ({"sub": "d", "limits": "all"}, [200, 429, 429, 429]),
            ({"sub": "e", "limits": {"rate": "often"}}, [200, 429, 429, 429]),
            ({"sub": "f", "limits": {"speed": "high"}}, [200, 429, 429, 429]),
        ):
            assert statuses(origin, issuer.token(**claims), 4) == expected
    assert "the claim 'limits' of a token of" in caplog.text


def test_tasks_are_limited_by_caller_and_by_team() -> None:
    held = Held()
    keys = ApiKeys(
        ApiKey("ada", ADA, team="data"),
        ApiKey("bob", BOB, team="data"),
        ApiKey("carl", CARL, limits=CallerLimits(tasks=1)),
    )
    limits = Limits(team_tasks={"data": 2}, of_callers=True)
    job = replace(next(iter(tools_from(held.tool()))), task=TaskPolicy())
    with served(keys, limits, job) as origin:

        def start(token: str) -> dict[str, Any]:
            message = http.modern(http.call("hold"))
            envelope = message["params"]["_meta"]
            envelope[CAPABILITIES_KEY] = {"extensions": {TASKS.id: {}}}
            answer = httpx.post(f"{origin}/mcp", json=message, headers=http.modern_headers(message) | bearer(token))
            found: dict[str, Any] = answer.json()
            return found

        for token, limit, refused in ((ADA, None, ""), (BOB, None, ""), (ADA, "--team-tasks", "the team 'data' has 2")):
            answer = start(token)
            if limit is None:
                assert answer["result"]["resultType"] == "task", answer
            else:
                assert refused in answer["error"]["message"]
                assert answer["error"]["data"]["limit"] == limit
        assert start(CARL)["result"]["resultType"] == "task"
        assert "too many tasks at once: a caller has 1" in start(CARL)["error"]["message"]
        held.go_on.set()
        while "error" in (again := start(CARL)):
            assert again["error"]["data"]["retryAfterSeconds"] == 1


def test_a_line_of_a_key_names_team_and_limits(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"ada {ADA} team=data rate=100/1m concurrency=5 tasks=2\nbob {BOB} rate=2/3h\n", encoding="utf-8")
    keys = KeyFile(path)
    assert (keys.has_teams, keys.has_limits) == (True, True)
    assert Rate.read("100/1m") == Rate(100, 60)
    assert Rate.read("2/3h") == Rate(2, 10800)
    for line, message in (
        (f"ada {ADA} rate=often", "rate= is a number of requests and a time"),
        (f"ada {ADA} concurrency=0", "concurrency= is a whole number of 1 or more"),
        (f"ada {ADA} tasks=many", "tasks= is a whole number of 1 or more"),
        (f"ada {ADA} team=a/b", "the name of a team has"),
        (f"ada {ADA} team=a\nada {BOB} team=b", "the keys of 'ada' have different teams or limits"),
    ):
        path.write_text(f"{line}\n", encoding="utf-8")
        with pytest.raises((KeyFileError, DefinitionError), match=message) as caught:
            KeyFile(path)
        assert ADA not in str(caught.value)


def test_limits_of_keys_need_a_server_that_counts_them() -> None:
    keys = ApiKeys(ApiKey("ada", ADA, limits=CallerLimits(concurrency=1)))
    with pytest.raises(DefinitionError, match="of_callers=True"):
        http_app(ToolBox(add), auth=keys)


def test_a_change_of_a_team_applies_while_the_server_runs() -> None:
    keys = ApiKeys(ApiKey("ada", ADA, team="data"))
    auth = Auth(keys)
    with served(auth, Limits(team_rates={"data": Rate(1, 600), "ops": Rate(2, 600)})) as origin:
        assert statuses(origin, ADA, 2) == [200, 429]
        keys.replace(ApiKey("ada", ADA, team="ops"))
        assert statuses(origin, ADA, 3) == [200, 200, 429]


@pytest.mark.slow
def test_status_audit_and_metrics_show_the_team(tmp_path: Path) -> None:
    keys, audit = tmp_path / "keys", tmp_path / "audit.jsonl"
    keys.write_text(f"ada {ADA} team=data\nbob {BOB} rate=1000/1s\n", encoding="utf-8")
    options = ("--transport", "http", "--port", "0", "--api-keys", str(keys), "--audit-log", str(audit), "--metrics")
    with process("-m", "bridge", "serve", "servers/calculator.py", *options) as server:
        for name, arguments, token in (("add", ADD, ADA), ("divide", {"a": 1, "b": 0}, ADA), ("add", ADD, BOB)):
            with talking("modern", server.origin, token) as peer:
                assert peer.send(http.call(name, arguments)).status_code == 200
        status = httpx.get(f"{server.origin}/status", headers=bearer(BOB)).json()
        metrics = httpx.get(f"{server.origin}/metrics", headers=bearer(BOB)).text
    team = status["teams"]["data"]
    assert (team["calls"], team["errors"]) == (2, {"tool_error": 1})
    assert team["resultBytes"] > 0
    assert team["estimatedResultTokens"] > 0
    assert team["estimatedDefinitionTokens"] == 0  # its clients have not listed the tools
    assert status["teams"].keys() == {"data"}
    lines = [line for line in metrics.splitlines() if line.startswith("mcp_server_operation_duration_seconds_count")]
    assert [line for line in lines if 'bridge_team="data"' in line and 'gen_ai_tool_name="add"' in line]
    assert [line for line in lines if 'bridge_team="data"' not in line and 'gen_ai_tool_name="add"' in line]
    records = [json.loads(line) for line in audit.read_text(encoding="utf-8").splitlines()]
    assert [(each["caller"], each.get("team")) for each in records] == [
        ("ada", "data"), ("ada", "data"), ("bob", None),
    ]  # fmt: skip
