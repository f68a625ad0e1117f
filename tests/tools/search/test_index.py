from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.tools.search.index import ToolIndex
from bridge.tools.specification import ToolAnnotations, ToolSpecification

if TYPE_CHECKING:
    from collections.abc import Iterable


def specification(name: str, description: str = "", **properties: Any) -> ToolSpecification:
    parameters = {"type": "object", "properties": properties}
    return ToolSpecification(name=name, description=description, parameters=parameters)


TOOLS = [
    specification("get_weather", "Forecast for a city.", city={"type": "string"}),
    specification("getExchangeRate", "What one currency is worth in another."),
    specification("cancel_booking", "Cancel a booking of a flight."),
    specification("list_bookings", "All bookings."),
    specification("send_mail", "Send a message.", recipient={"type": "string", "description": "Address of the reader"}),
    specification("fork_project", "Copy a project of somebody."),
    specification("measure_area", "Area of a surface."),
]


def found(query: str, tools: Iterable[ToolSpecification] = TOOLS) -> list[str]:
    return ToolIndex(tools).search(query)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("weather", "get_weather"),
        ("exchange rates", "getExchangeRate"),
        ("CURRENCIES", "getExchangeRate"),
        ("booked flights", "cancel_booking"),
        ("recipient", "send_mail"),
        ("address", "send_mail"),
        ("send_mail", "send_mail"),
        ("wether", "get_weather"),
        ("curency", "getExchangeRate"),
        ("forcast", "get_weather"),
        ("delete my bookings", "cancel_booking"),
        ("which bookings are there", "list_bookings"),
        ("lösche meine booking", "cancel_booking"),
        ("clone it", "fork_project"),
        ("email", "send_mail"),
    ],
)
def test_a_tool_is_found_by_words_of_each_part_also_misspelled_and_by_synonyms(query: str, first: str) -> None:
    assert found(query)[0] == first


@pytest.mark.parametrize("query", ["", "?!", "for the", "are you", "zebra", "xy"])
def test_stop_words_and_unknown_words_find_nothing(query: str) -> None:
    assert found(query) == []


def test_words_of_a_name_count_more_than_those_of_a_long_description() -> None:
    long = specification("other", "Something else. " + "It mentions an invoice once more. " * 20)
    assert found("invoice", [long, specification("create_invoice")]) == ["create_invoice", "other"]


def test_the_first_sentence_counts_more_than_the_rest() -> None:
    first = specification("b", "Pays an invoice. It is slow.")
    later = specification("a", "It is slow. Pays an invoice.")
    assert found("invoice", [later, first]) == ["b", "a"]


def test_rare_words_count_more() -> None:
    many = [specification(f"page_{number}", "A page.") for number in range(20)]
    assert found("zebra page", [*many, specification("show", "A zebra.")])[0] == "show"


def test_titles_count_also_those_of_annotations() -> None:
    titled = ToolSpecification(name="t1", title="Invoices")
    annotated = ToolSpecification(name="t2", annotations=ToolAnnotations(title="Parcels"))
    assert (found("invoice", [titled, annotated]), found("parcel", [titled, annotated])) == (["t1"], ["t2"])


def test_a_tool_of_exactly_the_queried_name_is_the_first() -> None:
    tools = [specification("page_page", "Page, page, page."), specification("page")]
    assert found(" page ", tools)[0] == "page"


def test_limits_and_permissions_apply() -> None:
    index = ToolIndex(TOOLS)
    assert index.search("bookings", limit=1) == ["list_bookings"]
    assert index.search("bookings", limit=1, is_allowed=lambda name: name != "list_bookings") == ["cancel_booking"]


def test_malformed_schemas_are_indexed_by_their_other_parts() -> None:
    odd = ToolSpecification(name="odd", parameters={"properties": {"a": True, "b": {"description": 5}}})
    odder = ToolSpecification(name="odder", parameters={"properties": ["x"]})
    assert found("odd", [odd, odder]) == ["odd"]


names = st.sampled_from(["get_mail", "list_mails", "send", "weather", "mail_weather", "zebra"])
boxes = st.dictionaries(names, st.sampled_from(["A mail.", "The weather of a city.", "Zebra"]), max_size=5)


@given(
    st.lists(boxes, min_size=1, max_size=5), st.sampled_from(["mail", "weather in the city", "zebra mails", "wether"])
)
def test_an_updated_index_answers_as_a_new_one(changes: list[dict[str, str]], query: str) -> None:
    index = ToolIndex()
    for change in changes:
        tools = [specification(name, description) for name, description in change.items()]
        index.update(tools)
    new = ToolIndex(tools)
    assert set(index.search(query)) == set(new.search(query))
    assert vars(index)["_postings"] == vars(new)["_postings"]
    assert vars(index)["_near"] == vars(new)["_near"]


def test_an_update_computes_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    index = ToolIndex(TOOLS)
    added: list[str] = []
    add = ToolIndex._add

    def counted(self: ToolIndex, tool: ToolSpecification) -> None:
        added.append(tool.name)
        add(self, tool)

    monkeypatch.setattr(ToolIndex, "_add", counted)
    changed = specification("send_mail", "Send a letter.")
    index.update([*TOOLS[:4], changed, specification("new")])
    assert added == ["send_mail", "new"]
    assert index.search("letter") == ["send_mail"]
    assert index.search("fork_project") == []
