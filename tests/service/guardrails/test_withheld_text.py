"""Text of a model that no output guardrail has accepted leaves the service nowhere."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from bridge import ai_service, tool
from bridge.errors import ReplyError
from bridge.service import Retry
from bridge.service.ai_service import resume
from bridge.service.approval import ApprovalPolicy, Decision, InvocationSuspended
from bridge.service.chat_model import ChatResponse, CompleteResponse, PartialResponse, PartialThinking
from bridge.service.events import InvocationListener
from bridge.service.messages import AiMessage
from tests.service.fakes import Assistant, FakeModel, assistant, call, calls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bridge.service.chat_model import ChatEvent, ChatRequest
    from bridge.tools import InvocationContext

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    return a + b


@dataclass
class Offer:
    price: int


class Shop(Protocol):
    async def offer(self, article: str) -> Offer: ...


async def test_a_suspended_invocation_has_the_text_of_no_refused_answer() -> None:
    refused = ChatResponse(message=AiMessage("SECRET", thinking="SECRET"), raw="SECRET")
    service = assistant(
        refused,
        calls(call("add", a=1, b=2)),
        "3",
        tools=[add],
        output_guardrails=[lambda request: Retry("no") if request.text == "SECRET" else None],
        approval=ApprovalPolicy(approve=lambda *_: Decision.later()),
    )
    with pytest.raises(InvocationSuspended) as suspended:
        await service.chat("1 + 2")
    state = suspended.value.state
    assert "SECRET" not in repr([state, state.to_json(), [response.raw for response in state.responses]])
    result = await resume(service, state, {0: Decision.yes()})
    assert (result.content, len(result.intermediate_responses)) == ("3", 2)


@pytest.mark.parametrize("reply", ["SECRET", '{"price": "SECRET"}', '{"price": 1, "SECRET": 1}'])
async def test_a_reply_of_the_wrong_type_is_in_no_error_since_no_guardrail_has_checked_it(reply: str) -> None:
    failures: list[BaseException] = []

    class Failures(InvocationListener):
        def on_invocation_failed(self, error: BaseException, context: InvocationContext) -> None:
            failures.append(error)

    service = ai_service(
        Shop, chat_model=FakeModel(reply, reply), output_guardrails=[lambda _: None], listeners=[Failures()]
    )
    with pytest.raises(ReplyError, match=r"not what Shop\.offer returns.*output guardrails cannot check it") as caught:
        await service.offer("lamp")
    assert failures == [caught.value]
    assert caught.value.reply == ""
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("parts", "passed"),
    [
        ([PartialThinking("hm"), PartialResponse("go "), PartialResponse("od")], None),
        ([PartialResponse("SECRET"), PartialResponse("good")], [PartialResponse("good")]),
        ([PartialThinking("SECRET"), PartialResponse("good")], [PartialResponse("good")]),
        ([PartialThinking("hm"), PartialResponse("SECRET")], [PartialThinking("hm"), PartialResponse("good")]),
    ],
)
async def test_parts_that_are_not_the_accepted_answer_are_dropped(
    parts: list[PartialResponse | PartialThinking], passed: list[object] | None
) -> None:
    class Restarting(FakeModel):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
            for part in parts:
                yield part
            yield CompleteResponse(await self.chat(request))

    model = Restarting(AiMessage("good", thinking="hm"))
    service = ai_service(Assistant, streaming_chat_model=model, output_guardrails=[lambda _: None])
    *events, last = [event async for event in service.stream("Hello")]
    assert (events, isinstance(last, CompleteResponse)) == (parts if passed is None else passed, True)
