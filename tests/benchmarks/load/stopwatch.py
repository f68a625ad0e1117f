"""How long a processor works for something that is repeated, whatever else the machine does."""

from __future__ import annotations

import gc
from time import process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ROUNDS = 15


async def best_seconds(work: Callable[[], Awaitable[object]], *, calls: int, rounds: int = _ROUNDS) -> float:
    """What one of many repetitions takes in the best of several rounds, the loop around it subtracted.

    Args:
        work: Called and awaited again and again.
        calls: How many repetitions a round is.
        rounds: How many rounds there are.
    """

    async def nothing() -> None:
        pass

    gc.disable()  # it would fall on whoever comes last
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
