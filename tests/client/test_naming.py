from __future__ import annotations

import re
from random import Random  # noqa: TC003 - hypothesis reads the annotation

from hypothesis import given
from hypothesis import strategies as st

from bridge.client.naming import RemoteName, local_names

NAMES = st.text(max_size=8) | st.sampled_from(["a", "b", "a_b", "b_a", "a b", "a.b", "x" * 130, "a_a_b"])
WISHES = st.dictionaries(st.builds(RemoteName, NAMES, NAMES), NAMES, max_size=12)


def named(*origins: str, taken: tuple[str, ...] = (), always_prefix: tuple[str, ...] = ()) -> dict[str, str]:
    """The names of tools written as ``server/tool``, each of which wishes for its own name."""
    keys = {RemoteName(*origin.split("/")): origin for origin in origins}
    names = local_names({key: key.tool for key in keys}, taken=taken, always_prefix=always_prefix)
    return {keys[key]: name for key, name in names.items()}


def test_a_tool_that_is_alone_keeps_its_name() -> None:
    assert named("git/log", "files/read") == {"git/log": "log", "files/read": "read"}


def test_tools_of_one_name_get_the_names_of_their_servers() -> None:
    assert named("git/search", "web/search", "web/get") == {
        "git/search": "git_search",
        "web/search": "web_search",
        "web/get": "get",
    }


def test_characters_that_are_not_allowed_become_underscores() -> None:
    assert named("my server/get thing", "b/get_thing") == {
        "my server/get thing": "my_server_get_thing",
        "b/get_thing": "b_get_thing",
    }


def test_of_names_that_come_out_the_same_on_one_server_the_exact_one_is_kept() -> None:
    names = named("git/get_it", "git/get it", "git/get:it")
    assert names["git/get_it"] == "get_it"
    assert all(re.fullmatch(r"get_it_[0-9a-f]{8}", name) for key, name in names.items() if key != "git/get_it")
    assert len(set(names.values())) == 3


def test_a_tool_that_is_named_like_a_prefixed_one_keeps_its_name() -> None:
    names = named("a/x", "b/x", "c/a_x")
    assert names["c/a_x"] == "a_x"
    assert re.fullmatch(r"a_x_[0-9a-f]{8}", names["a/x"])
    assert names["b/x"] == "b_x"


def test_a_name_that_is_taken_is_nobodys() -> None:
    assert named("git/list_resources", taken=("list_resources",)) == {"git/list_resources": "git_list_resources"}


def test_a_server_can_stand_before_all_its_tools() -> None:
    assert named("git/log", "files/read", always_prefix=("git",)) == {"git/log": "git_log", "files/read": "read"}


def test_a_long_name_is_cut_and_told_apart_by_a_hash() -> None:
    names = named("s/" + "x" * 200 + "1", "s/" + "x" * 200 + "2")
    assert {len(name) for name in names.values()} == {128}
    assert len(set(names.values())) == 2


@given(WISHES, st.sets(NAMES, max_size=3))
def test_names_are_safe_and_all_different(wishes: dict[RemoteName, str], taken: set[str]) -> None:
    names = local_names(wishes, taken=taken)
    assert names.keys() == wishes.keys()
    assert len(set(names.values())) == len(names)
    assert taken.isdisjoint(names.values())
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name) for name in names.values())


@given(WISHES, st.randoms(use_true_random=False))
def test_the_order_makes_no_difference(wishes: dict[RemoteName, str], random: Random) -> None:
    shuffled = list(wishes.items())
    random.shuffle(shuffled)
    assert local_names(dict(shuffled)) == local_names(wishes)
