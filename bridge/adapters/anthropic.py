"""Tools for programs that use Anthropic's SDK themselves.

message = await client.messages.create(model=…, messages=messages, tools=anthropic_tools(box), max_tokens=…)
messages += [{"role": "assistant", "content": message.content}, *await run_anthropic(box, message)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.adapters.calls import box_of
from bridge.adapters.replies import conversation_with, read_reply, request_with, run_all
from bridge.models.anthropic.messages import AnthropicReply, written_messages
from bridge.models.anthropic.model import tool_definitions
from bridge.models.profiles.profile import ANTHROPIC
from bridge.models.provider_schemas import ProviderSchemas
from bridge.tools.execution import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anthropic.types import Message, MessageParam, ToolParam

    from bridge.service.approval import ApprovalPolicy
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy

_SCHEMAS = ProviderSchemas(ANTHROPIC)


def anthropic_tools(source: object) -> list[ToolParam]:
    """Return the current tools as ``tools`` of a message request.

    Schemas are rewritten where Anthropic does not support them, and names are those that it accepts.

    Args:
        source: A ToolBox, an `bridge.McpToolProvider`, a `bridge.client.BlockingToolProvider`, or another source of
            tools (see `bridge.tools_from`).

    Raises:
        DefinitionError: The source has no tools.
    """
    definitions: list[Any] = tool_definitions(request_with(box_of(source), _SCHEMAS))
    return definitions


async def run_anthropic(
    source: object,
    message: Message | Mapping[str, Any],
    *,
    approval: ApprovalPolicy | None = None,
    context: InvocationContext | None = None,
    policy: ExecutionPolicy = LOCAL,
) -> list[MessageParam]:
    """Run the tool calls of a message, one after another, and return the message that answers it.

    Args:
        source: The source of `anthropic_tools`.
        message: The complete message, or its JSON; it goes into the conversation before the returned one.
        approval: Selects the calls that need approval, and decides about them. Only those with the verdict YES run.
        context: Context of the calls.
        policy: Limits, callbacks and error handling.

    Returns:
        One user message with the results; none if the message calls no tools.

    Raises:
        DefinitionError: The source has no tools, or the message is none.
    """
    box = box_of(source)
    request = request_with(box, _SCHEMAS)
    calls = read_reply(message, AnthropicReply(request).complete, "Message").message.tool_execution_requests
    results = await run_all(box, calls, approval=approval, context=context, policy=policy)
    messages: list[Any] = written_messages(conversation_with(results, request))
    return messages
