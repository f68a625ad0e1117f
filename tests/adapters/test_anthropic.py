from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anthropic import AsyncAnthropic

from bridge import ApprovalPolicy, DefinitionError, InvocationContext, ToolBox
from bridge.adapters import anthropic_tools, run_anthropic
from bridge.service import for_tools
from bridge.testing import connected
from tests.adapters.tools import Waiting, box, count
from tests.models import anthropic_wire
from tests.models.provider import running_provider
from tests.models.requests import PDF_BASE64, PIXEL_BASE64

if TYPE_CHECKING:
    from anthropic.types import Message

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


async def replied(*content: dict[str, Any]) -> tuple[Message, Any]:
    """A message with this content, and the body of its request."""
    with running_provider() as provider:
        provider.will_answer(anthropic_wire.reply(*content, reason="tool_use"))
        async with AsyncAnthropic(base_url=provider.url, api_key="secret", max_retries=0) as client:
            message = await client.messages.create(
                model="test",
                max_tokens=100,
                messages=[{"role": "user", "content": "Go."}],
                tools=anthropic_tools(box()),
            )
        return message, provider.requests[0].body


async def test_a_request_has_the_tools_as_anthropic_wants_them() -> None:
    _, body = await replied(anthropic_wire.text("Hello"))
    assert [each["name"] for each in body["tools"]] == ["add", "chart", "attach", "delete", "who_am_i", "count"]
    assert body["tools"][0] == {
        "name": "add",
        "description": "Add two numbers.",
        "input_schema": box().get("add").specification.parameters,
    }


@pytest.mark.parametrize("is_json", [False, True])
async def test_the_message_that_answers_another(*, is_json: bool) -> None:
    message, _ = await replied(
        anthropic_wire.text("I look."),
        anthropic_wire.use("one", "add", {"a": 1}),
        anthropic_wire.use("two", "chart", {"city": "Oslo"}),
        anthropic_wire.use("three", "attach", {}),
        anthropic_wire.use("four", "delete", {"path": "a"}),
    )
    image = {"type": "base64", "media_type": "image/png", "data": PIXEL_BASE64}
    document = {"type": "base64", "media_type": "application/pdf", "data": PDF_BASE64}
    text = {"type": "text", "media_type": "text/plain", "data": "one"}
    assert await run_anthropic(box(), message.to_dict() if is_json else message) == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "one", "content": '{"total":2}'},
                {
                    "type": "tool_result",
                    "tool_use_id": "two",
                    "content": [{"type": "text", "text": "A chart of Oslo."}, {"type": "image", "source": image}],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "three",
                    "content": [
                        {"type": "document", "source": document, "title": "report.pdf"},
                        {"type": "text", "text": "[audio/wav: 4 bytes, not shown]"},
                        {"type": "document", "source": text, "title": "a.txt"},
                    ],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "four",
                    "content": "a is locked; close it first",
                    "is_error": True,
                },
            ],
        }
    ]


@pytest.mark.parametrize("reply", [None, "add", [], {}, {"content": [{"type": "tool_use"}]}])
async def test_what_is_no_message_is_refused(reply: Any) -> None:
    with pytest.raises(DefinitionError, match="expected a complete Message of the SDK, or its JSON as a dict, not "):
        await run_anthropic(box(), reply)


async def test_calls_that_are_not_approved_do_not_run() -> None:
    message, _ = await replied(anthropic_wire.use("one", "count", {}))
    policy = ApprovalPolicy(approve=lambda request, tool, context: False, applies=for_tools("count"))
    (answer,) = await run_anthropic(box(), message, approval=policy)
    assert answer["content"] == [
        {"type": "tool_result", "tool_use_id": "one", "content": "the call was not approved", "is_error": True}
    ]


async def test_a_cancelled_program_cancels_its_calls_and_their_progress_is_reported() -> None:
    seen: list[Any] = []

    async def report(*progress: Any) -> None:
        seen.append(progress)

    waiting = Waiting()
    message, _ = await replied(anthropic_wire.use("one", "count", {}), anthropic_wire.use("two", "wait", {}))
    async with anyio.create_task_group() as tasks:
        context = InvocationContext().fork(report)
        tasks.start_soon(partial(run_anthropic, ToolBox(count, waiting), message, context=context))
        await waiting.started.wait()
        tasks.cancel_scope.cancel()
    await waiting.cancelled.wait()
    assert seen == [(1, 2, "half"), (2, 2, None)]


async def test_the_tools_of_a_provider_are_the_current_ones() -> None:
    served = ToolBox(count)
    async with connected(served) as provider:
        assert [each["name"] for each in anthropic_tools(provider)] == ["count"]
        served.add(Waiting())
        await provider.refresh()
        assert [each["name"] for each in anthropic_tools(provider)] == ["count", "wait"]


async def test_a_message_without_calls_is_answered_by_nothing() -> None:
    message, _ = await replied(anthropic_wire.text("Hello"))
    assert await run_anthropic(box(), message) == []
