from __future__ import annotations

from bridge.models.conversation import CallAssembler, conversation_of
from bridge.models.profiles.profile import OPENAI
from bridge.models.provider_schemas import ProviderToolWriter
from bridge.service.chat_model import CompleteToolCall, PartialToolCall
from bridge.tools.tool import ToolExecutionRequest
from tests.models.requests import ADD, SEARCH, asking

REQUEST = asking("Hello", tool_specifications=(ADD, SEARCH))
OFFERS = ProviderToolWriter(OPENAI).offers(REQUEST, conversation_of(REQUEST).names)


def test_pieces_are_told_under_the_tool_s_own_name_and_put_together() -> None:
    calls = CallAssembler(OFFERS, parsed=False)
    assert calls.begin("x", "files_search") == 0
    assert calls.add(0, '{"te') == PartialToolCall(0, "x", "files.search", '{"te')
    assert calls.add(0, 'xt":1}') == PartialToolCall(0, "x", "files.search", 'xt":1}')
    whole = ToolExecutionRequest("files.search", '{"text":1}', "x")
    assert list(calls.complete(0)) == [CompleteToolCall(0, whole)]
    assert list(calls.complete_all(broken_off=False)) == []
    assert calls.requests == (whole,)


def test_a_name_may_come_after_the_call_began() -> None:
    calls = CallAssembler(OFFERS, parsed=False)
    calls.begin("x")
    assert calls.add(0, "", "add").name == "add"
    assert calls.add(0, "", "other").name == "add"


def test_a_call_is_closed_when_its_arguments_are_an_object() -> None:
    calls = CallAssembler(OFFERS, parsed=False)
    calls.begin("x", "add")
    for piece, closed in (("", 0), ('{"a":', 0), ("1", 0), ("}", 1)):
        calls.add(0, piece)
        assert len(list(calls.complete_if_closed(0))) == closed


def test_arguments_become_objects_where_that_is_wanted_and_can_be() -> None:
    for text, parsed in (("", {}), ('{"a":1}', {"a": 1}), ('{"a":', '{"a":'), ("[1]", "[1]")):
        calls = CallAssembler(OFFERS, parsed=True)
        calls.begin("x", "add")
        calls.add(0, text)
        list(calls.complete_all(broken_off=False))
        assert calls.requests == (ToolExecutionRequest("add", parsed, "x"),)
