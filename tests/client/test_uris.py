from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.config.servers import Prefixing
from bridge.client.uris import RemoteUri, UriNames

_NAMES = st.text("abAB12 .-_+", min_size=1, max_size=4)
_URIS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "a+", "b+", "ab-", "s1+"]),
    st.sampled_from(["file:///", "ui://", "ui://a/", "notes:"]),
    st.text("ab/+{}", max_size=4),
)


def names_of(modes: dict[str, Prefixing], **listed: list[str]) -> UriNames:
    names = UriNames()
    names.assign(modes, listed)
    return names


@given(st.dictionaries(_NAMES, st.tuples(st.sampled_from(get_args(Prefixing)), st.lists(_URIS)), min_size=1), _URIS)
def test_a_local_uri_names_one_resource_of_one_server(
    servers: dict[str, tuple[Prefixing, list[str]]], unlisted: str
) -> None:
    names = UriNames()
    modes = {name: mode for name, (mode, _) in servers.items()}
    left_out = names.assign(modes, {name: uris for name, (_, uris) in servers.items()})
    assert all(modes[server] == "never" for server, _ in left_out)
    for server, (_, uris) in servers.items():
        for uri in (*uris, unlisted):
            assert names.remote(names.local(server, uri)) == RemoteUri(server, uri)


@given(st.dictionaries(_NAMES, st.just("always"), min_size=2))
def test_they_do_not_depend_on_what_servers_list(modes: dict[str, Prefixing]) -> None:
    before, after = UriNames(), UriNames()
    before.assign(modes, {})
    after.assign(modes, {server: ["file:///a"] for server in modes})
    assert all(before.local(server, "file:///a") == after.local(server, "file:///a") for server in modes)


@pytest.mark.parametrize(
    ("uri", "local"),
    [
        ("file:///a.txt", "my-docs+file:///a.txt"),
        ("notes://{name}", "my-docs+notes://{name}"),
        ("ui://page", "ui://my-docs/page"),
        ("ui://page/part", "ui://my-docs/page/part"),
    ],
)
def test_the_servers_name_is_prepended_as_a_scheme_allows(uri: str, local: str) -> None:
    assert names_of({"My docs": "always", "other": "always"}).local("My docs", uri) == local


def test_one_server_keeps_its_uris_and_reads_all() -> None:
    names = names_of({"docs": "on_collision"}, docs=["file:///a"])
    assert names.are_unchanged
    assert names.local("docs", "docs+file:///a") == "docs+file:///a"
    assert names.remote("docs+file:///a") == RemoteUri("docs", "docs+file:///a")


def test_only_what_clashes_is_prefixed_or_left_out_where_that_is_said() -> None:
    listed = {"a": ["file:///x", "file:///a"], "b": ["file:///x", "file:///b"]}
    names = names_of({"a": "on_collision", "b": "on_collision"}, **listed)
    assert [names.local("a", uri) for uri in listed["a"]] == ["a+file:///x", "file:///a"]
    assert names.remote("file:///b") == RemoteUri("b", "file:///b")
    assert names.remote("file:///x") is None
    assert names.assign({"a": "never", "b": "never"}, listed) == {("a", "file:///x"), ("b", "file:///x")}


def test_templates_that_begin_the_same_clash() -> None:
    listed = {"a": ["notes://{title}", "notes://{title}/{page}", "pic:///{p}"], "b": ["notes://{+path}", "notes://all"]}
    names = names_of({"a": "on_collision", "b": "on_collision"}, **listed)
    assert [names.local("a", uri) for uri in listed["a"]] == [
        "a+notes://{title}",
        "a+notes://{title}/{page}",
        "pic:///{p}",
    ]
    assert [names.local("b", uri) for uri in listed["b"]] == ["b+notes://{+path}", "notes://all"]
    assert names.assign({"a": "never", "b": "never"}, listed) == {
        ("a", "notes://{title}"),
        ("a", "notes://{title}/{page}"),
        ("b", "notes://{+path}"),
    }
    assert names.assign({"a": "never", "b": "always"}, listed) == set()
