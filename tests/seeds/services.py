"""The interface that most of the examples use, and a word for calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from bridge import ToolExecutionRequest, ai_service
from bridge.testing import ScriptedChatModel

if TYPE_CHECKING:
    from bridge import Result
    from bridge.models.scripted import Reply

DEADLINE_SECONDS = 20.0
"""How long anything here may take before it is taken to hang."""


class Assistant(Protocol):
    """Answers, and tells how."""

    async def chat(self, message: str) -> Result[str]: ...


def call(name: str, **arguments: Any) -> ToolExecutionRequest:
    """A call as a model wants it."""
    return ToolExecutionRequest(name, arguments, id=f"call_{name}")


def assistant(*replies: Reply, **options: Any) -> tuple[Assistant, ScriptedChatModel]:
    """A service whose model gives these replies, and the model."""
    model = ScriptedChatModel(replies)
    return ai_service(Assistant, chat_model=model, **options), model


def told(model: ScriptedChatModel) -> list[str | None]:
    """What the model was told of tools, request after request: the last message of each but the first."""
    return [request.messages[-1].text for request in model.requests[1:]]
