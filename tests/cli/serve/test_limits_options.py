"""Options of limits, by a real ``bridge serve``."""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from tests import forks
from tests.cli import draining
from tests.server import http_server as http
from tests.server.auth.guarded import Modern

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

DEADLINE_SECONDS = 40
ADD = http.call("add", {"a": 1, "b": 2})


def text(answer: dict[str, object]) -> str:
    found: str = answer["result"]["content"][0]["text"]  # type: ignore[index]  # an answer of a tool
    return found


def test_a_caller_over_its_rate_is_answered_429_by_option_and_by_environment(start: Start) -> None:
    arguments = ["serve", "calculator.py", "--transport", "http", "--port", "0"]
    for more, env in ((["--rate", "2/600"], {}), ([], {"BRIDGE_RATE": "2/600"})):
        with start(*arguments, *more, env=env) as process, httpx.Client(timeout=DEADLINE_SECONDS) as client:
            peer = Modern(client, process.url().removesuffix("/mcp"), {})
            assert [peer.send(ADD).status_code for _ in range(3)] == [200, 200, 429]


def test_tools_have_limits_of_their_own(start: Start) -> None:
    env = {"BRIDGE_TOOL_RATE": "add=1/600,sh*=2/600"}
    more = ["--max-output-chars", "9", "--max-result-bytes", "300"]
    arguments = ["serve", "calculator.py", "--transport", "http", "--port", "0", *more]
    with start(*arguments, env=env) as process, httpx.Client(timeout=DEADLINE_SECONDS) as client:
        peer = Modern(client, process.url().removesuffix("/mcp"), {})
        assert text(peer.ask(ADD)) == "3"
        assert text(peer.ask(ADD)) == "'add' was called too often: a caller has 1 in 600 s; try again in 600 seconds"
        long = http.call("shout", {"text": "a", "times": 20})
        assert text(peer.ask(long)) == "A!A!A!\n… 31 characters left out …\n!A!"
        assert text(peer.ask(long | {"id": 2})) != text(peer.ask(long | {"id": 3}))
        assert "too often" in text(peer.ask(long | {"id": 4}))


@pytest.mark.anyio
async def test_calls_of_all_callers_are_bounded() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            draining.served("--max-calls", "1") as server,
            draining.holding(server, "modern") as held,
            anyio.create_task_group() as tasks,
            httpx.AsyncClient() as client,
        ):
            tasks.start_soon(held.call)
            running = await held.hearing.running()
            message = http.modern(http.call("stick", {"port": held.hearing.port}))
            answer = await client.post(f"{server.origin}/mcp", json=message, headers=http.modern_headers(message))
            error = answer.json()["error"]
            assert error["message"].startswith("too many calls: the server has 1 at once for all callers")
            assert (error["code"], error["data"]["retryAfterSeconds"]) == (-32005, 1)
            await running.send(b"done")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "often"], "--rate: a rate is written N/SECONDS, such as 100/60, not 'often'"),
        (["--team-rate", "data"], "--team-rate: a rate is written N/SECONDS, such as 100/60, not 'data'"),
        (["--team-bytes", "ops=x"], "--team-bytes: bytes in a period are written SIZE/TIME, such as 50MiB/1h, not 'x'"),
        (["--tool-rate", "10/60"], "--tool-rate has the form TOOL=N/SECONDS, not '10/60'"),
        (["--tool-concurrency", "add=many"], "--tool-concurrency: a whole number of at least 1 is needed, not 'many'"),
        (["--tool-concurrency", "add=0"], "--tool-concurrency: a whole number of at least 1 is needed, not '0'"),
        (
            ["--tool-max-result-bytes", "add=-1"],
            "--tool-max-result-bytes: a whole number of at least 1 is needed, not '-1'",
        ),
    ],
)
def test_what_is_no_limit_is_refused_at_the_start(run: Run, arguments: list[str], said: str) -> None:
    ran = run("serve", "calculator.py", "--transport", "http", "--port", "0", *arguments)
    assert ran.returncode == 2
    assert said in ran.stderr


NO_SUCH_TOOL = "no tool, resource or prompt matches 'ad' in the limits: other names are not limited"


@pytest.mark.parametrize(
    "words", [("--tool-rate", "ad=1/60"), ("--tool-concurrency", "ad=1"), ("--tool-max-result-bytes", "ad=1")]
)
@pytest.mark.parametrize("target", ["calculator.py", "mcp.json"])
def test_a_limit_of_a_tool_that_is_not_there_is_warned_of(
    start: Start, directory: Path, words: tuple[str, str], target: str
) -> None:
    behind = forks.entry("-m", "bridge", "serve", "calculator.py", cwd=str(directory))
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"behind": behind}}), encoding="utf-8")
    with start("serve", target, "--transport", "http", "--port", "0", *words) as process:
        process.line_with(NO_SUCH_TOOL)


def test_the_results_of_a_tool_behind_a_gateway_have_a_limit_of_their_own(start: Start, directory: Path) -> None:
    behind = forks.entry("-m", "bridge", "serve", "calculator.py", cwd=str(directory))
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"behind": behind}}), encoding="utf-8")
    env = {"BRIDGE_TOOL_MAX_RESULT_BYTES": "sh*=300"}
    with (
        start("serve", "mcp.json", "--transport", "http", "--port", "0", env=env) as process,
        httpx.Client(timeout=DEADLINE_SECONDS) as client,
    ):
        peer = Modern(client, process.url().removesuffix("/mcp"), {})
        assert text(peer.ask(ADD)) == "3"
        long = http.call("shout", {"text": "a", "times": 200})
        assert text(peer.ask(long)).endswith("and may have 300: ask for less")


def test_over_stdio_a_limit_of_a_tool_that_is_not_there_is_warned_of_and_of_others_nothing_is_said(run: Run) -> None:
    done = run("serve", "calculator.py", "--tool-rate", "ad=1/60", "--tool-rate", "a*=1/60")
    assert done.stderr.count("no tool, resource or prompt matches") == done.stderr.count(NO_SUCH_TOOL) == 1


def test_a_session_that_nobody_uses_is_ended(start: Start) -> None:
    arguments = ["serve", "calculator.py", "--transport", "http", "--port", "0", "--max-sessions", "1"]
    with start(*arguments, "--session-idle", "1") as process, httpx.Client(timeout=DEADLINE_SECONDS) as client:
        url = process.url()
        headers = http.open_session(client, url)
        statuses = [503]
        deadline = monotonic() + DEADLINE_SECONDS
        while statuses[-1] == 503 and monotonic() < deadline:  # until its place is free
            statuses.append(client.post(url, json=http.initialize(), headers=http.HEADERS).status_code)
        assert statuses == [503] * (len(statuses) - 1) + [200]
        assert len(statuses) > 2
        assert client.post(url, json=ADD, headers=headers).status_code == 404
