from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from bridge.server import Profile, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.auth.guards import AuthGuards
from bridge.server.features import Features
from bridge.server.server import Server
from bridge.server.start import Start
from bridge.server.unmatched_names import unmatched_auth_names
from bridge.tools.toolbox import ToolBox
from tests.server.auth.guarded import ADA, add, delete_all, toolbox, whoami

if TYPE_CHECKING:
    from collections.abc import Callable

OF_SCOPE = "no tool, resource or prompt matches 'remove_*' in the scopes: other names need no scope"
OF_KEY = "no tool, resource or prompt matches 'who' in a key: the key does not allow other names"


def auth() -> Auth:
    keys = ApiKeys(ApiKey("ada", ADA, tools=("who", "add")))
    return Auth(keys, tool_scopes={"remove_*": ["write"], "delete_*": ["write"]})


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the warnings since the last call."""

    def since() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return since


def test_what_is_said_of_tools_that_are_not_there_is_warned_of_once(told: Callable[[], list[str]]) -> None:
    unmatched = unmatched_auth_names(auth(), Server(toolbox(), name="tools"))
    unmatched.check()
    assert told() == [OF_SCOPE, OF_KEY]
    unmatched.check()
    assert told() == []


def test_where_there_are_no_tools_yet_nothing_is_said(told: Callable[[], list[str]]) -> None:
    tools = ToolBox()
    unmatched = unmatched_auth_names(auth(), Server(tools, name="tools"))
    unmatched.check()
    assert told() == []
    tools.add(whoami, add, delete_all)
    unmatched.check()
    assert told() == [OF_SCOPE, OF_KEY]


@pytest.mark.anyio
async def test_while_more_tools_are_to_come_nothing_is_said(told: Callable[[], list[str]]) -> None:
    start = Start()
    server = Server(Features(tools=toolbox(), start=start), name="tests")
    with unmatched_auth_names(auth(), server).watching(server.changes):
        assert told() == []
        start.end()
        assert told() == [OF_SCOPE, OF_KEY]


@pytest.mark.anyio
async def test_a_tool_that_goes_away_while_it_is_served_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    tools = toolbox()
    server = Server(tools, name="tests")
    heard = anyio.Event()
    async with AuthGuards(auth(), server, {}).running():
        assert [record.getMessage() for record in caplog.records] == [OF_SCOPE, OF_KEY]
        server.changes.listen(lambda _: heard.set())
        tools.remove("delete_all")
        with anyio.fail_after(20):
            await heard.wait()
        assert [record.getMessage() for record in caplog.records][2:] == [OF_SCOPE.replace("remove", "delete")]


def test_names_of_profiles_are_those_that_count(told: Callable[[], list[str]]) -> None:
    keys = ApiKeys(ApiKey("ada", ADA, tools=("plus", "add", "nothing"), profiles=("one", "tw*")))
    profiles = [Profile(name="one", rename={"add": "plus"})]
    app = http_app(Server(toolbox(), name="tools"), auth=keys, profiles=profiles)
    assert told() == ["no profile matches 'tw*' in a key: there is 'one'"]
    assert app.unmatched_names is not None
    app.unmatched_names.check()
    assert [each.partition(" in a key")[0] for each in told()] == [
        f"no tool, resource or prompt matches {name!r}" for name in ("add", "nothing")
    ]
