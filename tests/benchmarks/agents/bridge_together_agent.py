"""An AI service of bridge that runs the tools of one response concurrently, as the other agents do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.agents import bridge_agent

if TYPE_CHECKING:
    from tests.benchmarks.agents.conversation import Setting


class Agent(bridge_agent.Agent):
    """The agent."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, execute_tools_concurrently=True)
