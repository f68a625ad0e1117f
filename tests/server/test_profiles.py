"""Profiles: what each has, its names and its presentation, and that it finds nothing of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import InvocationContext, McpToolProvider, ServerConfig, prompt, resource, tool
from bridge.client import ClientHandlers, MemoryTransport
from bridge.errors import DefinitionError
from bridge.prompts.box import PromptBox
from bridge.resources.box import ResourceBox
from bridge.server import Extension, Server
from bridge.server.features import Features
from bridge.server.profiles import Profile
from bridge.server.tasks.options import TaskOptions
from bridge.server.tasks.sqlite_store import SqliteTaskStore
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.execution import execute_timed
from bridge.tools.questions import ElicitationAnswer
from bridge.tools.toolbox import ToolBox
from bridge.wire.extension import extensions_of

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.tools.questions import Elicitation, UrlElicitation

pytestmark = pytest.mark.anyio


@tool(tags=["read"])
async def find(word: str) -> str:
    """Find something."""
    return f"found {word}"


@tool(tags=["write"])
async def delete(word: str) -> str:
    """Delete something."""
    return f"deleted {word}"


@tool
async def long() -> str:
    """Return a long text."""
    return "x" * 5000


@resource("notes://public")
async def public() -> str:
    """Notes for all."""
    return "public"


@resource("notes://secret")
async def secret() -> str:
    """Notes for few."""
    return "secret"


@prompt
async def review(topic: str) -> str:
    """Review something."""
    return f"Review {topic}"


def features() -> Features:
    return Features(
        tools=ToolBox(find, delete, long),
        resources=ResourceBox(public, secret),
        prompts=PromptBox(review),
    )


def names(selected: Features) -> list[str]:
    return selected.names


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (Profile(name="p"), ["find", "delete", "long", "public", "secret", "review"]),
        (Profile(name="p", include=("find", "review")), ["find", "review"]),
        (Profile(name="p", include=("notes://*",)), ["public", "secret"]),
        (Profile(name="p", exclude=("notes://secret", "d*")), ["find", "long", "public", "review"]),
        (Profile(name="p", tags=frozenset({"read"})), ["find"]),
        (Profile(name="p", servers=("local",), exclude=("*e*",)), ["find", "long"]),
        (Profile(name="p", servers=("files",)), []),
        (Profile(name="p", include=("find",), rename={"find": "seek"}), ["seek"]),
    ],
)
def test_a_profile_selects_by_server_name_uri_and_tag(profile: Profile, expected: list[str]) -> None:
    assert names(profile.features_of(features())) == expected


def test_a_profile_follows_changes_and_is_not_touched_by_those_of_another() -> None:
    whole = features()
    one = Profile(name="one", include=("f*",)).features_of(whole)
    other = Profile(name="other", include=("d*",)).features_of(whole)
    changes: list[str] = []
    one.on_change(lambda: changes.append("one"))
    other.on_change(lambda: changes.append("other"))

    @tool
    async def drop() -> None:
        """Drop something."""

    whole.tools.add(drop)
    assert (changes, names(other)) == (["other"], ["delete", "drop"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "a b"}, "the name of a profile has"),
        ({"name": "p", "include": "find"}, "include of the profile 'p' is a tuple of patterns"),
        ({"name": "p", "rename": {"a": "c", "b": "c"}}, "gives two items the same name"),
        ({"name": "p", "spill_chars": 0}, "spill_chars"),
    ],
)
def test_an_invalid_profile_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises((DefinitionError, ValueError), match=message):
        Profile(**given)


def test_two_items_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="find"):
        Profile(name="p", rename={"find": "delete"}).features_of(features())


async def test_a_profile_is_a_server_of_its_own_whose_calls_are_counted_with_the_others() -> None:
    server = Server(features(), name="all", instructions="Everything.")
    profile = server.with_profile(Profile(name="one", include=("find",), instructions="Only find."))
    assert (profile.name, profile.own_instructions, profile.running) == ("all/one", "Only find.", server.running)
    config = ServerConfig(name="one", transport=MemoryTransport(profile))
    with anyio.fail_after(30):
        async with McpToolProvider([config], features=("resources", "prompts")) as provider:
            assert [each.name for each in provider.tools] == ["find"]
            assert ([*provider.resources], [*provider.prompts]) == ([], [])


async def test_what_a_server_disables_is_gone_from_its_profiles() -> None:
    server = Server(features(), name="all")
    profile = server.with_profile(Profile(name="one", include=("find", "delete")))
    server.disable("delete")
    assert names(profile.features) == ["find"]
    server.enable("delete")
    assert names(profile.features) == ["find", "delete"]


async def test_large_results_are_kept_aside_by_the_limit_of_the_profile() -> None:
    profile = Server(features(), name="all").with_profile(Profile(name="one", include=("long",), spill_chars=1000))
    with anyio.fail_after(30):
        async with McpToolProvider([ServerConfig(name="one", transport=MemoryTransport(profile))]) as provider:
            assert {each.name for each in provider.tools} == {"long", "read_result"}
            execution = await execute_timed(provider.tools, ToolExecutionRequest("long", {}), InvocationContext())
    assert "kept-result:///" in repr(execution.result.content)


async def test_a_profile_lets_clients_search() -> None:
    profile = Server(features(), name="all").with_profile(Profile(name="one", include=("f*",), listing="search"))
    with anyio.fail_after(30):
        async with McpToolProvider([ServerConfig(name="one", transport=MemoryTransport(profile))]) as provider:
            assert {each.name for each in provider.tools} == {"search_tools", "call_tool"}
            found = await execute_timed(
                provider.tools, ToolExecutionRequest("search_tools", {"query": "delete something"}), InvocationContext()
            )
            call = {"name": "delete", "arguments": {"word": "x"}}
            called = await execute_timed(provider.tools, ToolExecutionRequest("call_tool", call), InvocationContext())
    assert "delete" not in found.result.text
    assert called.result.is_error or called.error is not None


@pytest.mark.parametrize(
    ("action", "expected"),
    [("accept", "deleted x"), ("decline", "the user did not approve the call of 'delete'")],
)
@pytest.mark.parametrize("protocol", ["2026-07-28", "legacy"])
async def test_a_tool_with_approval_runs_only_once_the_user_has_said_so(
    action: Any, expected: str, protocol: Any
) -> None:
    asked: list[str] = []

    async def elicit(question: Elicitation | UrlElicitation, _context: object) -> ElicitationAnswer:
        asked.append(question.message)
        return ElicitationAnswer(action, {} if action == "accept" else None)

    profile = Server(features(), name="all").with_profile(Profile(name="one", approval=("del*",)))
    config = ServerConfig(name="one", transport=MemoryTransport(profile), protocol=protocol)
    with anyio.fail_after(30):
        async with McpToolProvider([config], handlers=ClientHandlers(elicitation=elicit)) as provider:
            for name in ("find", "delete"):
                request = ToolExecutionRequest(name, {"word": "x"})
                execution = await execute_timed(provider.tools, request, InvocationContext())
                assert execution.result.text == ("found x" if name == "find" else expected)
    assert asked == ['Run \'delete\' with {"word":"x"}?']


async def test_a_tool_with_approval_is_refused_to_a_client_that_cannot_ask() -> None:
    profile = Server(features(), name="all").with_profile(Profile(name="one", approval=("delete",)))
    with anyio.fail_after(30):
        async with McpToolProvider([ServerConfig(name="one", transport=MemoryTransport(profile))]) as provider:
            request = ToolExecutionRequest("delete", {"word": "x"})
            execution = await execute_timed(provider.tools, request, InvocationContext())
    assert execution.result.is_error
    assert "deleted" not in execution.result.text


def test_each_profile_keeps_its_tasks_in_a_file_of_its_own(tmp_path: Path) -> None:
    tasks = TaskOptions(store=SqliteTaskStore(tmp_path / "tasks.db"))
    server = Server(features(), name="all", tasks=tasks)
    store = server.with_profile(Profile(name="one")).task_options.store
    assert isinstance(store, SqliteTaskStore)
    store.check()
    assert (tmp_path / "tasks.db.one").exists()


MIXER = Extension(id="com.example/mix", settings={"of": "local"}, methods={"mix/local": lambda *_: {}})


@pytest.mark.parametrize(
    ("profile", "is_offered"),
    [
        (Profile(name="all"), True),
        (Profile(name="of_here", servers=("local",)), True),
        (Profile(name="elsewhere", servers=("files",)), False),
        (Profile(name="some", include=("find",)), True),
        (Profile(name="none", include=("files_*",)), False),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_a_profile_has_extensions_of_this_process_only_with_something_of_it(profile: Profile, is_offered: bool) -> None:
    features = Features(tools=ToolBox(find), extensions=[MIXER])
    served = profile.features_of(features)
    assert [each.id for each in extensions_of(served.extensions)] == ([MIXER.id] if is_offered else [])
