from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bridge.models.conversation import arguments_as_object, arguments_as_text, conversation_of, generated_id
from bridge.service.chat_model import ToolChoice
from bridge.service.messages import AiMessage, ChatMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Text
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from tests.models.requests import CONVERSATION, SEARCH, asking


def calling(*calls: tuple[str, str | None]) -> AiMessage:
    """Return a message that calls tools."""
    return AiMessage(None, tuple(ToolExecutionRequest(name, {}, call_id) for name, call_id in calls))


def result(name: str, call_id: str | None = None) -> ToolExecutionResultMessage:
    """Return a result."""
    return ToolExecutionResultMessage(call_id, name, (Text("3"),))


def ids_in(*messages: ChatMessage) -> list[str | None]:
    """Return the IDs of the calls and results of a conversation."""
    found: list[str | None] = []
    for message in conversation_of(asking(*messages)).messages:
        if isinstance(message, AiMessage):
            found += [request.id for request in message.tool_execution_requests]
        elif isinstance(message, ToolExecutionResultMessage):
            found.append(message.id)
    return found


def test_messages_whose_calls_have_ids_stay_as_they_are() -> None:
    assert conversation_of(asking(*CONVERSATION)).messages == CONVERSATION


def test_results_without_ids_belong_to_the_calls_in_their_order() -> None:
    assert ids_in(calling(("a", None), ("b", None)), result("a"), result("b")) == ["call_0_0", "call_0_1"] * 2


def test_results_belong_to_calls_of_their_tool_first() -> None:
    ids = ids_in(calling(("a", None), ("b", None)), result("b"), result("a"))
    assert ids == ["call_0_0", "call_0_1", "call_0_1", "call_0_0"]


def test_ids_that_are_there_stay_and_later_calls_have_others() -> None:
    first, second = calling(("a", "x"), ("a", None)), calling(("a", None))
    ids = ids_in(first, result("a", "x"), result("a"), UserMessage.of("?"), second, result("a"))
    assert ids == ["x", "call_0_1", "x", "call_0_1", "call_4_0", "call_4_0"]


def test_a_result_without_a_call_has_an_id_all_the_same() -> None:
    assert ids_in(UserMessage.of("?"), result("a")) == ["call_1"]


def test_names_of_all_tools_are_safe_and_differ() -> None:
    request = asking(calling(("files search", "x")), tool_specifications=(SEARCH,), tool_choice=ToolChoice.of("größe"))
    names = conversation_of(request).names
    assert names["files.search"] != names["files search"]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names.values())
    assert names["größe"] == "gr__e"


def test_ids_are_what_the_provider_takes() -> None:
    request = asking(calling(("a", "functions.a:0"), ("a", "x" * 70)))
    ids = conversation_of(request, max_id_chars=40, forbidden_in_id="[^a-z]").ids
    assert ids["functions.a:0"] == "functions_a__"
    assert len(ids["x" * 70]) == 40
    assert conversation_of(request).ids["functions.a:0"] == "functions.a:0"


def test_a_conversation_mentions_tools_only_where_there_are_calls_or_results() -> None:
    specification = ToolSpecification(name="a")
    assert not conversation_of(asking("?", tool_specifications=(specification,))).mentions_tools
    assert conversation_of(asking(result("a", "x"))).mentions_tools


@given(st.lists(st.one_of(st.none(), st.integers(), st.text()), max_size=3))
def test_a_made_id_is_the_same_for_the_same_parts_and_safe(parts: list[object]) -> None:
    assert generated_id(*parts) == generated_id(*parts)
    assert re.fullmatch(r"call_[0-9a-f]{24}", generated_id(*parts))
    assert generated_id(*parts) != generated_id(*parts, 1)


def test_arguments_are_written_as_text_and_as_an_object() -> None:
    for arguments in ({"a": "größe"}, '{"a":"größe"}'):
        request = ToolExecutionRequest("t", arguments)
        assert arguments_as_text(request) == '{"a":"größe"}'
        assert arguments_as_object(request) == {"a": "größe"}
    for request in (ToolExecutionRequest("t"), ToolExecutionRequest("t", ""), ToolExecutionRequest("t", " \n")):
        assert arguments_as_text(request) == "{}"
        assert arguments_as_object(request) == {}
    assert arguments_as_object(ToolExecutionRequest("t", "[1]")) == {"malformed_arguments": "[1]"}
