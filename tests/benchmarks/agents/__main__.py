"""``python -m tests.benchmarks.agents AGENT``: measures one agent, in each setting given by a line of JSON.

The figures are the agent's own time: that of a turn without the model and the tools. A round trip is a tenth of what
ten more of them add to a turn, a tool call a hundredth of what a hundred more of them add to one response. Times are
processor times, which other load changes less; nothing in a turn waits.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from tests.benchmarks.agents import conversation
from tests.benchmarks.agents.conversation import Setting

if TYPE_CHECKING:
    from tests.benchmarks.agents.conversation import Agent

_MORE_TRIPS = 10
_MORE_CALLS = 100
_SHORT = (1,)
_LONG = (1,) * (1 + _MORE_TRIPS)
_WIDE = (1 + _MORE_CALLS,)
_MIN_ROUNDS = 8
_ASKED = 5


def main() -> None:
    """Answer every line."""
    make = importlib.import_module(f"tests.benchmarks.agents.{sys.argv[1]}_agent").Agent
    for line in sys.stdin:
        wanted = json.loads(line)
        agent = make(Setting(tools=wanted["tools"], memory=wanted["memory"]))
        sys.stdout.write(f"{json.dumps(asyncio.run(_measured(agent, wanted['seconds'])))}\n")
        sys.stdout.flush()


async def _measured(agent: Agent, seconds: float) -> dict[str, list[float]]:
    """Return the minimum and the median seconds of each figure."""
    await _turn(agent, _SHORT)  # warm-up
    gc.collect()
    gc.freeze()
    rounds: list[dict[str, float]] = []
    end = perf_counter() + seconds
    while len(rounds) < _MIN_ROUNDS or perf_counter() < end:
        rounds.append(await _round(agent))
    best = _own({name: min(each[name] for each in rounds) for name in rounds[0]})
    median = _own({name: sorted(each[name] for each in rounds)[len(rounds) // 2] for name in rounds[0]})
    return {name: [best[name], median[name]] for name in best}


async def _round(agent: Agent) -> dict[str, float]:
    (add,) = conversation.adders(1)
    return {
        "short": await _turn(agent, _SHORT),
        "long": await _turn(agent, _LONG),
        "wide": await _turn(agent, _WIDE),
        "model": min([await _asking(agent) for _ in range(_ASKED)]),
        "tool": await _adding(add),
    }


def _own(took: dict[str, float]) -> dict[str, float]:
    model, tool = took["model"], took["tool"]
    return {
        "turn": took["short"] - 2 * model - tool,
        "round trip": (took["long"] - took["short"]) / _MORE_TRIPS - model - tool,
        "tool call": (took["wide"] - took["short"]) / _MORE_CALLS - tool,
        "model": model,
    }


async def _turn(agent: Agent, calls: tuple[int, ...]) -> float:
    take = await agent.prepared(calls)
    conversation.ran.clear()
    start = process_time()
    await take()
    took = process_time() - start
    assert conversation.ran == [3] * sum(calls), conversation.ran
    return took


async def _asking(agent: Agent) -> float:
    ask = agent.question()
    start = perf_counter()
    await ask()
    return perf_counter() - start


async def _adding(add: object) -> float:
    assert callable(add)
    start = perf_counter()
    for _ in range(_MORE_CALLS):
        await add(1, 2)
    return (perf_counter() - start) / _MORE_CALLS


if __name__ == "__main__":
    main()
