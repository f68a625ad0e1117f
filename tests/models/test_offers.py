from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.models.conversation import conversation_of
from bridge.models.profiles.profile import ANTHROPIC, OPENAI
from bridge.models.provider_schemas import ProviderRequest, ProviderSchemas
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from tests.models.requests import ADD, SEARCH, asking

if TYPE_CHECKING:
    from bridge.service.chat_model import ChatRequest

REQUEST = asking("Hello", tool_specifications=(ADD, SEARCH))


def prepared(schemas: ProviderSchemas, request: ChatRequest = REQUEST) -> ProviderRequest:
    """Return a request as a provider receives it."""
    return schemas.prepared(request, conversation_of(request), "gpt")


def test_tools_are_offered_by_safe_names_and_asked_for_by_their_own() -> None:
    offers = prepared(ProviderSchemas(OPENAI))
    assert list(offers.tools) == ["add", "files_search"]
    assert offers.execution_request("files_search", '{"text":"a"}', "x") == ToolExecutionRequest(
        "files.search", '{"text":"a"}', "x"
    )


def test_a_tool_that_was_made_up_is_asked_for_as_it_was() -> None:
    offers = prepared(ProviderSchemas(OPENAI))
    assert offers.execution_request("nothing", {"a": 1}, "x") == ToolExecutionRequest("nothing", {"a": 1}, "x")


def test_arguments_that_are_no_object_stay_as_they_are() -> None:
    offers = prepared(ProviderSchemas(OPENAI, strict=True))
    assert offers.execution_request("files_search", '{"text": nul', "x").arguments == '{"text": nul'
    assert offers.execution_request("files_search", '{"text":"a","limit":null}', "x").arguments == {"text": "a"}


def test_a_specification_is_rewritten_once_however_often_it_is_offered() -> None:
    writer = ProviderSchemas(ANTHROPIC)
    first = prepared(writer, REQUEST).tools["add"]
    again = prepared(writer, replace(REQUEST, tool_specifications=(ADD,))).tools["add"]
    assert again.rewriting is first.rewriting
    changed = ToolSpecification(name="add", parameters=SEARCH.parameters)
    other = prepared(writer, replace(REQUEST, tool_specifications=(changed,))).tools["add"]
    assert other.rewriting.schema == SEARCH.parameters


def test_a_tool_s_own_word_on_strictness_counts_more_than_the_adapter_s() -> None:
    loose = ToolSpecification(name="loose", parameters=ADD.parameters, strict=False)
    tight = ToolSpecification(name="tight", parameters=ADD.parameters, strict=True)
    request = asking("Hello", tool_specifications=(ADD, loose, tight))
    for strict, expected in ((True, [True, False, True]), (False, [False, False, True])):
        offers = prepared(ProviderSchemas(OPENAI, strict=strict), request).tools.values()
        assert [offer.rewriting.is_strict for offer in offers] == expected


def test_half_a_character_in_a_specification_does_not_stop_a_request() -> None:
    half = "\ud83d"
    broken = ToolSpecification(
        name="x", description=half, parameters={"type": "object", "properties": {"a": {"description": half}}}
    )
    request = asking("Hello", tool_specifications=(broken,))
    (offer,) = prepared(ProviderSchemas(OPENAI), request).tools.values()
    assert offer.description == "�"
    assert offer.rewriting.schema["properties"] == {"a": {"description": "�"}}
