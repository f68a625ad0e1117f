from __future__ import annotations

from bridge.server.auth.access import EVERYTHING, Access
from bridge.server.lists.listing import MAX_VIEWS
from bridge.server.lists.tools import ToolViews
from bridge.tools.toolbox import ToolBox
from tests.server.tools import ADD, GREET

SOME = Access(tools=("a*",))


def listed(views: ToolViews, access: Access) -> list[str]:
    return [each["name"] for each in views.of(access).catalog.page(modern=True)["tools"]]


def test_a_view_holds_what_its_callers_may_know_of() -> None:
    views = ToolViews(ToolBox(ADD, GREET))
    assert listed(views, EVERYTHING) == ["add", "greet"]
    assert listed(views, SOME) == ["add"]
    assert listed(views, Access(tools=())) == []


def test_a_view_is_made_once_for_all_of_the_same_access_until_the_tools_change() -> None:
    tools = ToolBox(ADD)
    views = ToolViews(tools)
    view = views.of(SOME)
    assert views.of(Access(tools=("a*",), scopes=frozenset({"x"}))) is view
    tools.add(GREET)
    assert views.of(SOME) is not view
    tools.remove("add")
    assert listed(views, SOME) == []


def test_no_more_views_are_kept_than_are_said() -> None:
    views = ToolViews(ToolBox(ADD))
    first = views.of(SOME)
    for number in range(MAX_VIEWS):
        views.of(Access(tools=(f"tool-{number}",)))
    assert views.of(SOME) is not first
    assert listed(views, SOME) == ["add"]
