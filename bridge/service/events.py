"""Events: what an invocation tells while it runs (LangChain4j's TokenStream and its callbacks).

The pieces of the model's replies are those of `bridge.service.chat_model`; here is what a loop adds to them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.service.chat_model import (
    CompleteResponse,
    CompleteToolCall,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
)

if TYPE_CHECKING:
    from bridge.service.chat_model import ChatResponse
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest


@dataclass(frozen=True, slots=True)
class IntermediateResponse:
    """A response of the model is whole, and calls tools."""

    response: ChatResponse


@dataclass(frozen=True, slots=True)
class BeforeToolExecution:
    """A tool is about to run."""

    request: ToolExecutionRequest


@dataclass(frozen=True, slots=True)
class ToolExecuted:
    """There is a tool's result."""

    execution: ToolExecution


ServiceEvent = (
    PartialResponse
    | PartialThinking
    | PartialToolCall
    | CompleteToolCall
    | IntermediateResponse
    | BeforeToolExecution
    | ToolExecuted
    | CompleteResponse
)
"""What a `TokenStream` yields; `CompleteResponse` comes once, as the last."""

Emit = Callable[[ServiceEvent], Awaitable[None]]
"""Takes an event to whoever listens, and waits until it is taken."""
