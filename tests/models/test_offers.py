from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.models.conversation import conversation_of
from bridge.models.profiles.profile import ANTHROPIC, OPENAI
from bridge.models.provider_schemas import ProviderToolWriter
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from tests.models.requests import ADD, SEARCH, asking

if TYPE_CHECKING:
    from bridge.service.chat_model import ChatRequest

REQUEST = asking("Hello", tool_specifications=(ADD, SEARCH))


def names_of(request: ChatRequest = REQUEST) -> dict[str, str]:
    """What the tools of a request are called on the wire."""
    return dict(conversation_of(request).names)


def test_tools_are_offered_by_safe_names_and_asked_for_by_their_own() -> None:
    offers = ProviderToolWriter(OPENAI).offers(REQUEST, names_of())
    assert list(offers.offers) == ["add", "files_search"]
    assert offers.request("files_search", '{"text":"a"}', "x") == ToolExecutionRequest(
        "files.search", '{"text":"a"}', "x"
    )


def test_a_tool_that_was_made_up_is_asked_for_as_it_was() -> None:
    offers = ProviderToolWriter(OPENAI).offers(REQUEST, names_of())
    assert offers.request("nothing", {"a": 1}, "x") == ToolExecutionRequest("nothing", {"a": 1}, "x")


def test_arguments_that_are_no_object_stay_as_they_are() -> None:
    offers = ProviderToolWriter(OPENAI, strict=True).offers(REQUEST, names_of())
    assert offers.request("files_search", '{"text": nul', "x").arguments == '{"text": nul'
    assert offers.request("files_search", '{"text":"a","limit":null}', "x").arguments == {"text": "a"}


def test_a_specification_is_rewritten_once_however_often_it_is_offered() -> None:
    writer = ProviderToolWriter(ANTHROPIC)
    first = writer.offers(REQUEST, names_of()).offers["add"]
    again = writer.offers(replace(REQUEST, tool_specifications=(ADD,)), names_of()).offers["add"]
    assert again.rewriting is first.rewriting
    changed = ToolSpecification(name="add", parameters=SEARCH.parameters)
    other = writer.offers(replace(REQUEST, tool_specifications=(changed,)), names_of()).offers["add"]
    assert other.rewriting.schema == SEARCH.parameters


def test_a_tool_s_own_word_on_strictness_counts_more_than_the_adapter_s() -> None:
    loose = ToolSpecification(name="loose", parameters=ADD.parameters, strict=False)
    tight = ToolSpecification(name="tight", parameters=ADD.parameters, strict=True)
    request = asking("Hello", tool_specifications=(ADD, loose, tight))
    for strict, expected in ((True, [True, False, True]), (False, [False, False, True])):
        offers = ProviderToolWriter(OPENAI, strict=strict).offers(request, names_of(request)).offers.values()
        assert [offer.rewriting.is_strict for offer in offers] == expected


def test_half_a_character_in_a_specification_does_not_stop_a_request() -> None:
    half = "\ud83d"
    broken = ToolSpecification(
        name="x", description=half, parameters={"type": "object", "properties": {"a": {"description": half}}}
    )
    request = asking("Hello", tool_specifications=(broken,))
    (offer,) = ProviderToolWriter(OPENAI).offers(request, names_of(request)).offers.values()
    assert offer.description == "�"
    assert offer.rewriting.schema["properties"] == {"a": {"description": "�"}}
