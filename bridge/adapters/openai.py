"""Tools for programs that use OpenAI's SDK themselves: chat completions and responses.

reply = await client.chat.completions.create(model=…, messages=messages, tools=openai_tools(box))
messages += [reply.choices[0].message, *await run_openai(box, reply)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.adapters.calls import box_of, shown_to_model
from bridge.adapters.replies import conversation_with, read_reply, request_with, run_all
from bridge.models.encoding import base64_of, file_name_of, image_in, is_pdf
from bridge.models.openai.messages import MessageWriter, OpenAiReply
from bridge.models.openai.model import tool_definition
from bridge.models.profiles.profile import OPENAI
from bridge.models.provider_schemas import ProviderSchemas
from bridge.tools.content import File, describe_block
from bridge.tools.execution import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionToolParam
    from openai.types.responses import FunctionToolParam, Response
    from openai.types.responses.response_input_param import FunctionCallOutput

    from bridge.service.approval import ApprovalPolicy
    from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.types import Json

SCHEMAS = ProviderSchemas(OPENAI)
"""Definitions of tools for OpenAI; strict where a tool's specification requests it."""


def openai_tools(source: object) -> list[ChatCompletionToolParam]:
    """Return the current tools as ``tools`` of a chat completion.

    Schemas are rewritten where OpenAI does not support them, and names are those that it accepts.

    Args:
        source: A ToolBox, an `bridge.McpToolProvider`, a `bridge.client.BlockingToolProvider`, or another source of
            tools (see `bridge.tools_from`).

    Raises:
        DefinitionError: The source has no tools.
    """
    definitions: list[Any] = [tool_definition(tool) for tool in request_with(box_of(source), SCHEMAS).tools.values()]
    return definitions


async def run_openai(
    source: object,
    reply: ChatCompletion | Mapping[str, Any],
    *,
    approval: ApprovalPolicy | None = None,
    context: InvocationContext | None = None,
    policy: ExecutionPolicy = LOCAL,
) -> list[ChatCompletionMessageParam]:
    """Run the tool calls of a chat completion, one after another, and return the messages that answer it.

    Images and files of results are in a user message, which follows the results. A failed tool's result begins with
    ``Error:``.

    Args:
        source: The source of `openai_tools`.
        reply: The complete reply, or its JSON; its message goes into the conversation before the returned ones.
        approval: Selects the calls that need approval, and decides about them. Only those with the verdict YES run.
        context: Context of the calls.
        policy: Limits, callbacks and error handling.

    Returns:
        The messages; none if the reply calls no tools.

    Raises:
        ChatModelError: The reply has no choices.
        DefinitionError: The source has no tools, or the reply is none.
    """
    box = box_of(source)
    request = request_with(box, SCHEMAS)
    read = read_reply(reply, OpenAiReply(request).complete, "ChatCompletion")
    calls = read.message.tool_execution_requests
    results = await run_all(box, calls, approval=approval, context=context, policy=policy)
    conversation = conversation_with(results, request)
    writer = MessageWriter(conversation, images_in_tool_results=False, send_thinking=False)
    messages: list[Any] = list(writer.written())
    return messages


def openai_responses_tools(source: object) -> list[FunctionToolParam]:
    """Return the current tools as ``tools`` of OpenAI's responses API; see `openai_tools`."""
    definitions: list[Any] = [
        {"type": "function", "strict": False, **tool_definition(tool)["function"]}
        for tool in request_with(box_of(source), SCHEMAS).tools.values()
    ]
    return definitions


async def run_openai_responses(
    source: object,
    response: Response | Mapping[str, Any],
    *,
    approval: ApprovalPolicy | None = None,
    context: InvocationContext | None = None,
    policy: ExecutionPolicy = LOCAL,
) -> list[FunctionCallOutput]:
    """Run the tool calls of a response, one after another, and return the items that answer it; see `run_openai`.

    Args:
        source: The source of `openai_responses_tools`.
        response: The complete response, or its JSON. Its output goes into the input before the returned items, unless
            ``previous_response_id`` refers to it.
        approval: Selects the calls that need approval, and decides about them. Only those with the verdict YES run.
        context: Context of the calls.
        policy: Limits, callbacks and error handling.

    Returns:
        The items, with the images and files of results; none if the response calls no tools.

    Raises:
        DefinitionError: The source has no tools, or the response is none.
    """
    box = box_of(source)
    request = request_with(box, SCHEMAS)

    def read(reply: Any) -> list[ToolExecutionRequest]:
        return [
            request.execution_request(item["name"], item["arguments"], item["call_id"])
            for item in reply.to_dict(warnings=False)["output"]
            if item["type"] == "function_call"
        ]

    calls = read_reply(response, read, "Response")
    results = await run_all(box, calls, approval=approval, context=context, policy=policy)
    items: list[Any] = [
        {"type": "function_call_output", "call_id": str(call.id), "output": _output(result)} for call, result in results
    ]
    return items


def parts_of(result: ToolExecutionResult) -> str | list[Json]:
    """Write what the model reads of a result as text, or as a list of text, images and PDF files.

    OpenAI's API has no error flag, so that the text of a failure begins with ``Error:``.
    """
    parts = [_part(block) for block in shown_to_model(result)]
    if all(part["type"] == "text" for part in parts):
        return "Error: " * result.is_error + "\n".join(part["text"] for part in parts)
    return [{"type": "text", "text": "Error:"}, *parts] if result.is_error else parts


def _output(result: ToolExecutionResult) -> str | list[Json]:
    parts = parts_of(result)
    return parts if isinstance(parts, str) else [{**part, "type": f"input_{part['type']}"} for part in parts]


def _part(block: Content) -> Json:
    if (image := image_in(block)) is not None:
        return {"type": "image", "image_url": f"data:{image.mime_type};base64,{base64_of(image)}"}
    if is_pdf(block) and isinstance(block, File):
        data = f"data:application/pdf;base64,{base64_of(block)}"
        return {"type": "file", "filename": file_name_of(block), "file_data": data}
    return {"type": "text", "text": describe_block(block)}
