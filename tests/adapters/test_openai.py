from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from openai import AsyncOpenAI

from bridge import ApprovalPolicy, ExecutionPolicy, InvocationContext, ToolBox, tool
from bridge.adapters import openai_responses_tools, openai_tools, run_openai, run_openai_responses
from bridge.errors import ChatModelError, DefinitionError
from bridge.service import Decision, for_tools
from bridge.testing import connected
from tests.adapters.tools import Waiting, add, box, count, who_am_i
from tests.models import openai_wire
from tests.models.provider import json_answer, running_provider
from tests.models.requests import PDF_BASE64, PIXEL_BASE64

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

IMAGE_URL = f"data:image/png;base64,{PIXEL_BASE64}"


@asynccontextmanager
async def client_of(answer: Any) -> AsyncIterator[tuple[AsyncOpenAI, list[Any]]]:
    """A client whose server gives a response, and the requests that it sends."""
    with running_provider() as provider:
        provider.will_answer(answer)
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="secret", max_retries=0) as client:
            yield client, provider.requests


async def completed(*calls: tuple[str, str, str], source: object = None) -> tuple[ChatCompletion, Any]:
    """A chat completion with calls, each an id, a name and JSON text, and the body of its request."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    answer = openai_wire.completion({"tool_calls": made}, reason="tool_calls") if made else openai_wire.completion({})
    async with client_of(answer) as (client, requests):
        completion = await client.chat.completions.create(
            model="test", messages=[{"role": "user", "content": "Go."}], tools=openai_tools(source or box())
        )
        return completion, requests[0].body


async def responded(*calls: tuple[str, str, str]) -> tuple[Response, Any]:
    """As `completed`, of the responses API."""
    output: list[Any] = [
        {"type": "function_call", "id": f"fc_{i}", "call_id": call_id, "name": name, "arguments": arguments}
        for i, (call_id, name, arguments) in enumerate(calls)
    ]
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}
    whole = {"id": "r", "object": "response", "created_at": 1, "model": "test", "output": [message, *output]}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    async with client_of(json_answer(whole | settings)) as (client, requests):
        response = await client.responses.create(model="test", input="Go.", tools=openai_responses_tools(box()))
        return response, requests[0].body


async def test_a_request_has_the_tools_as_openai_wants_them() -> None:
    _, body = await completed()
    definitions = {each["function"]["name"]: each for each in body["tools"]}
    assert list(definitions) == ["add", "chart", "attach", "delete", "who_am_i", "count"]
    function = {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": box().get("add").specification.parameters,
    }
    assert definitions["add"] == {"type": "function", "function": function}
    _, body = await responded()
    assert body["tools"][0] == {"type": "function", "strict": False, **function}


@pytest.mark.parametrize("is_json", [False, True])
async def test_the_messages_that_answer_a_completion(*, is_json: bool) -> None:
    calls = ("one", "add", '{"a": 1}'), ("two", "chart", '{"city": "Oslo"}'), ("three", "delete", '{"path": "a"}')
    completion, _ = await completed(*calls, ("four", "who_am_i", ""), ("five", "nothing", "{}"))
    reply = completion.to_dict() if is_json else completion
    assert await run_openai(box(), reply, context=InvocationContext(parameters={"user": "ada"})) == [
        {"role": "tool", "tool_call_id": "one", "content": '{"total":2}'},
        {"role": "tool", "tool_call_id": "two", "content": "A chart of Oslo.\n(shown in the next user message)"},
        {"role": "tool", "tool_call_id": "three", "content": "Error: a is locked; close it first"},
        {"role": "tool", "tool_call_id": "four", "content": "{'user': 'ada'} in None"},
        {"role": "tool", "tool_call_id": "five", "content": "Error: there is no tool named 'nothing'"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of chart (two):"},
                {"type": "image_url", "image_url": {"url": IMAGE_URL}},
            ],
        },
    ]


@pytest.mark.parametrize("is_json", [False, True])
async def test_the_items_that_answer_a_response(*, is_json: bool) -> None:
    calls = ("one", "add", '{"a": 1}'), ("two", "chart", '{"city": "Oslo"}'), ("three", "attach", "{}")
    response, _ = await responded(*calls, ("four", "delete", '{"path": "a"}'), ("five", "add", "[]"))
    assert await run_openai_responses(box(), response.to_dict() if is_json else response) == [
        {"type": "function_call_output", "call_id": "one", "output": '{"total":2}'},
        {
            "type": "function_call_output",
            "call_id": "two",
            "output": [
                {"type": "input_text", "text": "A chart of Oslo."},
                {"type": "input_image", "image_url": IMAGE_URL},
            ],
        },
        {
            "type": "function_call_output",
            "call_id": "three",
            "output": [
                {
                    "type": "input_file",
                    "filename": "report.pdf",
                    "file_data": f"data:application/pdf;base64,{PDF_BASE64}",
                },
                {"type": "input_text", "text": "[audio/wav: 4 bytes, not shown]"},
                {"type": "input_text", "text": "file:///a.txt:\none"},
            ],
        },
        {"type": "function_call_output", "call_id": "four", "output": "Error: a is locked; close it first"},
        {
            "type": "function_call_output",
            "call_id": "five",
            "output": "Error: invalid arguments for 'add': should be a JSON object, got []",
        },
    ]


CALL = {"id": "one", "type": "function", "function": {"name": "add", "arguments": "{}"}}


@pytest.mark.parametrize(
    "reply", [None, "add", [CALL], CALL["function"], {"choices": [{}]}, {"choices": 1}, {"choices": ["add"]}]
)
async def test_what_is_no_reply_is_refused(reply: Any) -> None:
    with pytest.raises((DefinitionError, ChatModelError), match=r"a complete ChatCompletion .* not |no choices"):
        await run_openai(box(), reply)
    with pytest.raises(DefinitionError, match="expected a complete Response of the SDK, or its JSON as a dict, not "):
        await run_openai_responses(box(), reply)


async def test_ids_are_kept_whatever_their_length() -> None:
    completion, _ = await completed(("i" * 100, "add", '{"a": 1}'))
    (message,) = await run_openai(box(), completion)
    assert message["tool_call_id"] == "i" * 100  # type: ignore[typeddict-item]  # the message of a tool


async def test_a_strict_tool_gets_no_nulls() -> None:
    @tool(strict=True)
    def greet(name: str, greeting: str = "Hello") -> str:
        """Greet."""
        return f"{greeting}, {name}"

    completion, body = await completed(("one", "greet", '{"name": "Ada", "greeting": null}'), source=greet)
    assert body["tools"][0]["function"]["strict"] is True
    (message,) = await run_openai(greet, completion)
    assert message.get("content") == "Hello, Ada"


async def test_calls_that_are_not_approved_do_not_run() -> None:
    completion, _ = await completed(("one", "add", '{"a": 1}'), ("two", "count", "{}"), ("three", "who_am_i", "{}"))
    decisions = {"count": Decision.no("not before noon"), "who.am.i": Decision.later()}
    policy = ApprovalPolicy(approve=lambda request, tool, context: decisions[tool.name], applies=for_tools(*decisions))
    messages = await run_openai([add, count, who_am_i], completion, approval=policy)
    assert [each.get("content") for each in messages] == [
        '{"total":2}',
        "Error: not before noon",
        "Error: the call was not approved",
    ]


@pytest.mark.parametrize("api", ["completion", "response"])
async def test_a_cancelled_program_cancels_its_calls(api: str) -> None:
    waiting = Waiting()
    completion, _ = await completed(("one", "wait", "{}"))
    response, _ = await responded(("one", "wait", "{}"))
    async with anyio.create_task_group() as tasks:
        if api == "completion":
            tasks.start_soon(run_openai, waiting, completion)
        else:
            tasks.start_soon(run_openai_responses, waiting, response)
        await waiting.started.wait()
        tasks.cancel_scope.cancel()
    await waiting.cancelled.wait()


async def test_progress_reaches_the_context_of_the_calls() -> None:
    seen: list[Any] = []

    async def report(*progress: Any) -> None:
        seen.append(progress)

    completion, _ = await completed(("one", "count", "{}"))
    await run_openai(box(), completion, context=InvocationContext().fork(report))
    assert seen == [(1, 2, "half"), (2, 2, None)]


async def test_exceptions_propagate_if_the_policy_says_so() -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise LookupError("no")

    completion, _ = await completed(("one", "broken", "{}"), source=broken)
    with pytest.raises(LookupError):
        await run_openai(broken, completion, policy=ExecutionPolicy(propagate=True))


async def test_a_reply_without_calls_is_answered_by_nothing() -> None:
    completion, _ = await completed()
    assert await run_openai(box(), completion) == []
    response, _ = await responded()
    assert await run_openai_responses(box(), response) == []
    completion.choices = []
    with pytest.raises(ChatModelError, match="the reply has no choices"):
        await run_openai(box(), completion)


async def test_the_tools_of_a_provider_are_the_current_ones() -> None:
    served = ToolBox(add)
    async with connected(served) as provider:
        assert [each["function"]["name"] for each in openai_tools(provider)] == ["add"]
        served.add(count)
        await provider.refresh()
        assert [each["function"]["name"] for each in openai_tools(provider)] == ["add", "count"]
        completion, _ = await completed(("one", "count", "{}"), source=provider)
        (message,) = await run_openai(provider, completion)
        assert message.get("content") == "counted"


async def test_a_source_without_tools_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no tools"):
        openai_tools(3)
