"""OpenTelemetry's spans and metrics of invocations, model calls and tool executions, if telemetry is enabled.

The names are in `bridge.telemetry.gen_ai`; this module translates requests and responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.service.approval import InvocationSuspended
from bridge.service.chat_model import provider_of
from bridge.telemetry.conventions import TOOL_ERROR
from bridge.tools.questions import InputRequired
from bridge.types import without_none

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractContextManager

    from bridge.service.chat_model import ChatRequest, ChatResponse
    from bridge.telemetry.observer import Observer
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool, ToolExecution, ToolExecutionRequest

_PAUSES = (InvocationSuspended, InputRequired)


def observed_invocation(observer: Observer, context: InvocationContext) -> AbstractContextManager[object]:
    """Observe an invocation for the length of a block."""
    return observer.gen_ai.agent(context.interface_name or "", _PAUSES)


async def observed_response(
    observer: Observer, response: Awaitable[ChatResponse], request: ChatRequest, model: object
) -> ChatResponse:
    """Await a model's response and observe its call."""
    name = request.model_name or getattr(model, "model_name", None)
    with observer.gen_ai.model(provider_of(model), name, _request_attributes(request)) as operation:
        answer = await response
        usage = answer.token_usage
        operation.answered(answer.model_name, usage.input_tokens, usage.output_tokens, _response_attributes(answer))
    return answer


async def observed_execution(
    observer: Observer,
    execution: Awaitable[ToolExecution],
    request: ToolExecutionRequest,
    tool: Tool | None,
    context: InvocationContext,
) -> ToolExecution:
    """Await a tool's execution and observe it."""
    with observer.gen_ai.tool(None if tool is None else tool.name, context.interface_name, request.id) as operation:
        result = await execution
        if result.result.is_error:
            operation.error_type = TOOL_ERROR if result.error is None else type(result.error).__name__
    return result


def _request_attributes(request: ChatRequest) -> dict[str, Any]:
    return without_none(
        **{
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.top_p": request.top_p,
            "gen_ai.request.max_tokens": request.max_output_tokens,
            "gen_ai.request.stop_sequences": request.stop_sequences or None,
            "gen_ai.output.type": None if request.response_format is None else "json",
        }
    )


def _response_attributes(response: ChatResponse) -> dict[str, Any]:
    return without_none(
        **{
            "gen_ai.response.id": response.id,
            "gen_ai.response.finish_reasons": (response.finish_reason.value,),
            "gen_ai.usage.cache_read.input_tokens": response.token_usage.cached_input_tokens,
        }
    )
