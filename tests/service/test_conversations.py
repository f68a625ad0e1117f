"""Lists of messages as the argument of a service, such as those of a prompt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import pytest

from bridge import PromptMessage, tool
from bridge.errors import DefinitionError, WireError
from bridge.service import chat_messages
from bridge.service.ai_service import ai_service, resume
from bridge.service.approval import ApprovalPolicy, Decision, InvocationSuspended, SuspendedInvocation
from bridge.service.interface import MemoryId
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.messages import AiMessage, UserMessage
from bridge.tools.content import File, Image, ResourceLink, Text
from tests.service.fakes import FakeModel, call, calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.service.chat_model import ChatRequest

pytestmark = pytest.mark.anyio

CAT = Image(b"cat", "image/png")
REVIEW = (
    PromptMessage("How do I review?"),
    PromptMessage("Slowly.", "assistant"),
    PromptMessage("Review this:"),
    PromptMessage(CAT),
)


class Assistant(Protocol):
    async def chat(self, messages: Any) -> str: ...


class Desk(Protocol):
    async def chat(self, who: Annotated[str, MemoryId], messages: Any) -> str: ...


def test_messages_of_a_prompt_become_chat_messages_and_those_of_one_role_are_joined() -> None:
    assert chat_messages(REVIEW) == [
        UserMessage.of("How do I review?"),
        AiMessage("Slowly."),
        UserMessage.of("Review this:", CAT),
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(Text("a"), "a", id="text"),
        pytest.param(File("notes://today", "buy milk"), "notes://today:\nbuy milk", id="file"),
        pytest.param(ResourceLink("notes://today", "today"), "Resource: today <notes://today>", id="link"),
        pytest.param(CAT, "[image/png: 3 bytes, not shown]", id="image"),
    ],
)
def test_content_of_the_model_becomes_text(content: Any, text: str) -> None:
    assert chat_messages([PromptMessage(content, "assistant")]) == [AiMessage(text)]


@pytest.mark.parametrize("given", [REVIEW, chat_messages(REVIEW)], ids=["prompt", "chat"])
async def test_the_model_gets_and_the_memory_keeps_the_whole_conversation(given: Sequence[Any]) -> None:
    model, memory = FakeModel("Fine.", "Bye."), ChatMemory()
    assistant = ai_service(Assistant, chat_model=model, memory=memory)
    assert await assistant.chat(given) == "Fine."
    assert await assistant.chat([UserMessage.of("Thanks")]) == "Bye."
    assert model.requests[0].messages == tuple(chat_messages(REVIEW))
    assert await memory.messages() == (
        *chat_messages(REVIEW),
        AiMessage("Fine."),
        UserMessage.of("Thanks"),
        AiMessage("Bye."),
    )


async def test_a_failed_conversation_leaves_the_memory_as_it_was() -> None:
    memory = ChatMemory()
    assistant = ai_service(Assistant, chat_model=FakeModel(ValueError("no")), memory=memory)
    with pytest.raises(ValueError, match="no"):
        await assistant.chat(REVIEW)
    assert await memory.messages() == ()


async def test_the_last_message_must_be_of_the_user() -> None:
    assistant = ai_service(Assistant, chat_model=FakeModel())
    with pytest.raises(DefinitionError, match=r"the last message for Assistant\.chat must be a user's"):
        await assistant.chat(REVIEW[:2])


@pytest.mark.parametrize("given", [[], ["a", "b"]], ids=["empty", "texts"])
async def test_other_lists_are_data_for_the_model(given: list[str]) -> None:
    model = FakeModel("Fine.")
    await ai_service(Assistant, chat_model=model).chat(given)
    assert model.requests[0].messages == (UserMessage.of(json.dumps(given, separators=(",", ":"))),)


@tool
def delete(file: str) -> str:
    """Delete a file."""
    return f"deleted {file}"


async def suspended(memory: ChatMemory) -> SuspendedInvocation:
    desk = ai_service(
        Desk,
        chat_model=FakeModel(calls(call("delete", "1", file="a"))),
        tools=delete,
        memory=memory,
        approval=ApprovalPolicy(approve=lambda *_: Decision.later()),
    )
    with pytest.raises(InvocationSuspended) as caught:
        await desk.chat("ada", (PromptMessage("Hello.", "assistant"), *REVIEW))
    return SuspendedInvocation.from_json(json.loads(json.dumps(caught.value.state.to_json())))


async def test_a_suspended_conversation_goes_on_with_all_its_messages() -> None:
    memory = ChatMemory()
    state = await suspended(memory)
    assert state.turn[state.earlier] == UserMessage.of("Review this:", CAT)
    seen: list[ChatRequest] = []

    async def done(request: ChatRequest) -> AiMessage:
        seen.append(request)
        return AiMessage("Done.")

    desk = ai_service(Desk, chat_model=FakeModel(done), tools=delete, memory=memory)
    result = await resume(desk, state, {0: Decision.yes()})
    assert result == "Done."
    assert seen[0].messages[:4] == (AiMessage("Hello."), *chat_messages(REVIEW))
    kept = await memory.of("ada").messages()
    assert kept[:3] == tuple(chat_messages(REVIEW))  # a window begins with the user
    assert kept[-1] == AiMessage("Done.")


@pytest.mark.parametrize("earlier", [-1, 1, 9])
async def test_a_stored_state_without_its_users_message_is_refused(earlier: int) -> None:
    stored = (await suspended(ChatMemory())).to_json()
    if earlier == 1:
        earlier = 2  # a message of the model
    with pytest.raises(WireError, match="without its messages"):
        SuspendedInvocation.from_json({**stored, "earlier": earlier})
