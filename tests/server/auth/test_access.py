from __future__ import annotations

import pytest

from bridge.errors import DefinitionError
from bridge.server.auth.access import EVERYTHING, Access, ToolScopes, matches, scopes_of


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        (("add",), "add", True),
        (("add",), "added", False),
        (("add",), "Add", False),
        (("search_*",), "search_", True),
        (("search_*", "add"), "add", True),
        (("*",), "anything", True),
        (("a.b",), "axb", False),
        (("[ab]_x",), "a_x", True),
        ((), "add", False),
    ],
)
def test_a_name_is_one_of_names_and_patterns(patterns: tuple[str, ...], name: str, expected: bool) -> None:
    assert matches(patterns, name) is expected


def test_a_tool_asks_for_the_scopes_of_every_pattern_that_it_fits() -> None:
    scopes = ToolScopes({"delete_*": ["write"], "*_user": ["users", "admin"], "add": ["sums"]})
    assert scopes.of("delete_user") == {"write", "users", "admin"}
    assert scopes.of("list") == frozenset()
    assert scopes.all == {"write", "users", "admin", "sums"}


def test_what_is_missing_is_what_was_not_granted() -> None:
    access = Access(scopes=frozenset({"write"}), tool_scopes=ToolScopes({"delete": ["write", "admin"]}))
    assert access.missing("delete") == {"admin"}
    assert access.missing("list") == frozenset()
    assert EVERYTHING.missing("delete") == frozenset()


@pytest.mark.parametrize("scope", ["", "a b", 'a"b', "a\\b", "é", "a\n"])
def test_a_scope_that_cannot_be_sent_is_refused(scope: str) -> None:
    with pytest.raises(DefinitionError, match="a scope is visible ASCII"):
        scopes_of([scope])
