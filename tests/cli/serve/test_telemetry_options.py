"""Options of telemetry, by real processes, their logs and files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import forks
from tests.processes import ROOT, serving
from tests.server.http_server import call, initialize, modern, modern_headers, notification, open_session, request

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_SECONDS = 60
HTTP = ("--transport", "http", "--port", "0")
OPEN_METRICS = "application/openmetrics-text"
TOOLS = """
import logging
from bridge import tool

@tool
async def add(a: int, b: int) -> int:
    "Add."
    logging.getLogger("user").warning("adding\\nin two lines")
    return a + b

@tool
async def crash(secret: str) -> int:
    "Crash."
    raise ValueError("inside")
"""
HOLD = """
from pathlib import Path

from bridge import tool

@tool
def hold(path: str) -> str:
    "Return when a pipe has been written to."
    return Path(path).read_text()
"""


@pytest.fixture
def tools(tmp_path: Path) -> str:
    path = tmp_path / "tools.py"
    path.write_text(TOOLS, encoding="utf-8")
    return str(path)


def post(client: httpx.Client, origin: str, message: dict[str, Any]) -> httpx.Response:
    enveloped = modern(message)
    return client.post(origin + "/mcp", json=enveloped, headers=modern_headers(enveloped))


def test_a_json_log_has_one_object_a_line_and_one_for_each_call_without_the_arguments(tools: str) -> None:
    with serving("-m", "bridge", "serve", tools, *HTTP, "--log-format", "json") as server, httpx.Client() as client:
        post(client, server.origin, call("add", {"a": 1, "b": 2}) | {"id": "first"})
        post(client, server.origin, call("crash", {"secret": "hunter2"}))
    lines = [json.loads(line) for line in server.log.splitlines()]
    assert all(re.fullmatch(r"[\d-]{10}T[\d:]{8}\.\d{3}Z", line["time"]) for line in lines)
    assert all(line["level"] and line["logger"] for line in lines)
    calls = [line for line in lines if line["logger"] == "bridge.calls"]
    assert [(line["client_request_id"], line["tool"], line["outcome"], line["level"]) for line in calls] == [
        ("first", "add", "ok", "info"),
        (1, "crash", "tool_error", "warning"),
    ]
    assert "hunter2" not in server.log
    (failure,) = (line for line in lines if line["logger"] == "bridge.tools")
    assert "ValueError: inside" in failure["exception"]
    assert [line["message"] for line in lines if line["logger"] == "user"] == ["adding\nin two lines"]
    assert any(line.get("message", "").startswith("serving tools at ") for line in lines)


@pytest.mark.parametrize(
    ("text", "options", "code", "message"),
    [
        ("import nothing_there", HTTP, 1, "ModuleNotFoundError: No module named 'nothing_there'"),
        (TOOLS, (*HTTP, "--host", "0.0.0.0"), 2, "can be reached from other machines without a key"),
    ],
)
def test_what_keeps_a_server_from_starting_is_one_line_of_json_as_severe_as_it_is(
    tmp_path: Path, text: str, options: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "tools.py").write_text(text, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "bridge", "serve", str(tmp_path / "tools.py"), *options, "--log-format", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    (line,) = (json.loads(line) for line in run.stderr.splitlines())
    assert (run.returncode, line["level"], message in line["message"]) == (code, "error", True)
    assert ("Traceback" in line.get("exception", "")) is (code == 1)


def test_arguments_are_in_the_log_where_that_is_asked_for(tools: str) -> None:
    options = ("--log-format", "json", "--log-arguments")
    with serving("-m", "bridge", "serve", tools, *HTTP, *options) as server, httpx.Client() as client:
        post(client, server.origin, call("add", {"a": 1, "b": 2}))
    (line,) = (json.loads(line) for line in server.log.splitlines() if '"bridge.calls"' in line)
    assert line["arguments"] == {"a": 1, "b": 2}


def test_refused_calls_have_an_outcome_of_their_own_and_the_end_of_a_subscription_is_no_error(
    tools: str, tmp_path: Path
) -> None:
    path = tmp_path / "audit.log"
    options = ("--audit-log", str(path), "--metrics", "--log-format", "json", "--tool-rate", "add=1/600")
    listen = modern(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    with serving("-m", "bridge", "serve", tools, *HTTP, *options) as server, httpx.Client() as client:
        for _ in range(2):
            post(client, server.origin, call("add", {"a": 1, "b": 2}))
        with client.stream("POST", server.origin + "/mcp", json=listen, headers=modern_headers(listen)) as subscribed:
            next(subscribed.iter_lines())
        found: list[str] = []
        deadline = monotonic() + DEADLINE_SECONDS
        while not any("subscriptions/listen" in line for line in found) and monotonic() < deadline:
            text = client.get(server.origin + "/metrics").text
            found = [line for line in text.splitlines() if "_server_operation_duration_seconds_count" in line]
    recorded = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    logged = [line for line in map(json.loads, server.log.splitlines()) if line["logger"] == "bridge.calls"]
    for lines in (recorded, logged):
        assert [(line["outcome"], line.get("error")) for line in lines] == [("ok", None), ("refused", "refused")]
        assert len({line["request_id"] for line in lines}) == 2
    assert [line["request_id"] for line in logged] == [line["request_id"] for line in recorded]
    (subscription,) = (line for line in found if "subscriptions/listen" in line)
    assert 'error_type=""' in subscription
    assert [line for line in found if 'error_type="refused"' in line]


def test_an_audit_log_has_every_call_when_the_server_has_ended(tools: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    environment = {"BRIDGE_AUDIT_LOG": str(path), "BRIDGE_AUDIT_LOG_MAX_BYTES": "2000"}
    with serving("-m", "bridge", "serve", tools, *HTTP, environment=environment) as server, httpx.Client() as client:
        for number in range(50):
            post(client, server.origin, call("add", {"a": 1, "b": 2}) | {"id": number})
    files = sorted(tmp_path.glob("audit.log*"), key=lambda each: each.stat().st_mtime_ns)
    told = [json.loads(line) for each in files for line in each.read_text(encoding="utf-8").splitlines()]
    assert [line["client_request_id"] for line in told] == list(range(50))
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}


def test_no_client_writes_lines_of_its_own_into_the_audit_log_or_long_ones_or_stops_it(
    tools: str, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"
    options = ("--audit-log", str(audit), "--log-format", "json")
    injected = '\r\n{"event":"call","request_id":"forged"}\u2028'
    with serving("-m", "bridge", "serve", tools, *HTTP, *options) as server, httpx.Client() as client:
        post(client, server.origin, call("add", {"a": 1, "b": 2}) | {"id": injected})
        post(client, server.origin, call("add", {"a": 1, "b": 2}) | {"id": "x" * 1000})
        post(client, server.origin, call("add", {"a": 1, "b": 2}) | {"id": "x" * 100_000})  # refused
        enveloped = modern(call("add", {"a": 1, "b": 2, "\ud800": 1}))
        client.post(server.origin + "/mcp", content=json.dumps(enveloped), headers=modern_headers(enveloped))
        post(client, server.origin, call("add", {"a": 1, "b": 2}) | {"id": "last"})
    lines = audit.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["client_request_id"] for line in lines] == [injected, "x" * 256 + "…", 1, "last"]
    logged = [json.loads(line) for line in server.log.splitlines()]
    assert [line["client_request_id"] for line in logged if line["logger"] == "bridge.calls"][-1] == "last"


def test_a_server_that_is_ended_at_once_has_written_every_call_that_it_answered(tools: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with serving("-m", "bridge", "serve", tools, *HTTP, "--audit-log", str(path), "--drain-delay", "4") as server:
        with httpx.Client() as client:
            for number in range(50):
                post(client, server.origin, call("add", {"a": number, "b": 2}))
            server.process.send_signal(signal.SIGTERM)
            while client.get(server.origin + "/readyz").status_code == httpx.codes.OK:  # until the signal is handled
                pass
            post(client, server.origin, call("add", {"a": 1, "b": 2}) | {"id": "last"})
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(DEADLINE_SECONDS) == 128 + signal.SIGTERM
    recorded = [json.loads(line)["client_request_id"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert (len(recorded), recorded[-1]) == (51, "last")


def test_over_stdio_the_last_call_is_in_the_audit_log_too(tools: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    messages = [initialize(), notification("notifications/initialized"), call("add", {"a": 1, "b": 2}) | {"id": 2}]
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "serve", tools, "--audit-log", str(path), "--log-format", "json"],
        cwd=ROOT,
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    (line,) = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    assert (line["tool"], line["transport"], line["outcome"]) == ("add", "stdio", "ok")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
    assert all(json.loads(line) for line in done.stderr.splitlines())


def test_metrics_are_served_to_who_asks_for_none_of_the_tools(tools: str) -> None:
    with serving("-m", "bridge", "serve", tools, *HTTP, "--metrics") as server, httpx.Client() as client:
        post(client, server.origin, request("tools/list"))
        answer = client.get(server.origin + "/metrics", headers={"host": "another"})
        refused = client.post(server.origin + "/metrics")
        open_metrics = client.get(server.origin + "/metrics", headers={"accept": OPEN_METRICS})
    assert 'mcp_method_name="tools/list"' in answer.text
    assert (open_metrics.headers["content-type"].split(";")[0], open_metrics.text[-6:]) == (OPEN_METRICS, "# EOF\n")
    assert (answer.status_code, refused.status_code) == (200, 405)


def gauges(client: httpx.Client, origin: str) -> dict[str, float]:
    """Return the metrics of `bridge` that have no labels, beside those of the conventions."""
    families = text_string_to_metric_families(client.get(origin + "/metrics").raise_for_status().text)
    samples = [sample for family in families for sample in family.samples if sample.name.startswith("bridge_")]
    return {sample.name: sample.value for sample in samples if not sample.labels}


def test_the_metrics_tell_of_calls_sessions_and_children_in_hand_and_of_the_drain(tmp_path: Path) -> None:
    tools, config, pipe = tmp_path / "tools.py", tmp_path / "mcp.json", tmp_path / "pipe"
    tools.write_text(HOLD, encoding="utf-8")
    entry = forks.entry("-m", "bridge", "serve", str(tools), cwd=str(ROOT))
    config.write_text(json.dumps({"mcpServers": {"child": entry}}), encoding="utf-8")
    os.mkfifo(pipe)
    options = ("--metrics", "--drain-delay", "4")
    names = (
        "bridge_calls_in_flight",
        "bridge_sessions",
        "bridge_children",
        "bridge_draining",
        "bridge_audit_lost_total",
    )
    with (
        serving("-m", "bridge", "serve", str(config), *HTTP, *options) as server,
        httpx.Client(timeout=DEADLINE_SECONDS) as client,
        ThreadPoolExecutor() as threads,
    ):
        found = [gauges(client, server.origin)]
        open_session(client, server.origin + "/mcp")
        held = threads.submit(post, client, server.origin, call("hold", {"path": str(pipe)}))
        let_go = threads.submit(pipe.open, "w").result(DEADLINE_SECONDS)  # which waits for a reader
        found.append(gauges(client, server.origin))
        let_go.close()
        held.result(DEADLINE_SECONDS).raise_for_status()
        server.process.send_signal(signal.SIGTERM)
        while client.get(server.origin + "/readyz").status_code == httpx.codes.OK:  # until the signal is handled
            pass
        found.append(gauges(client, server.origin))
        server.process.send_signal(signal.SIGTERM)
    assert [[each[name] for name in names] for each in found] == [[0, 0, 1, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]


SHARE = "tracing 1% of calls, and those that callers trace (see OTEL_TRACES_SAMPLER)"


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        (("--traces",), {"OTEL_TRACES_EXPORTER": "none"}, [SHARE]),
        (("--traces",), {"OTEL_TRACES_EXPORTER": "none", "OTEL_TRACES_SAMPLER": "always_on"}, []),
        ((), {"OTEL_TRACES_EXPORTER": "otlp"}, [SHARE]),
        ((), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, [SHARE]),
        ((), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}, []),
        ((), {}, []),
    ],
)
def test_calls_are_traced_where_that_is_asked_for_and_their_share_is_said_unless_the_environment_says_it(
    tools: str, options: tuple[str, ...], environment: dict[str, str], said: list[str]
) -> None:
    with serving("-m", "bridge", "serve", tools, *HTTP, *options, environment=environment) as server:
        pass
    assert [line for line in server.log.splitlines() if line.startswith("tracing ")] == said


def test_without_the_option_there_are_no_metrics(tools: str) -> None:
    with serving("-m", "bridge", "serve", tools, *HTTP) as server, httpx.Client() as client:
        assert client.get(server.origin + "/metrics").status_code == 404


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (
            ("--audit-log", "/nowhere/audit.log"),
            {},
            "the audit log '/nowhere/audit.log' cannot be written: No such file",
        ),
        (
            ("--traces",),
            {"OTEL_TRACES_EXPORTER": "smoke"},
            "OTEL_TRACES_EXPORTER=smoke is unknown: use otlp, console or none",
        ),
    ],
)
def test_what_cannot_be_watched_is_said_at_the_start(
    tools: str, options: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bridge", "serve", tools, *HTTP, *options],
        cwd=ROOT,
        env={"PATH": "/usr/bin", **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (run.returncode, message in run.stderr) == (1, True), run.stderr
