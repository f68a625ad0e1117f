"""Telemetry of a request is the same over each transport."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge import InvocationContext, ToolBox, ToolError, prompt, resource, tool
from bridge.protocol.versions import CLIENT_INFO_KEY
from bridge.server.features import Features
from bridge.server.http.app import http_app
from bridge.server.server import Server
from bridge.server.stdio.process import ProtocolStreams
from bridge.server.stdio.server import StdioServer
from bridge.telemetry.conventions import (
    NETWORK_PROTOCOL,
    NETWORK_TRANSPORT,
    OWN_REQUEST_ID,
    SERVER_OPERATION_DURATION,
    SERVER_SESSION_DURATION,
    SESSION_ID,
)
from bridge.telemetry.current import enabled, observed_session
from bridge.telemetry.observer import Observer
from bridge.telemetry.tracing import Tracing
from tests.server.http_server import (
    CLIENT_INFO,
    DEADLINE_SECONDS,
    HEADERS,
    call,
    events,
    initialize,
    modern,
    modern_headers,
    notification,
    open_session,
    request,
    serving,
)
from tests.telemetry.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from bridge.server.http.app import BridgeApp
    from bridge.telemetry.records import CallRecord

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACED = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
PROTOCOLS = ("h11", "direct")
"""HTTP servers of `serving`: one of ASGI, and that of ``bridge serve``."""
OF_TRANSPORT = {NETWORK_TRANSPORT, NETWORK_PROTOCOL}


class Kept:
    """A sink that keeps its records, without members that differ from run to run."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.request_ids: list[str] = []
        """Ids of the calls that this process has made."""

    def put(self, records: Sequence[CallRecord]) -> None:
        for record in records:
            told = json.loads(record.line)
            assert told.pop("time")
            if told["event"] == "call":  # the id of a task is known
                self.request_ids.append(told.pop("request_id"))
            assert told.pop("duration_ms") >= 0
            assert told.pop("result_bytes") >= 0
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
        """Ids of the recorded calls that this process has made."""
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
                {
                    key: value
                    for key, value in (span.attributes or {}).items()
                    if key not in {SESSION_ID, OWN_REQUEST_ID}
                },
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


def messages(*, is_modern: bool, is_traced: bool = True) -> list[dict[str, Any]]:
    # A head that is sent again is cached, and its call starts at once.
    found = REQUESTS if is_traced else [message for message in UNTRACED for _ in range(3)]
    if is_modern:
        found = [modern(message) for message in found]
        for message in found:
            message["params"]["_meta"][CLIENT_INFO_KEY] = CLIENT_INFO
    return found


def send_over_http(app: BridgeApp, http: str, sent: list[dict[str, Any]], *, is_modern: bool) -> None:
    with serving(app, http=http) as origin, httpx.Client() as client:
        url = origin + "/mcp"
        session = HEADERS if is_modern else open_session(client, url)
        for message in sent:
            if is_modern:
                client.post(url, json=message, headers=modern_headers(message))
            else:
                client.post(url, json=message, headers=session).raise_for_status()
        if not is_modern:
            client.delete(url, headers=session).raise_for_status()


def send_over_sse(app: BridgeApp, sent: list[dict[str, Any]]) -> None:
    with serving(app) as origin, httpx.Client() as client, client.stream("GET", f"{origin}/sse") as stream:
        lines = stream.iter_lines()
        path = next(line for line in lines if line.startswith("data: ")).removeprefix("data: ")
        for message in [initialize(), notification("notifications/initialized"), *sent]:
            client.post(origin + path, json=message).raise_for_status()
            if "id" in message:
                next(events(lines))


def send_over_stdio(tools: ToolBox, sent: list[dict[str, Any]], *, is_modern: bool) -> None:
    opened = [] if is_modern else [initialize(), notification("notifications/initialized")]
    (read, to_server), (from_server, write) = os.pipe(), os.pipe()

    async def serve() -> None:
        streams = ProtocolStreams(input_fd=read, output_fd=write)
        with os.fdopen(read, "rb"), os.fdopen(write, "wb"), observed_session("stdio"):
            await StdioServer(Server(tools, name="tests"), streams).serve()

    server = threading.Thread(target=anyio.run, args=(serve,))
    server.start()
    with os.fdopen(from_server, "rb") as answers, os.fdopen(to_server, "wb", buffering=0) as requests:
        for message in [*opened, *sent]:
            requests.write(json.dumps(message).encode() + b"\n")
            if "id" in message:
                assert json.loads(answers.readline())["id"] == message["id"]
        requests.close()
        server.join(DEADLINE_SECONDS)
    assert not server.is_alive()


def watched(transport: str, *, is_modern: bool, is_traced: bool = True) -> Watched:
    """Send all requests to a server of its own."""
    watched, tools = Watched(is_traced=is_traced), ToolBox([add, fail, wait])
    sent = messages(is_modern=is_modern, is_traced=is_traced)
    with enabled(watched.observer):
        if transport == "stdio":
            send_over_stdio(tools, sent, is_modern=is_modern)
        elif transport == "sse":
            send_over_sse(http_app(tools), sent)
        else:
            send_over_http(http_app(tools), transport, sent, is_modern=is_modern)
    return watched


ERAS = pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "handshake"])


def observed(*, is_modern: bool, is_traced: bool = True) -> list[Watched]:
    """Return what is observed over each transport of an era."""
    transports = [*PROTOCOLS, "stdio", *([] if is_modern else ["sse"])]
    return [watched(each, is_modern=is_modern, is_traced=is_traced) for each in transports]


def durations(watched: Watched) -> list[tuple[dict[str, Any], int]]:
    return without_transport(watched.counts(SERVER_OPERATION_DURATION))


def without_transport(counts: list[tuple[dict[str, Any], int]]) -> list[tuple[dict[str, Any], int]]:
    found = [
        ({key: each for key, each in labels.items() if key not in OF_TRANSPORT}, count) for labels, count in counts
    ]
    return sorted(found, key=repr)


def spans(watched: Watched) -> list[tuple[str, str, str | None, dict[str, Any]]]:
    return [
        (name, status, parent, {key: each for key, each in attributes.items() if key not in OF_TRANSPORT})
        for name, status, parent, attributes in watched.spans
    ]


def of_client(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records without what depends on the transport, or on chance."""
    return [{**record, "trace_id": None, "transport": None} for record in records]


@ERAS
def test_spans_counts_and_records_are_the_same_over_each_transport(is_modern: bool) -> None:
    first, *others = observed(is_modern=is_modern)
    assert [record["outcome"] for record in first.records] == ["ok", "tool_error", "tool_error", "error"]
    assert [record["tool"] for record in first.records] == ["add", "fail", "add", "nothing"]
    assert [record.get("trace_id") == TRACE_ID for record in first.records] == [True, True, False, False]
    names = [name for name, *_ in first.spans if name.startswith("tools/call")]
    assert names == ["tools/call add", "tools/call fail", "tools/call add", "tools/call"]
    assert [parent for name, _, parent, _ in first.spans if name == "tools/call fail"] == [PARENT_ID]
    for each in (first, *others):
        called = [span for span in each.finished if span.name.startswith("tools/call")]
        assert [(span.attributes or {})[OWN_REQUEST_ID] for span in called] == each.request_ids
        assert len(set(each.request_ids)) == len(called)
    for other in others:
        assert of_client(other.records) == of_client(first.records)
        assert spans(other) == spans(first)
        assert durations(other) == durations(first)


@ERAS
def test_calls_without_a_trace_are_recorded_and_counted_the_same_over_each_transport(is_modern: bool) -> None:
    first, *others = observed(is_modern=is_modern, is_traced=False)
    outcomes = ["tool_error", "error", "ok", "tool_error", "ok", "tool_error"]
    assert [record["outcome"] for record in first.records[::3]] == outcomes
    assert {record["client"] for record in first.records} == {CLIENT_INFO["name"]}
    assert {record["transport"] for record in first.records} == {"http"}
    for other in others:
        assert of_client(other.records) == of_client(first.records)
        assert durations(other) == durations(first)
        assert other.observer.calls_in_flight == 0


TCP = {NETWORK_TRANSPORT: "tcp", NETWORK_PROTOCOL: "http"}
LABELS = {"h11": TCP, "direct": TCP, "sse": TCP, "stdio": {NETWORK_TRANSPORT: "pipe"}}


@pytest.mark.parametrize("transport", LABELS)
def test_a_transport_is_named(transport: str) -> None:
    of_calls = watched(transport, is_modern=False)
    for labels, _ in of_calls.counts(SERVER_OPERATION_DURATION):
        assert {key: each for key, each in labels.items() if key in OF_TRANSPORT} == LABELS[transport]
    assert {record["transport"] for record in of_calls.records} == {"http" if transport in PROTOCOLS else transport}


@pytest.mark.parametrize("http", PROTOCOLS)
def test_a_session_is_counted_when_it_ends(http: str) -> None:
    ended = watched(http, is_modern=False).counts(SERVER_SESSION_DURATION)
    assert ended == [(TCP | {"mcp.protocol.version": "2025-11-25"}, 1)]


def test_nobody_is_in_flight_when_all_is_answered() -> None:
    assert [each.observer.calls_in_flight for each in observed(is_modern=True)] == [0, 0, 0]


@pytest.mark.parametrize("http", PROTOCOLS)
@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize(
    "trace", [{"baggage": 5}, {"baggage": ["a=b"]}, {"baggage": "x," * 100_000}, {"traceparent": {}}, {"tracestate": 1}]
)
def test_a_trace_that_is_none_costs_a_request_nothing_and_logs_nothing(
    http: str, trace: dict[str, Any], caplog: pytest.LogCaptureFixture, *, is_observed: bool
) -> None:
    with ExitStack() as stack:
        if is_observed:
            stack.enter_context(enabled(Watched().observer))
        origin = stack.enter_context(serving(http_app(ToolBox([add])), http=http))
        client = stack.enter_context(httpx.Client())
        message = modern(call("add", {"a": 1, "b": 2}, _meta=TRACED | trace))
        answer = client.post(f"{origin}/mcp", json=message, headers=modern_headers(message))
    assert answer.json()["result"]["structuredContent"] == {"result": 3}
    assert [record.getMessage()[:200] for record in caplog.records if record.levelno >= logging.WARNING] == []


@tool
async def crash(late: bool = False) -> str:
    """Raise an unexpected error, at once or in a later turn of the event loop."""
    if late:
        await asyncio.sleep(0)
    raise RuntimeError("a bug")


@tool
async def asking(context: InvocationContext) -> str:
    """Raise an unexpected error with a context."""
    raise RuntimeError(f"a bug of {context.request_id}")


@resource("note://broken")
async def broken() -> str:
    """Raise an unexpected error."""
    raise RuntimeError("a bug")


@prompt
async def unwritten() -> str:
    """Raise an unexpected error."""
    raise RuntimeError("a bug")


@pytest.mark.parametrize("is_traced", [True, False], ids=["traced", "untraced"])
@pytest.mark.parametrize("http", PROTOCOLS)
@ERAS
def test_the_log_line_of_an_unexpected_error_has_the_id_of_its_record(
    is_modern: bool, http: str, is_traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(is_traced=is_traced)
    sent = [
        call("crash"),
        call("crash"),
        call("crash", {"late": True}),
        call("asking"),
        request("resources/read", {"uri": "note://broken"}),
        request("prompts/get", {"name": "unwritten"}),
    ]
    sent = [modern(message) if is_modern else message for message in sent]
    with enabled(watched.observer):
        app = http_app(Features.of(crash, asking, broken, unwritten))
        send_over_http(app, http, sent, is_modern=is_modern)
    ids = [getattr(record, "request_id", None) for record in caplog.records if record.exc_info]
    assert ids == [*watched.request_ids, *(each["request_id"] for each in watched.records if "request_id" in each)]
    assert len(set(ids)) == len(sent)
    assert f"a bug of {ids[3]}" in caplog.text
