"""Sampling: which traces that begin here are to be seen, decided before anybody works for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, SamplingResult, TraceIdRatioBased

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.trace import Link, SpanKind, TraceState
    from opentelemetry.util.types import Attributes


class ShareSampler(ParentBased):
    """Samples a share of the traces that begin here, by lot; of those that go on here, what their parents sampled.

    Args:
        share: The share, from 0 to 1.

    Attributes:
        share: The same.
        drawn: The context in which a trace begins that was drawn before: this very one, and there is nothing in it.
    """

    def __init__(self, share: float) -> None:
        super().__init__(TraceIdRatioBased(share))
        self.share = share
        self.drawn = Context()

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """What the SDK asks."""
        if parent_context is self.drawn:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return super().should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """What the SDK calls it."""
        return f"ShareSampler{{{self.share}}}"
