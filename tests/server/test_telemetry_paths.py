"""Telemetry of a request is the same with and without the fast path."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge import ToolBox, ToolError, tool
from bridge.protocol.versions import CLIENT_INFO_KEY
from bridge.server.http.app import http_app
from bridge.telemetry.conventions import OWN_REQUEST_ID, SERVER_OPERATION_DURATION, SERVER_SESSION_DURATION
from bridge.telemetry.observer import Observer
from bridge.telemetry.switch import enabled
from bridge.telemetry.tracing import Tracing
from tests.server.http_server import CLIENT_INFO, HEADERS, call, modern, modern_headers, open_session, request, serving
from tests.telemetry.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from bridge.telemetry.records import CallRecord

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACED = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
PATHS = {"the SDK": (False, "h11"), "the fast path": (True, "h11"), "the direct way": (True, "direct")}
_DIFFERENT = {"mcp.session.id", OWN_REQUEST_ID}
"""Attributes of spans that differ from run to run."""


class Kept:
    """A sink that keeps its records, without members that differ from run to run."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.request_ids: list[str] = []

    def put(self, records: Sequence[CallRecord]) -> None:
        for record in records:
            told = json.loads(record.line)
            assert told.pop("time")
            self.request_ids.append(told.pop("request_id"))
            assert told.pop("duration_ms") >= 0
            self.told.append(told)

    def wake(self, flush: Callable[[], object]) -> None:
        """Do nothing: the test reads the records when it wants."""


class Watched:
    """An observer, with all of its records."""

    def __init__(self, *, is_traced: bool = True) -> None:
        provider = TracerProvider()
        self._spans = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._sink = Kept()
        self.measured = Measured()
        tracer = Tracing(provider) if is_traced else None
        self.observer = Observer(self.measured.instruments, tracer=tracer, sinks=[self._sink])

    @property
    def records(self) -> list[dict[str, Any]]:
        self.observer.flush()
        return self._sink.told

    @property
    def request_ids(self) -> list[str]:
        """Our own ids of the recorded requests."""
        self.observer.flush()
        return self._sink.request_ids

    @property
    def finished(self) -> Sequence[ReadableSpan]:
        return self._spans.get_finished_spans()

    @property
    def spans(self) -> list[tuple[str, str, str | None, dict[str, Any]]]:
        return [
            (
                span.name,
                span.status.status_code.name,
                span.parent and format(span.parent.span_id, "016x"),
                {key: value for key, value in (span.attributes or {}).items() if key not in _DIFFERENT},
            )
            for span in self.finished
        ]

    def counts(self, metric: str) -> list[tuple[dict[str, Any], int]]:
        return self.measured.counts(metric)


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def fail() -> str:
    """Fail."""
    raise ToolError("as it should")


@tool
async def wait(fails: bool = False) -> str:
    """Return or fail in a later turn of the event loop."""
    await asyncio.sleep(0)
    if fails:
        raise ToolError("as it should")
    return "waited"


REQUESTS = [
    call("add", {"a": 1, "b": 2}, _meta=TRACED),
    call("fail", _meta=TRACED),
    call("add", {"a": "x"}),
    call("nothing"),
    request("tools/list"),
    request("prompts/list"),
]
UNTRACED = [*REQUESTS[2:4], call("add", {"a": 1, "b": 2}), call("fail"), call("wait"), call("wait", {"fails": True})]


def watched(path: str, *, is_modern: bool, is_traced: bool = True) -> Watched:
    """Send all requests to a server of its own."""
    fast_path, protocol = PATHS[path]
    watched = Watched(is_traced=is_traced)
    with enabled(watched.observer):
        app = http_app(ToolBox([add, fail, wait]), fast_path=fast_path)
    with enabled(watched.observer), serving(app, http=protocol) as origin, httpx.Client() as client:
        url = origin + "/mcp"
        session = HEADERS if is_modern else open_session(client, url)
        # A head that is sent again is cached, and its call starts at once.
        for message in REQUESTS if is_traced else [message for message in UNTRACED for _ in range(3)]:
            if is_modern:
                enveloped = modern(message)
                enveloped["params"]["_meta"][CLIENT_INFO_KEY] = CLIENT_INFO
                client.post(url, json=enveloped, headers=modern_headers(enveloped))
            else:
                client.post(url, json=message, headers=session).raise_for_status()
        if not is_modern:
            client.delete(url, headers=session).raise_for_status()
    return watched


@pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "handshake"])
def test_spans_counts_and_records_are_the_same_on_every_path(is_modern: bool) -> None:
    sdk, *others = [watched(path, is_modern=is_modern) for path in PATHS]
    assert [record["outcome"] for record in sdk.records] == ["ok", "tool_error", "tool_error", "error"]
    assert [record["tool"] for record in sdk.records] == ["add", "fail", "add", "nothing"]
    assert [record.get("trace_id") == TRACE_ID for record in sdk.records] == [True, True, False, False]
    names = [name for name, *_ in sdk.spans if name.startswith("tools/call")]
    assert names == ["tools/call add", "tools/call fail", "tools/call add", "tools/call"]
    assert [parent for name, _, parent, _ in sdk.spans if name == "tools/call fail"] == [PARENT_ID]
    for each in (sdk, *others):
        called = [span for span in each.finished if span.name.startswith("tools/call")]
        assert [(span.attributes or {})[OWN_REQUEST_ID] for span in called] == each.request_ids
        assert len(set(each.request_ids)) == len(called)
    for other in others:
        assert [{**record, "trace_id": None} for record in other.records] == [
            {**record, "trace_id": None} for record in sdk.records
        ]
        assert sorted(other.spans, key=repr) == sorted(sdk.spans, key=repr)  # a notification may end at any time
        assert other.counts(SERVER_OPERATION_DURATION) == sdk.counts(SERVER_OPERATION_DURATION)


@pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "handshake"])
def test_calls_without_a_trace_are_recorded_and_counted_the_same_on_every_path(is_modern: bool) -> None:
    sdk, *others = [watched(path, is_modern=is_modern, is_traced=False) for path in PATHS]
    outcomes = ["tool_error", "error", "ok", "tool_error", "ok", "tool_error"]
    assert [record["outcome"] for record in sdk.records[::3]] == outcomes
    assert {record["client"] for record in sdk.records} == {CLIENT_INFO["name"]}
    for each in (sdk, *others):
        assert len(set(each.request_ids)) == len(each.records)
    for other in others:
        assert other.records == sdk.records
        assert other.counts(SERVER_OPERATION_DURATION) == sdk.counts(SERVER_OPERATION_DURATION)
        assert other.observer.calls_in_flight == 0


@pytest.mark.parametrize("path", PATHS)
def test_a_session_is_counted_when_it_ends(path: str) -> None:
    ended = watched(path, is_modern=False).counts(SERVER_SESSION_DURATION)
    labels = {"network.transport": "tcp", "network.protocol.name": "http", "mcp.protocol.version": "2025-11-25"}
    assert ended == [(labels, 1)]


def test_nobody_is_in_flight_when_all_is_answered() -> None:
    assert [watched(path, is_modern=True).observer.calls_in_flight for path in PATHS] == [0, 0, 0]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize(
    "trace", [{"baggage": 5}, {"baggage": ["a=b"]}, {"baggage": "x," * 100_000}, {"traceparent": {}}, {"tracestate": 1}]
)
def test_a_trace_that_is_none_costs_a_request_nothing_and_logs_nothing(
    path: str, trace: dict[str, Any], caplog: pytest.LogCaptureFixture, *, is_observed: bool
) -> None:
    fast_path, protocol = PATHS[path]
    with ExitStack() as stack:
        if is_observed:
            stack.enter_context(enabled(Watched().observer))
        origin = stack.enter_context(serving(http_app(ToolBox([add]), fast_path=fast_path), http=protocol))
        client = stack.enter_context(httpx.Client())
        message = modern(call("add", {"a": 1, "b": 2}, _meta=TRACED | trace))
        answer = client.post(f"{origin}/mcp", json=message, headers=modern_headers(message))
    assert answer.json()["result"]["structuredContent"] == {"result": 3}
    assert [record.getMessage()[:200] for record in caplog.records if record.levelno >= logging.WARNING] == []
