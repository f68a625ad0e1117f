"""Processor time of a repeated operation, which other processes of the machine do not count into."""

from __future__ import annotations

import gc
from time import process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ROUNDS = 15


async def best_seconds(work: Callable[[], Awaitable[object]], *, calls: int, rounds: int = _ROUNDS) -> float:
    """Return the processor seconds of one repetition, in the best of several rounds, without those of the loop.

    Args:
        work: Called and awaited repeatedly.
        calls: Repetitions of a round.
        rounds: Number of rounds.
    """

    async def nothing() -> None:
        pass

    gc.disable()  # a collection would count for only one of the rounds
    try:
        empty = min([await _round(nothing, calls) for _ in range(rounds)])
        return max(0.0, min([await _round(work, calls) for _ in range(rounds)]) - empty)
    finally:
        gc.enable()


async def _round(work: Callable[[], Awaitable[object]], calls: int) -> float:
    start = process_time()
    for _ in range(calls):
        await work()
    return (process_time() - start) / calls
