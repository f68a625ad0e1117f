from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge.telemetry.instruments import Peer
from bridge.telemetry.observer import Observer
from bridge.telemetry.otel_setup import RatioSampler
from bridge.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

TRACE_ID, PARENT_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
TRACED = {"traceparent": f"00-{TRACE_ID:032x}-{PARENT_ID:016x}-01", "tracestate": "vendor=1", "baggage": "user=alice"}
CLIENT, SERVER = Peer("http", "2026-07-28"), Peer("stdio", "2025-11-25", "github")


class Traced:
    """An observer whose spans are kept."""

    def __init__(self, ratio: float | None = None) -> None:
        sampler = None if ratio is None else RatioSampler(ratio)
        provider = TracerProvider(sampler=sampler)
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = Observer(tracer=Tracing(provider, ratio))
        self.call = self.observer.series("tools/call", "add", CLIENT)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def ask(self) -> dict[str, Any]:
        """Send a request to a server; return its metadata."""
        with self.observer.asking("tools/call", "add", SERVER) as asking:
            return dict(asking.meta)


def test_a_call_continues_the_trace_that_it_says_and_is_the_current_span_until_it_ends() -> None:
    traced = Traced()
    call = traced.observer.serve(traced.call, 7, TRACED, "session-1")
    here = trace.get_current_span().get_span_context()
    assert baggage.get_baggage("user") == "alice"
    call.end()
    assert not trace.get_current_span().get_span_context().is_valid
    (span,) = traced.spans
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.context.span_id, span.parent.span_id) == (TRACE_ID, here.span_id, PARENT_ID)
    assert span.context.trace_state == {"vendor": "1"}
    assert (span.name, span.kind) == ("tools/call add", trace.SpanKind.SERVER)
    attributes = dict(span.attributes or {})
    assert len(str(attributes.pop("bridge.request.id"))) == 24
    assert attributes == {**traced.call.labels, "jsonrpc.request.id": "7", "mcp.session.id": "session-1"}


def test_a_span_has_the_caller_and_its_team_which_metrics_know_alone() -> None:
    traced = Traced()
    series = traced.observer.series("tools/call", "add", Peer("http", "2026-07-28", team="data"))
    traced.observer.serve(series, 7, caller="alice").end()
    (span,) = traced.spans
    attributes = dict(span.attributes or {})
    assert (attributes["enduser.id"], attributes["bridge.team"]) == ("alice", "data")
    assert series.labels == {**traced.call.labels, "bridge.team": "data"}


def test_what_a_server_is_asked_within_a_call_belongs_to_its_trace_and_carries_it_on() -> None:
    traced = Traced()
    call = traced.observer.serve(traced.call, 7, TRACED)
    carried = traced.ask()
    call.end()
    asked, served = traced.spans
    assert asked.context is not None
    assert asked.parent == served.context
    assert asked.kind is trace.SpanKind.CLIENT
    assert carried == {
        "traceparent": f"00-{TRACE_ID:032x}-{asked.context.span_id:016x}-01",
        "tracestate": "vendor=1",
        "baggage": "user=alice",
    }


@pytest.mark.parametrize(
    ("code", "message", "status"), [(None, None, "tool_error"), (-32602, "no such tool", "-32602")]
)
def test_a_failure_is_told_in_the_words_of_the_conventions(code: int | None, message: str | None, status: str) -> None:
    traced = Traced()
    traced.observer.serve(traced.call, 1).end(status, code, message)
    (span,) = traced.spans
    assert span.attributes is not None
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, message)
    assert span.attributes["error.type"] == status
    assert span.attributes.get("rpc.response.status_code") == (None if code is None else str(code))


@pytest.mark.parametrize("said", ["", "00-1-1-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", 7, None, ["00"], {}])
def test_a_trace_that_is_none_begins_a_new_one(said: Any) -> None:
    traced = Traced()
    traced.observer.serve(traced.call, 1, {"traceparent": said}).end()
    assert [span.parent for span in traced.spans] == [None]


def test_a_trace_that_is_here_already_is_linked_where_the_call_says_another() -> None:
    traced = Traced()
    with trace.use_span(
        trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(1)))
    ):
        traced.observer.serve(traced.call, 1, TRACED).end()
        traced.observer.serve(traced.call, 2).end()
    linked, nested = traced.spans
    assert [link.context.span_id for link in linked.links] == [2]
    assert (nested.links, nested.parent and nested.parent.span_id) == ((), 2)


def test_what_is_left_out_leaves_out_what_it_asks_of_servers_and_tells_them_to() -> None:
    traced = Traced(ratio=0.0)
    call = traced.observer.serve(traced.call, 1)
    carried = traced.ask()
    with trace.get_tracer("other", tracer_provider=None).start_as_current_span("of a tool") as inner:
        assert not inner.get_span_context().trace_flags.sampled
    call.end()
    assert traced.spans == []
    version, trace_id, span_id, flags = carried["traceparent"].split("-")
    assert (version, len(trace_id), len(span_id), flags) == ("00", 32, 16, "00")
    assert not trace.get_current_span().get_span_context().is_valid


def test_what_is_left_out_here_is_traced_where_its_caller_does() -> None:
    traced = Traced(ratio=0.0)
    assert traced.observer.tracer is not None
    assert traced.observer.tracer.begins(TRACED)
    assert not traced.observer.tracer.begins({"progressToken": 1})
    traced.observer.serve(traced.call, 1, TRACED, is_sampled=True).end()
    assert len(traced.spans) == 1


def test_a_caller_that_leaves_its_trace_out_is_not_traced_here_either() -> None:
    traced = Traced(ratio=1.0)
    traced.observer.serve(traced.call, 1, {"traceparent": TRACED["traceparent"][:-2] + "00"}).end()
    assert traced.spans == []


def test_all_is_traced_where_the_share_is_all() -> None:
    traced = Traced(ratio=1.0)
    for number in range(10):
        traced.observer.serve(traced.call, number).end()
    assert len({span.context.trace_id for span in traced.spans if span.context}) == 10
