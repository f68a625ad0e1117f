"""Operations under observation: a request being answered, and a request sent to the other side."""

from __future__ import annotations

from collections import deque
from secrets import token_hex
from threading import Lock
from time import perf_counter, time
from typing import TYPE_CHECKING, Any

from bridge.telemetry.conventions import CANCELLED, IN_FLIGHT, LISTEN, NO_ERRORS, REFUSAL_CODE, REFUSED, TOOL_ERROR
from bridge.telemetry.instruments import Instruments
from bridge.telemetry.records import NO_REDACTION, EndedCall, call_record
from bridge.types import RETRY_AFTER_META_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from bridge.telemetry.activity import Activity
    from bridge.telemetry.instruments import OperationSeries
    from bridge.telemetry.records import CallDetails, CallSink, Redaction
    from bridge.telemetry.tracing import Tracing


_ID_BYTES = 12
BATCH_SIZE = 16
"""Ended operations that are recorded together: each takes far less time than alone, and no request waits long."""


class Recorder:
    """Records operations that have ended, in batches: their durations, and for calls their records.

    A batch is recorded when it is full, when metrics are collected, and when a sink asks for it.

    Args:
        instruments: Receives the durations.
        tracer: Opens spans; None for none.
        sinks: Receive the records of calls.
        redaction: Redacts texts of clients in records.
        activity: Keeps the calls under way, and the last records and refusals; None for none.

    Attributes:
        calls_in_flight: Tool calls being served.
    """

    def __init__(
        self,
        instruments: Instruments | None = None,
        tracer: Tracing | None = None,
        sinks: Iterable[CallSink] = (),
        redaction: Redaction = NO_REDACTION,
        activity: Activity | None = None,
    ) -> None:
        self.instruments = instruments or Instruments()
        self.tracer = tracer
        self.sinks = tuple(sinks) if activity is None else (*sinks, activity)
        self.activity = activity
        self.redaction = redaction
        self.calls_in_flight = 0
        self._ended: deque[tuple[OperationSeries, float, str | None, int | None, EndedCall | None]] = deque()
        self._flushing = Lock()
        self._is_idle = True
        self.instruments.observe(IN_FLIGHT, "Tool calls being served.", self._calls_in_flight)

    def record(
        self,
        series: OperationSeries,
        seconds: float,
        error_type: str | None = None,
        code: int | None = None,
        call: EndedCall | None = None,
    ) -> None:
        """Record an operation that has ended. Thread-safe.

        ``error_type`` is None for a success, ``code`` is the JSON-RPC error code, if there is one, and ``call`` is None
        for an operation without a record.
        """
        self._ended.append((series, seconds, error_type, code, call))
        if self._is_idle:
            self._is_idle = False
            for sink in self.sinks:
                sink.wake(self.flush)
        if len(self._ended) >= BATCH_SIZE:
            self.flush()

    def flush(self) -> None:
        """Record all operations that have ended. Thread-safe."""
        with self._flushing:
            self._is_idle = True  # operations that end from now on wake the sinks again
            records = []
            while self._ended:
                series, seconds, error_type, code, call = self._ended.popleft()
                series.record(seconds, error_type, code)
                if call is not None:
                    records.append(call_record(call, self.redaction))
            if records:
                for sink in self.sinks:
                    sink.put(records)

    def _calls_in_flight(self) -> int:
        """Calls in flight, for the collection of metrics, which follows."""
        self.flush()
        return self.calls_in_flight


class ServerOperation:
    """A client's request while it is answered; made by `Observer.serve`, and ended once.

    Attributes:
        id: Id that this process has made for the request; empty if nothing records it.
        details: Details of a call; None for others.
        progress: Last progress and its total that the call has reported; None for none.
        task: The task of asyncio that runs the call; None if it is not known.
    """

    __slots__ = (
        "_client_request_id", "_recorder", "_result_bytes", "_series", "_span", "_start", "details", "id", "progress",
        "task",
    )  # fmt: skip

    def __init__(
        self, recorder: Recorder, series: OperationSeries, request_id: object, meta: Mapping[str, Any] | None,
        session_id: str | None, details: CallDetails | None, *, is_sampled: bool | None, caller: str | None = None,
    ) -> None:  # fmt: skip
        self._recorder, self._series, self.details, self._client_request_id = recorder, series, details, request_id
        is_traced = recorder.tracer is not None and is_sampled is not False
        self.id = token_hex(_ID_BYTES) if is_traced or details is not None else ""
        self._result_bytes = 0
        self._span = None
        if recorder.tracer is not None and is_traced:
            self._span = recorder.tracer.serve(
                series, meta, request_id, session_id, is_sampled=is_sampled is True, own_id=self.id, caller=caller
            )
        if series.is_call:
            recorder.calls_in_flight += 1
        if recorder.activity is not None and details is not None:
            self.progress: tuple[float, float | None] | None = None
            self.task: object = None
            recorder.activity.calls[self.id] = self
        self._start = perf_counter()

    @property
    def age_seconds(self) -> float:
        """Seconds since the start."""
        return perf_counter() - self._start

    def end(self, error_type: str | None = None, code: int | None = None, message: str | None = None) -> None:
        """End the operation: with a result, the type of an error, ``input_required``, or a JSON-RPC error."""
        seconds = perf_counter() - self._start
        if error_type == REFUSAL_CODE:
            error_type = REFUSED
        recorder, series, details, span, trace_id = self._recorder, self._series, self.details, self._span, None
        if series.is_call:
            recorder.calls_in_flight -= 1
        if recorder.activity is not None:
            recorder.activity.calls.pop(self.id, None)
        if span is not None:
            trace_id = span.trace_id
            span.end(None if error_type in NO_ERRORS else error_type, code, message)
        call = None
        if details is not None:
            started_at = time() - seconds
            call = EndedCall(
                details, self.id, started_at, seconds, error_type, trace_id, self._client_request_id, self._result_bytes
            )
        recorder.record(series, seconds, error_type, code, call)

    def answered(self, result_bytes: int) -> None:
        """Count the length of the answer, before `end`."""
        self._series.chars += result_bytes
        self._result_bytes = result_bytes

    def end_with_code(self, code: int, message: str | None = None) -> None:
        """End with a JSON-RPC error."""
        self.end(str(code), code, message)

    def end_cancelled(self) -> None:
        """End because the request was cancelled, which is the usual end of a subscription."""
        self.end(None if self._series.method == LISTEN else CANCELLED)


class ClientOperation:
    """A request to the other side, as a context manager; an exception that leaves the block is its failure.

    Attributes:
        meta: Entries for the request's ``_meta`` that carry the trace context.
    """

    __slots__ = ("_is_error", "_recorder", "_series", "_span", "_start", "meta")

    def __init__(self, recorder: Recorder, series: OperationSeries) -> None:
        self._recorder = recorder
        self._series = series
        self._is_error = False
        self.meta: dict[str, Any] = {}

    def __enter__(self) -> Self:
        tracer = self._recorder.tracer
        self._span = None if tracer is None else tracer.start(self._series.span_name, self._series.labels)
        if tracer is not None:
            tracer.carry(self.meta)
        self._start = perf_counter()
        return self

    def answered(self, result: Mapping[str, Any]) -> None:
        """Take note of the result, in MCP's JSON."""
        self._is_error = self._series.is_call and result.get("isError") is True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        seconds = perf_counter() - self._start
        error_type, code = classify_error(error)
        if error_type == CANCELLED and self._series.method == LISTEN:
            error_type = None
        if self._is_error:
            error_type = TOOL_ERROR
        if self._span is not None:
            self._span.end(error_type, code, None if code is None else str(error))
        self._recorder.record(self._series, seconds, error_type, code)


def error_type_of(result: Mapping[str, Any]) -> str | None:
    """The error type of a call's result: ``tool_error``, ``refused``, ``input_required``, ``task``, or None."""
    if result.get("isError") is True:
        return REFUSED if RETRY_AFTER_META_KEY in (result.get("_meta") or ()) else TOOL_ERROR
    kind = result.get("resultType")
    return kind if kind in NO_ERRORS else None


def classify_error(error: BaseException | int | None) -> tuple[str | None, int | None]:
    """The type of an error and its JSON-RPC code, which may be given in place of the error."""
    if error is None:
        return None, None
    if isinstance(error, int):
        return str(error), error
    if not isinstance(error, Exception):
        return CANCELLED, None
    code = getattr(error, "code", None)
    return (str(code), code) if isinstance(code, int) else (type(error).__name__, None)
