"""The loop of an AI service beside those of other agents: time beyond the model and the tools

All agents have the same scripted conversation, with coroutine functions as tools. Each agent has a process of its own;
they take turns, setting by setting. The conversation's memory is in RAM: bridge reads and writes its own, the others
get theirs as an argument. The others run the tools of one response together, bridge does so if configured.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.agents.conversation import Setting
from tests.benchmarks.agents.peers import NotInstalledError, python_with_agents
from tests.benchmarks.agents.process import AgentProcess, measuring
from tests.benchmarks.table import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.benchmarks.table import Table

OURS = "bridge"
OURS_TOGETHER = "bridge, tools together"
PEERS = {"pydantic_ai": "pydantic-ai", "langchain": "LangChain"}
SETTINGS = [
    Setting(tools=1, memory=10),
    Setting(tools=100, memory=10),
    Setting(tools=1000, memory=10),
    Setting(tools=1, memory=100),
    Setting(tools=1, memory=1000),
]
SECONDS = 1.0
"""Seconds for which each agent is measured in each setting."""
FIGURES = {
    "round trip": "A round trip of a loop, without what its model and its tool take",
    "tool call": "A further tool call in a response, without what the tool takes",
    "turn": "A turn of one round trip, without what its model and its tool take",
}
MAX_MEMORY_FOR_TOOL_CALLS = 10
"""Maximum earlier messages with which a tool call is measured; with more, it is lost in the noise."""

Figures = dict[Setting, dict[str, dict[str, list[float]]]]
"""Results of `AgentProcess.measure`, by setting and agent."""


@pytest.fixture(scope="module")
def others(request: pytest.FixtureRequest) -> str | NotInstalledError:
    """Return a Python in which the other agents are installed, or the reason why there is none."""
    if request.config.getoption("--benchmark-disable"):
        return NotInstalledError("nothing is measured")
    try:
        return python_with_agents()
    except NotInstalledError as error:
        return error


@pytest.fixture(scope="module")
def agents(others: str | NotInstalledError) -> Iterator[Mapping[str, AgentProcess]]:
    """Return the available agents by name."""
    with ExitStack() as ended_later:
        found = {
            OURS: ended_later.enter_context(measuring(sys.executable, "bridge")),
            OURS_TOGETHER: ended_later.enter_context(measuring(sys.executable, "bridge_together")),
        }
        if isinstance(others, str):
            for agent, name in PEERS.items():
                found[name] = ended_later.enter_context(measuring(others, agent))
        yield found


@pytest.fixture(scope="module")
def figures(request: pytest.FixtureRequest, table: Table) -> Iterator[Figures]:
    """Yield the results; at the end they are added to the table."""
    measured: Figures = {}
    yield measured
    if request.config.getoption("--benchmark-disable"):
        return
    for figure, heading in FIGURES.items():
        for setting, by_agent in measured.items():
            if figure != "tool call" or setting.memory <= MAX_MEMORY_FOR_TOOL_CALLS:
                for row in rows(heading, figure, setting, by_agent):
                    table.add(row)


def rows(heading: str, figure: str, setting: Setting, by_agent: dict[str, dict[str, list[float]]]) -> Iterator[Row]:
    """Add one figure of all agents in one setting."""
    surroundings = f"{setting.tools:,} {'tool' if setting.tools == 1 else 'tools'}, {setting.memory:,} messages"
    for name, measured in by_agent.items():
        best, median = measured[figure]
        yield Row(
            group=heading,
            name=f"{surroundings}: {name}",
            best_seconds=best,
            median_seconds=median,
            beside=f"{surroundings}: {OURS}",
        )


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: f"{setting.tools}-tools-{setting.memory}-messages")
def bench_loop(
    agents: Mapping[str, AgentProcess], figures: Figures, setting: Setting, request: pytest.FixtureRequest
) -> None:
    seconds = 0 if request.config.getoption("--benchmark-disable") else SECONDS
    figures[setting] = {name: agent.measure(setting, seconds) for name, agent in agents.items()}


def bench_others_are_there(others: str | NotInstalledError) -> None:
    """Skip with the reason if the table lacks the other agents."""
    if isinstance(others, NotInstalledError):
        pytest.skip(str(others))
