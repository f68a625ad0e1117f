"""Operations: what is asked of this process, and what it asks of others, while that lasts."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from bridge.telemetry.conventions import CANCELLED, INPUT_REQUIRED, TOOL_ERROR
from bridge.telemetry.records import id_seen

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from types import TracebackType
    from typing import Self, TypeAlias

    from bridge.telemetry.measures import Series
    from bridge.telemetry.observer import Observer
    from bridge.telemetry.records import Records, Words

    Ended: TypeAlias = tuple[Series, float, float, str | None, int | None, Words | None, object, str | None]
    """What has ended: what it was, its begin and end by `time.perf_counter`, what went wrong in a word (or
    `INPUT_REQUIRED`), the code of an error of the protocol; and for its record, if there is to be one: the words, the
    request's id, and the trace."""


class Span(Protocol):
    """A span that is open."""

    @property
    def trace_id(self) -> str | None:
        """Its trace, in hexadecimal digits; None where nobody will see it."""
        ...

    def end(self, error_type: str | None, code: int | None, message: str | None) -> None:
        """Close it."""


class Tracer(Protocol):
    """Opens spans; see `bridge.telemetry.tracing`."""

    def begins(self, meta: Mapping[str, Any] | None) -> bool:
        """Whether what a client asks is to be traced: it says a trace, or is one of those that are kept."""
        ...

    def serve(
        self, series: Series, meta: Mapping[str, Any] | None, request_id: object, session_id: str | None,
        *, is_drawn: bool,
    ) -> Span:  # fmt: skip
        """Open a span for what a client asked, within the trace that it says; the span is the current one."""
        ...

    def ask(self, series: Series) -> Span:
        """Open a span for what the other side is asked; the span is the current one."""
        ...

    def carry(self, meta: MutableMapping[str, Any]) -> None:
        """Write the current trace into ``_meta``."""


class Sink(Protocol):
    """Takes the records of calls at once, and writes them later."""

    def put(self, records: Records) -> None:
        """Take them; others take them too."""


class Serving:
    """What a client asked, while it is answered; made by `Observer.serve`, and ended once."""

    __slots__ = ("_observer", "_request_id", "_series", "_span", "_start", "_words")

    def __init__(
        self, observer: Observer, series: Series, request_id: object, meta: Mapping[str, Any] | None,
        session_id: str | None, words: Words | None, *, is_drawn: bool,
    ) -> None:  # fmt: skip
        self._observer = observer
        self._series = series
        tracer = observer.tracer
        self._span = None if tracer is None else tracer.serve(series, meta, request_id, session_id, is_drawn=is_drawn)
        self._words = words
        self._request_id = id_seen(request_id)
        if series.is_call:
            observer.in_flight += 1
        self._start = perf_counter()

    def end(self, error_type: str | None = None, code: int | None = None, message: str | None = None) -> None:
        """It was answered, or will not be.

        Args:
            error_type: What went wrong, in a word, or `INPUT_REQUIRED`; None for a success.
            code: The code of an error of the protocol.
            message: The words of that error.
        """
        end = perf_counter()
        observer, series, span, trace_id = self._observer, self._series, self._span, None
        if series.is_call:
            observer.in_flight -= 1
        if span is not None:
            trace_id = span.trace_id
            span.end(None if error_type == INPUT_REQUIRED else error_type, code, message)
        observer.note((series, self._start, end, error_type, code, self._words, self._request_id, trace_id))

    def end_with_result(self, result: object) -> None:
        """It was answered by a result, in MCP's JSON."""
        self.end(_outcome_of(result) if self._series.is_call and isinstance(result, dict) else None)

    def end_with_code(self, code: int, message: str | None = None) -> None:
        """It was answered by an error of the protocol."""
        self.end(str(code), code, message)

    def end_cancelled(self) -> None:
        """Nobody waits for the answer any more."""
        self.end(CANCELLED)


class Asking:
    """What the other side is asked, while it is awaited; made by `Observer.asking`.

    Attributes:
        meta: What goes with the request in ``_meta``, so that the other side continues the trace.
    """

    __slots__ = ("_is_error", "_observer", "_series", "_span", "_start", "meta")

    def __init__(self, observer: Observer, series: Series) -> None:
        self._observer = observer
        self._series = series
        self._is_error = False
        self.meta: dict[str, Any] = {}

    def __enter__(self) -> Self:
        tracer = self._observer.tracer
        self._span = None if tracer is None else tracer.ask(self._series)
        if tracer is not None:
            tracer.carry(self.meta)
        self._start = perf_counter()
        return self

    def answered(self, result: Mapping[str, Any]) -> None:
        """There is a result, in MCP's JSON."""
        self._is_error = self._series.is_call and result.get("isError") is True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        end = perf_counter()
        error_type, code = classified(error)
        if self._is_error:
            error_type = TOOL_ERROR
        if self._span is not None:
            self._span.end(error_type, code, None if code is None else str(error))
        self._observer.note((self._series, self._start, end, error_type, code, None, None, None))


def _outcome_of(result: Mapping[str, Any]) -> str | None:
    """What the result of a call says of it: that the tool failed, that its client is asked something, or nothing."""
    if result.get("isError") is True:
        return TOOL_ERROR
    return INPUT_REQUIRED if result.get("resultType") == INPUT_REQUIRED else None


def classified(error: BaseException | int | None) -> tuple[str | None, int | None]:
    """The type of an error, and the code of one of the protocol, as which it may be given itself."""
    if error is None:
        return None, None
    if isinstance(error, int):
        return str(error), error
    if not isinstance(error, Exception):
        return CANCELLED, None
    code = getattr(error, "code", None)
    return (str(code), code) if isinstance(code, int) else (type(error).__name__, None)
