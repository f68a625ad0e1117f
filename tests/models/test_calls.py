from __future__ import annotations

from bridge.models.conversation import conversation_of
from bridge.models.profiles.profile import OPENAI
from bridge.models.provider_schemas import ProviderSchemas
from bridge.models.replies import CallAssembler
from bridge.service.chat_model import CompleteToolCall, PartialToolCall
from bridge.tools.tool import ToolExecutionRequest
from tests.models.requests import ADD, SEARCH, asking

REQUEST = asking("Hello", tool_specifications=(ADD, SEARCH))
PREPARED = ProviderSchemas(OPENAI).prepared(REQUEST, conversation_of(REQUEST), "gpt")


def test_pieces_are_told_under_the_tool_s_own_name_and_put_together() -> None:
    calls = CallAssembler(PREPARED, parsed=False)
    calls.begin(0, "x", "files_search")
    assert calls.add(0, '{"te') == PartialToolCall(0, "x", "files.search", '{"te')
    assert calls.add(0, 'xt":1}') == PartialToolCall(0, "x", "files.search", 'xt":1}')
    whole = ToolExecutionRequest("files.search", '{"text":1}', "x")
    assert list(calls.complete_all()) == [CompleteToolCall(0, whole)]
    assert list(calls.complete_all()) == []
    assert calls.requests == (whole,)


def test_a_name_may_come_after_the_call_began() -> None:
    calls = CallAssembler(PREPARED, parsed=False)
    calls.begin(0, "x")
    assert calls.add(0, "", "add").name == "add"
    assert calls.add(0, "", "other").name == "add"


def test_a_call_is_closed_when_its_arguments_are_an_object() -> None:
    calls = CallAssembler(PREPARED, parsed=False)
    calls.begin(0, "x", "add")
    for piece, closed in (("", 0), ('{"a":', 0), ("1", 0), ("}", 1)):
        calls.add(0, piece)
        assert len(list(calls.complete_if_closed(0))) == closed


def test_arguments_become_objects_where_that_is_wanted_and_can_be() -> None:
    for text, parsed in (("", {}), ('{"a":1}', {"a": 1}), ('{"a":', '{"a":'), ("[1]", "[1]")):
        calls = CallAssembler(PREPARED, parsed=True)
        calls.begin(0, "x", "add")
        calls.add(0, text)
        list(calls.complete_all())
        assert calls.requests == (ToolExecutionRequest("add", parsed, "x"),)
