"""Tools by name."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

import pytest

from bridge.errors import DefinitionError, NameClashError, UnknownToolError
from bridge.tools.function import tool, tools_from
from bridge.tools.toolbox import MAX_NAME_CHARS, ToolBox
from bridge.tools.transform import filtered, prefixed, renamed

if TYPE_CHECKING:
    from bridge.tools.tool import Tool


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
def subtract(a: int, b: int) -> int:
    return a - b


(ADD,) = tools_from(add)


def test_tools_stand_in_the_order_in_which_they_came() -> None:
    box = ToolBox(subtract, [add])
    assert [each.name for each in box] == ["subtract", "add"]
    assert len(box) == 2
    assert "add" in box
    assert "divide" not in box
    assert repr(box) == "ToolBox(subtract, add)"


def test_a_toolbox_may_be_empty_and_may_be_a_source() -> None:
    assert list(ToolBox()) == []
    assert list(ToolBox(ToolBox(ADD))) == [ADD]


def test_a_toolbox_of_one_toolbox_is_that_one() -> None:
    one = ToolBox(add)
    assert ToolBox.of(one) is one
    assert [each.name for each in ToolBox.of(one, subtract)] == ["add", "subtract"]


def test_a_tool_is_found_by_its_name() -> None:
    box = ToolBox(ADD)
    assert box.get("add") is ADD
    assert box.find("add") is ADD
    assert box.find("divide") is None


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownToolError, match="no tool named 'ad'; did you mean 'add'") as caught:
        ToolBox(add, subtract).get("ad")
    assert (caught.value.name, caught.value.suggestions) == ("ad", ("add",))


def test_a_name_longer_than_any_tools_is_compared_with_none_and_shown_in_part() -> None:
    longest = "a" * MAX_NAME_CHARS
    box = ToolBox(renamed(ADD, longest))
    with pytest.raises(UnknownToolError) as caught:
        box.get(longest[1:])
    assert caught.value.suggestions == (longest,)
    with pytest.raises(UnknownToolError) as caught:
        box.get(name := longest * 1000)
    assert (caught.value.name, caught.value.suggestions) == (name, ())
    assert len(str(caught.value)) < 300


def test_a_clash_names_both_sources_and_changes_nothing() -> None:
    box = ToolBox(add)
    with pytest.raises(NameClashError) as caught:
        box.add(subtract, renamed(tools_from(subtract)[0], "add"))
    assert str(caught.value).startswith(
        f"two tools are named 'add': one from function 'add' (test_toolbox.py:{add.__code__.co_firstlineno}), "
        f"one from function 'subtract' (test_toolbox.py:{subtract.__code__.co_firstlineno}); rename one"
    )
    assert [each.name for each in box] == ["add"]


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 128])
def test_an_allowed_name_is_taken(name: str) -> None:
    assert name in ToolBox(renamed(ADD, name))


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 129, "a/b", "a\n", "<lambda>"])
def test_a_name_that_is_not_allowed_is_refused_with_its_source(name: str) -> None:
    with pytest.raises(DefinitionError, match=r"of function 'add' \(test_toolbox.py:\d+\) is not allowed: 1 to 128"):
        ToolBox(renamed(ADD, name))


def test_listeners_hear_of_every_change_and_of_nothing_else() -> None:
    box, heard = ToolBox(add), []
    stop = box.on_change(lambda: heard.append([each.name for each in box]))
    box.add(subtract)
    box.replace(list(box))
    box.remove("add")
    with pytest.raises(DefinitionError):
        box.add(subtract)
    assert heard == [["add", "subtract"], ["subtract"]]
    stop()
    box.replace([])
    assert len(heard) == 2


def test_a_listener_may_end_itself() -> None:
    box, heard = ToolBox(), []

    def once() -> None:
        heard.append("once")
        stop()

    stop = box.on_change(once)
    box.on_change(lambda: heard.append("always"))
    box.add(add)
    box.remove("add")
    assert heard == ["once", "always", "always"]


def test_a_transformed_box_follows_the_other_and_a_new_transform(caplog: pytest.LogCaptureFixture) -> None:
    box, changes = ToolBox(add), list[list[str]]()
    other = box.transformed(partial(prefixed, prefix="my_"))
    other.on_change(lambda: changes.append([each.name for each in other]))
    box.add(subtract)
    other.use(lambda tools: filtered(tools, exclude={"add"}))
    other.use(lambda tools: filtered(tools, include={"subtract"}))
    box.remove("add")
    assert changes == [["my_add", "my_subtract"], ["subtract"]]
    for change in (partial(other.add, add), partial(other.remove, "subtract"), partial(other.replace, [])):
        with pytest.raises(DefinitionError, match="follows another box; change that one"):
            change()
    with pytest.raises(NameClashError):
        other.use(lambda tools: [*tools, *tools])
    other.use(lambda tools: [renamed(each, "one") for each in tools])
    box.add(add)
    assert [each.name for each in other] == ["one"]
    assert "cannot be transformed; the previous tools stay in use" in caplog.text


def test_a_transformed_box_that_is_no_longer_referenced_is_released() -> None:
    box, transforms = ToolBox(add), list[int]()

    def counted(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        transforms.append(len(tools))
        return tools

    kept = box.transformed(counted)
    released = ref(box.transformed(counted).transformed(counted))
    gc.collect()
    assert released() is None
    transforms.clear()
    box.add(subtract)
    assert (transforms, len(kept), len(box._listeners)) == ([2], 2, 1)


def test_removing_is_all_or_nothing() -> None:
    box = ToolBox(add, subtract)
    with pytest.raises(UnknownToolError):
        box.remove("add", "divide")
    assert len(box) == 2
    box.remove("add", "subtract")
    assert len(box) == 0


def test_a_name_that_is_not_ascii_is_refused_with_the_ways_to_give_another() -> None:
    def größe() -> int:  # noqa: PLC2401 - what is tested
        return 1

    with pytest.raises(DefinitionError) as caught:
        ToolBox(größe)
    assert str(caught.value).endswith(
        " is not allowed: 1 to 128 ASCII letters, digits, underscores, dots or hyphens; "
        "give it such a name with @tool(name=…), or with bridge.renamed"
    )
    assert str(caught.value).startswith(
        f"the name 'größe' of function 'größe' (test_toolbox.py:{größe.__code__.co_firstlineno})"
    )


def test_tools_may_be_added_while_somebody_goes_through_those_that_are_there() -> None:
    tools = ToolBox([add])
    seen = []
    for each in tools:
        seen.append(each.name)
        tools.add(renamed(each, "later"))
    assert seen == ["add"]
    assert [each.name for each in tools] == ["add", "later"]
