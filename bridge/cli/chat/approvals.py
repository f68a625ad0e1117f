"""Approval of tool calls by the user of a conversation: once, always or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from bridge.cli.chat.display import written_arguments
from bridge.cli.interaction.lines import InputInterruptedError
from bridge.service.approval import ApprovalPolicy, Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.cli.chat.display import Display
    from bridge.cli.interaction.lines import LineInput
    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool, ToolExecutionRequest

_CHOICES = {
    **dict.fromkeys(("o", "once", "y", "yes"), "once"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("never",), "never"),
    **dict.fromkeys(("", "n", "no"), "no"),
}


class Approvals:
    """Decisions of the user; "always" and "never" hold until the tool changes, or the conversation ends.

    Args:
        lines: Input of the user.
        display: Output of the conversation.

    Attributes:
        stop: Ends the current answer.
    """

    def __init__(self, lines: LineInput, display: Display) -> None:
        self.stop: Callable[[], object] = lambda: None
        self._lines = lines
        self._display = display
        self._decided: dict[str, tuple[ToolSpecification, Decision]] = {}

    async def ask(self, request: ToolExecutionRequest, tool: Tool, context: InvocationContext) -> Decision:  # noqa: ARG002 - an Approver's
        """Ask the user about a call, unless "always" or "never" was the answer for this tool."""
        specification, decided = self._decided.get(tool.name, (None, None))
        if decided is not None and specification == tool.specification:
            return decided
        self._display.note(f"?? {request.name} {written_arguments(request)}", "yellow")
        match await self._choice():
            case "once":
                return Decision.yes()
            case "always":
                decision = Decision.yes()
            case "never":
                decision = Decision.no("the user never allows this tool in this conversation")
            case _:
                return Decision.no("the user said no")
        self._decided[tool.name] = (tool.specification, decision)
        return decision

    async def _choice(self) -> str:
        while True:
            try:
                answer = await self._lines.line("   allow once, always or never? Enter for no: ")
            except InputInterruptedError:
                self.stop()
                await anyio.lowlevel.checkpoint()
                raise
            if answer is None:
                return "no"
            if (choice := _CHOICES.get(answer.strip().lower())) is not None:
                return choice


def approval_policy(approve: str, approvals: Approvals | None) -> ApprovalPolicy | None:
    """Approval policy for calls that are not known to be read-only; None if every call may run.

    Args:
        approve: ``ask``, ``auto`` or ``deny``.
        approvals: Asks the user; None if there is nobody to ask.
    """
    if approve == "auto":
        return None
    if approve == "ask" and approvals is not None:
        return ApprovalPolicy(approve=approvals.ask)
    reason = "the user allows no tool that may change something"
    if approve == "ask":
        reason = "there is no terminal to ask for approval; --approve auto allows every tool"
    return ApprovalPolicy(approve=lambda *_: Decision.no(reason))
