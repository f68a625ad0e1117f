"""Sampling: which traces that begin here are to be seen, decided before anybody works for one."""

from __future__ import annotations

from contextlib import contextmanager
from random import random
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult, TraceIdRatioBased

if TYPE_CHECKING:
    from collections.abc import Iterator


class ShareSampler(Sampler):
    """Samples a share of the traces that begin here, by lot.

    Args:
        share: The share, from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._by_id = TraceIdRatioBased(share)
        self._is_drawn = False

    def draw(self) -> bool:
        """Whether a trace that begins now is sampled."""
        return random() < self._share  # noqa: S311 - a lot, and no secret

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """In this block, which waits for nothing, a trace begins that was drawn already."""
        self._is_drawn = True
        try:
            yield
        finally:
            self._is_drawn = False

    def should_sample(self, *arguments: Any, **named: Any) -> SamplingResult:
        """What the SDK asks."""
        return (ALWAYS_ON if self._is_drawn else self._by_id).should_sample(*arguments, **named)

    def get_description(self) -> str:
        """What the SDK calls it."""
        return f"ShareSampler{{{self._share}}}"
