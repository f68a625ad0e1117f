"""Result: what an invocation of an AI service gave beside its content (LangChain4j's Result)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from bridge.service.chat_model import TokenUsage

if TYPE_CHECKING:
    from bridge.service.chat_model import ChatResponse, FinishReason
    from bridge.tools.tool import ToolExecution

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T_co]):
    """The content, and how it came about. A method that returns ``Result[T]`` tells more than one that returns T."""

    content: T_co
    """What the model said, as the method wants it; where a tool's result is the answer: that."""
    tool_executions: tuple[ToolExecution, ...] = ()
    """The tools that ran, in the order in which the model called them, with their times."""
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    """The tokens of all the model's responses together."""
    intermediate_responses: tuple[ChatResponse, ...] = ()
    """The responses before the last."""
    final_response: ChatResponse
    """The last response; it calls tools where a tool's result is the answer."""

    @property
    def finish_reason(self) -> FinishReason:
        """Why the model stopped."""
        return self.final_response.finish_reason
