from __future__ import annotations

import re
from random import Random  # noqa: TC003 - hypothesis reads the annotation
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.tool_catalog import NamedServer, RemoteName, local_names

if TYPE_CHECKING:
    from bridge.client.config.servers import Prefixing

NAMES = st.text(max_size=8) | st.sampled_from(["a", "b", "a_b", "b_a", "a b", "a.b", "a_", "x" * 130, "a_a_b"])
WISHES = st.dictionaries(st.builds(RemoteName, NAMES, NAMES), NAMES, max_size=12)
MODES: st.SearchStrategy[Prefixing] = st.sampled_from(["always", "on_collision", "never"])


def named(
    *origins: str,
    mode: Prefixing = "on_collision",
    beside: tuple[str, ...] = (),
    taken: tuple[str, ...] = (),
    prefixes: dict[str, str] | None = None,
) -> dict[str, str]:
    """Return the names of tools given as ``server/tool``, each with its preferred name."""
    keys = {RemoteName(*origin.split("/")): origin for origin in origins}
    texts = prefixes or {}
    servers = [NamedServer(name, mode, texts.get(name, "")) for name in dict.fromkeys((*beside, *(k[0] for k in keys)))]
    names = local_names({key: texts.get(key.server, "") + key.tool for key in keys}, servers, taken=taken)
    return {keys[key]: name for key, name in names.items()}


# --- modes -----------------------------------------------------------------------------------------------------------


def test_always_puts_the_servers_name_before_every_name() -> None:
    assert named("git/log", "files/read", mode="always") == {"git/log": "git_log", "files/read": "files_read"}


def test_on_collision_a_tool_that_is_alone_keeps_its_name() -> None:
    assert named("git/log", "files/read") == {"git/log": "log", "files/read": "read"}


def test_on_collision_tools_of_one_name_get_the_names_of_their_servers() -> None:
    assert named("git/search", "web/search", "web/get") == {
        "git/search": "git_search",
        "web/search": "web_search",
        "web/get": "get",
    }


def test_never_leaves_out_tools_that_cannot_have_their_names() -> None:
    origins = "git/search", "web/search", "web/get", "git/list", "evil/git_push"
    assert named(*origins, mode="never", taken=("list",)) == {"web/get": "get"}


def test_characters_that_are_not_allowed_become_underscores() -> None:
    assert named("my server/get thing", "b/get_thing") == {
        "my server/get thing": "my_server_get_thing",
        "b/get_thing": "b_get_thing",
    }


@pytest.mark.parametrize(("mode", "before"), [("always", "git_"), ("on_collision", ""), ("never", "")])
def test_of_names_that_come_out_the_same_on_one_server_the_exact_one_is_kept(mode: Prefixing, before: str) -> None:
    names = named("git/get_it", "git/get it", "git/get:it", mode=mode)
    assert names["git/get_it"] == f"{before}get_it"
    assert all(re.fullmatch(rf"{before}get_it_[0-9a-f]{{8}}", name) for key, name in names.items() if key[-3] != "_")
    assert len(set(names.values())) == 3


@pytest.mark.parametrize("mode", ["always", "on_collision"])
def test_a_name_that_is_taken_is_nobodys(mode: Prefixing) -> None:
    assert named("git/list_resources", mode=mode, taken=("list_resources",)) == {
        "git/list_resources": "git_list_resources"
    }
    (name,) = named("git/log", "web/get", mode="always", taken=("git_log", "web_get")).keys() - {"web/get"}
    assert name == "git/log"


def test_a_prefixed_name_that_is_taken_gets_a_hash() -> None:
    names = named("git/log", "web/get", mode="always", taken=("git_log",))
    assert re.fullmatch(r"git_log_[0-9a-f]{8}", names["git/log"])
    assert names["web/get"] == "web_get"


@pytest.mark.parametrize("mode", ["always", "on_collision"])
def test_a_long_name_is_cut_and_told_apart_by_a_hash(mode: Prefixing) -> None:
    names = named("s/" + "x" * 200 + "1", "s/" + "x" * 200 + "2", mode=mode)
    assert {len(name) for name in names.values()} == {128}
    assert len(set(names.values())) == 2


# --- names that belong to a server -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["always", "on_collision"])
def test_a_tool_that_is_named_like_a_prefixed_one_does_not_get_that_name(mode: Prefixing) -> None:
    names = named("good/send", "evil/send", "evil/good_send", mode=mode)
    assert names == {"good/send": "good_send", "evil/send": "evil_send", "evil/good_send": "evil_good_send"}


@pytest.mark.parametrize("mode", ["always", "on_collision"])
def test_a_name_belongs_to_its_server_also_while_that_is_not_there(mode: Prefixing) -> None:
    assert named("evil/good_send", beside=("good",), mode=mode) == {"evil/good_send": "evil_good_send"}


def test_a_name_belongs_to_the_server_with_the_longest_matching_name() -> None:
    for mode in ("always", "on_collision"):
        names = named("a_b/c", "a/b_c", "c/c", "c/a_b_c", mode=mode)
        assert re.fullmatch(r"a_[0-9a-f]{8}_b_c", names["a/b_c"]) or mode == "on_collision"
        assert not names["a/b_c"].startswith("a_b_")
        assert names["a_b/c"] == "a_b_c"
        assert names["c/a_b_c"] == "c_a_b_c"


def test_a_configured_prefix_belongs_to_its_server_too() -> None:
    names = named("good/send", "evil/g.send", "evil/good_send", prefixes={"good": "g."})
    assert names == {"good/send": "g.send", "evil/g.send": "evil_g.send", "evil/good_send": "evil_good_send"}


def test_a_servers_name_counts_for_more_than_anothers_configured_prefix() -> None:
    names = named("old/x", "new/x", prefixes={"new": "old_"}, mode="on_collision")
    assert names == {"old/x": "x", "new/x": "new_old_x"}


def test_servers_whose_names_come_out_the_same_are_told_apart_and_the_exact_one_keeps_its_name() -> None:
    names = named("my server/get", "my_server/get", "my:server/get", mode="always")
    assert names["my_server/get"] == "my_server_get"
    others = [name for key, name in names.items() if key != "my_server/get"]
    assert len(set(others)) == 2
    assert all(re.fullmatch(r"my_server-[0-9a-f]{8}_get", name) for name in others)


def test_servers_with_long_names_are_told_apart() -> None:
    names = named("s" * 300 + "1/get", "s" * 300 + "2/get", mode="always")
    assert len(set(names.values())) == 2
    assert all(len(name) <= 64 + len("get") for name in names.values())


# --- properties ------------------------------------------------------------------------------------------------------


def servers_of(wishes: dict[RemoteName, str], modes: st.DataObject | Prefixing) -> list[NamedServer]:
    names = sorted({origin.server for origin in wishes})
    return [NamedServer(name, modes if isinstance(modes, str) else modes.draw(MODES)) for name in names]


@given(WISHES, st.sets(NAMES, max_size=3), st.data())
def test_names_are_safe_and_all_different(wishes: dict[RemoteName, str], taken: set[str], data: st.DataObject) -> None:
    servers = servers_of(wishes, data)
    never = {server.name for server in servers if server.prefixing == "never"}
    names = local_names(wishes, servers, taken=taken)
    assert {origin for origin in wishes if origin.server not in never} <= names.keys() <= wishes.keys()
    assert len(set(names.values())) == len(names)
    assert taken.isdisjoint(names.values())
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name) for name in names.values())


@given(WISHES, st.data(), st.randoms(use_true_random=False))
def test_the_order_makes_no_difference(wishes: dict[RemoteName, str], data: st.DataObject, random: Random) -> None:
    servers = servers_of(wishes, data)
    names = local_names(wishes, servers)
    shuffled = list(wishes.items())
    random.shuffle(shuffled)
    random.shuffle(servers)
    assert local_names(dict(shuffled), servers) == names


@given(WISHES)
def test_with_always_nothing_that_another_server_lists_changes_a_name(wishes: dict[RemoteName, str]) -> None:
    servers = servers_of(wishes, "always")
    names = local_names(wishes, servers)
    for server in servers:
        alone = {origin: wish for origin, wish in wishes.items() if origin.server == server.name}
        assert local_names(alone, servers) == {origin: names[origin] for origin in alone}


@given(WISHES, st.data())
def test_no_tool_gets_a_name_that_begins_with_another_servers(
    wishes: dict[RemoteName, str], data: st.DataObject
) -> None:
    servers = servers_of(wishes, data)
    exact = {server.name for server in servers if re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", server.name)}
    for origin, name in local_names(wishes, servers).items():
        owners = [server for server in exact if name.startswith(f"{server}_")]
        assert not owners or max(owners, key=len) == origin.server or origin.server not in exact
