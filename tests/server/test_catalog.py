from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bridge.server.lists.listing import CursorError
from bridge.server.lists.tools import ToolList
from bridge.tools.toolbox import ToolBox
from tests.server.tools import made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.context import InvocationContext


async def nothing(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
    return None


def box(*names: str) -> ToolBox:
    return ToolBox(*[made(name, nothing) for name in names])


def names(page: Mapping[str, Any]) -> list[str]:
    return [tool["name"] for tool in page["tools"]]


def test_a_list_is_one_page_unless_a_size_is_given() -> None:
    page = ToolList(box(*map(str, range(1000)))).page(modern=False)
    assert len(page["tools"]) == 1000
    assert "nextCursor" not in page


def test_an_empty_toolbox_is_an_empty_page() -> None:
    assert ToolList(ToolBox()).page(modern=False) == {"tools": []}


def test_a_tool_that_is_not_listed_is_found_by_its_name() -> None:
    hidden = replace(made("b", nothing), listed=False)
    catalog = ToolList(ToolBox(*box("a"), hidden, *box("c")), page_size=1)
    first = catalog.page(modern=True)
    second = catalog.page(first["nextCursor"], modern=True)
    assert (names(first), names(second)) == (["a"], ["c"])
    assert "nextCursor" not in second
    cursor = urlsafe_b64encode(json.dumps([1, "b"]).encode()).decode()
    assert names(catalog.page(cursor, modern=True)) == ["a"]
    listed = catalog.find("b")
    assert listed is not None
    assert listed.tool is hidden


def test_pages_come_in_order_and_are_whole() -> None:
    catalog = ToolList(box("e", "d", "c", "b", "a"), page_size=2)
    found, cursor = [], None
    for _ in range(3):
        page = catalog.page(cursor, modern=True)
        found.append(names(page))
        cursor = page.get("nextCursor")
    assert found == [["e", "d"], ["c", "b"], ["a"]]
    assert cursor is None


def test_a_page_that_is_exactly_full_has_no_next() -> None:
    assert "nextCursor" not in ToolList(box("a", "b"), page_size=2).page(modern=True)


def test_a_page_is_written_once_until_the_tools_change() -> None:
    tools = box("a")
    catalog = ToolList(tools)
    first = catalog.page(modern=True)
    assert catalog.page(modern=True) is first
    tools.add(made("b", nothing))
    assert names(catalog.page(modern=True)) == ["a", "b"]


def test_a_cursor_goes_on_after_its_tool_whatever_was_removed_before_it() -> None:
    tools = box("a", "b", "c", "d")
    catalog = ToolList(tools, page_size=2)
    cursor = catalog.page(modern=True)["nextCursor"]
    tools.remove("a")
    assert names(catalog.page(cursor, modern=True)) == ["c", "d"]


def test_a_cursor_whose_tool_is_gone_skips_nothing() -> None:
    tools = box("a", "b", "c", "d")
    catalog = ToolList(tools, page_size=2)
    cursor = catalog.page(modern=True)["nextCursor"]
    tools.remove("b")
    assert names(catalog.page(cursor, modern=True)) == ["c", "d"]


def test_a_cursor_beyond_what_is_left_is_an_empty_page() -> None:
    tools = box("a", "b", "c", "d")
    catalog = ToolList(tools, page_size=3)
    cursor = catalog.page(modern=True)["nextCursor"]
    tools.replace([])
    assert names(catalog.page(cursor, modern=True)) == []


FOREIGN = ["", "x", "WzEsMl0=", "bnVsbA==", "eyJhIjoxfQ==", "W3RydWUsImEiXQ==", 7, "é", "W" * 9999]
FOREIGN.append(urlsafe_b64encode(json.dumps([0, "a" * 2000]).encode()).decode())


@pytest.mark.parametrize("cursor", FOREIGN)
def test_a_cursor_of_somebody_else_is_refused(cursor: object) -> None:
    with pytest.raises(CursorError):
        ToolList(box("a")).page(cursor, modern=True)


def test_a_page_holds_at_least_one_tool() -> None:
    with pytest.raises(ValueError, match="page_size must be at least 1, not 0"):
        ToolList(ToolBox(), page_size=0)


def test_the_modern_era_gets_hints_for_caching() -> None:
    assert ToolList(ToolBox()).page(modern=True) == {
        "resultType": "complete",
        "tools": [],
        "ttlMs": 0,
        "cacheScope": "private",
    }


def test_an_output_schema_of_no_object_is_kept_from_the_handshake_era() -> None:
    tools = ToolBox(
        made("numbers", nothing, output_schema={"type": "array"}),
        made("whole", nothing, output_schema={"type": "object"}),
    )
    catalog = ToolList(tools)
    assert [tool.get("outputSchema") for tool in catalog.page(modern=False)["tools"]] == [None, {"type": "object"}]
    assert [tool.get("outputSchema") for tool in catalog.page(modern=True)["tools"]] == [
        {"type": "array"},
        {"type": "object"},
    ]


def test_only_a_tool_with_mirrored_parameters_has_headers_to_check() -> None:
    mirrored = {"type": "object", "properties": {"o": {"properties": {"r": {"type": "string", "x-mcp-header": "R"}}}}}
    catalog = ToolList(ToolBox(made("mirrored", nothing, parameters=mirrored), made("plain", nothing)))
    found = {name: catalog.find(name) for name in ("mirrored", "plain", "unknown")}
    assert found["mirrored"] is not None
    assert found["mirrored"].headers
    assert found["plain"] is not None
    assert not found["plain"].headers
    assert found["unknown"] is None


def test_a_closed_catalog_no_longer_follows_its_toolbox() -> None:
    tools = box("a")
    catalog = ToolList(tools)
    catalog.close()
    tools.add(made("b", nothing))
    assert names(catalog.page(modern=True)) == ["a"]


def test_only_the_pages_that_our_cursors_lead_to_are_kept() -> None:
    catalog = ToolList(box(*"abcdef"), page_size=2)
    ours = catalog.page(catalog.page(modern=True)["nextCursor"], modern=True)
    assert names(ours) == ["c", "d"]
    assert catalog.page(catalog.page(modern=True)["nextCursor"], modern=True) is ours
    made_up = urlsafe_b64encode(json.dumps([0, "c"]).encode()).decode()
    first, second = catalog.page(made_up, modern=True), catalog.page(made_up, modern=True)
    assert names(first) == ["d", "e"]
    assert first == second
    assert first is not second
