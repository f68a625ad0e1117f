"""The interface of most examples, and helpers for calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from bridge import ToolExecutionRequest, ai_service
from bridge.testing import ScriptedChatModel

if TYPE_CHECKING:
    from bridge import Result
    from bridge.models.scripted import Reply

DEADLINE_SECONDS = 60
"""Maximum seconds of a test; then it has hung."""


class Assistant(Protocol):
    """Answer, and return the details."""

    async def chat(self, message: str) -> Result[str]: ...


def call(name: str, **arguments: Any) -> ToolExecutionRequest:
    """Return a call as a model requests it."""
    return ToolExecutionRequest(name, arguments, id=f"call_{name}")


def assistant(*replies: Reply, **options: Any) -> tuple[Assistant, ScriptedChatModel]:
    """Return a service whose model gives these replies, and the model."""
    model = ScriptedChatModel(replies)
    return ai_service(Assistant, chat_model=model, **options), model


def told(model: ScriptedChatModel) -> list[str | None]:
    """Messages that the model received after its first request: the last one of each request."""
    return [request.messages[-1].text for request in model.requests[1:]]
