"""What is left out: traces that nobody will see, at next to no cost.

What runs within one must know: it begins no trace of its own, and tells servers not to. One context says so for many.
"""

from __future__ import annotations

from random import getrandbits
from typing import TYPE_CHECKING

from opentelemetry import context, trace
from opentelemetry.context import Context

if TYPE_CHECKING:
    from contextvars import Token

_TOGETHER = 1000
"""For how many traces one context stands: other instruments may hand its ids on."""


class _Mark(trace.NonRecordingSpan):
    """The current span of what is left out."""


class LeftOut:
    """Leaves traces out."""

    def __init__(self) -> None:
        self._entered = 0
        self._context = Context()

    def enter(self) -> LeftOutSpan:
        """Let what follows be left out."""
        if self._entered % _TOGETHER == 0:
            mark = _Mark(trace.SpanContext(getrandbits(128), getrandbits(64), is_remote=False))
            self._context = trace.set_span_in_context(mark, Context())
        self._entered += 1
        return LeftOutSpan(context.attach(self._context))


class LeftOutSpan:
    """What stands for a span that nobody will see."""

    __slots__ = ("_token", "trace_id")

    def __init__(self, token: Token[Context]) -> None:
        self._token = token
        self.trace_id: str | None = None

    def end(self, error_type: str | None, code: int | None, message: str | None) -> None:  # noqa: ARG002 - a span's
        """Another is the current one again."""
        context.detach(self._token)


def is_left_out() -> bool:
    """Whether the current trace is left out."""
    return isinstance(trace.get_current_span(), _Mark)


def left_out_traceparent() -> str:
    """What tells a server to leave the trace out, too (W3C Trace Context, "Sampled flag")."""
    return f"00-{getrandbits(128):032x}-{getrandbits(64):016x}-00"
