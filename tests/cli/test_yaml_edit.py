"""An entry is set in YAML, and every other line stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from bridge.cli.install.yaml_text import comments, member_of, with_member
from bridge.errors import ConfigError

ENTRY = {"cmd": "x", "args": []}
LINES = "new:\n  cmd: x\n  args: []\n"


def indented(text: str, columns: int) -> str:
    return "".join(" " * columns + line for line in text.splitlines(keepends=True))


def edited(text: str, value: dict[str, Any] | None = None) -> str:
    return with_member(text, "extensions", "new", ENTRY if value is None else value, "file")


NEW = indented(LINES, 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"extensions:\n{NEW}"),
        ("# mine\n", f"# mine\nextensions:\n{NEW}"),
        ("a: 1 # one", f"a: 1 # one\nextensions:\n{NEW}"),
        ("a:\n    b: 1\nextensions: # none\nz: 2\n", f"a:\n    b: 1\nextensions: # none\n{indented(LINES, 4)}z: 2\n"),
        ("extensions: {} # none\nz: 2\n", f"extensions:  # none\n{NEW}z: 2\n"),
        ("extensions: null\n", f"extensions:\n{NEW}"),
        ("extensions: {a: {cmd: y}}\nz: 2\n", 'extensions: {a: {cmd: y}, "new": {"cmd": "x", "args": []}}\nz: 2\n'),
        ("extensions:\n  a: {} # one\n\n  # end\nz: yes\n", f"extensions:\n  a: {{}} # one\n{NEW}\n  # end\nz: yes\n"),
        (
            "extensions:\n  a:\n    t: |\n      # b\n      c\n# end\n",
            f"extensions:\n  a:\n    t: |\n      # b\n      c\n{NEW}# end\n",
        ),
        ("extensions:\n    a:\n    - 1\n    - 'é'", f"extensions:\n    a:\n    - 1\n    - 'é'\n{indented(LINES, 4)}"),
        (
            "extensions:\n  new:\n    # why\n    cmd: y # old\n    envs:\n      A: b\n  b: {}\n# end\n",
            "extensions:\n  new:\n    # why\n    cmd: x # old\n    args: []\n  b: {}\n# end\n",
        ),
        ("extensions:\n  new: {cmd: y} # old\n", 'extensions:\n  new: {"cmd": "x", "args": []} # old\n'),
        ("extensions:\r\n  a: {}\r\nz: 1\r\n", "extensions:\r\n  a: {}\r\n" + NEW.replace("\n", "\r\n") + "z: 1\r\n"),
    ],
)
def test_the_entry_is_added_or_replaced_and_nothing_else_changes(before: str, after: str) -> None:
    assert edited(before) == after
    document = yaml.safe_load(before) or {}
    document["extensions"] = {**(document.get("extensions") or {}), "new": ENTRY}
    assert yaml.safe_load(after) == document
    assert member_of(after, "extensions", "new", "file") == ENTRY
    assert edited(after) == after


def test_comments_in_mappings_of_the_entry_are_kept() -> None:
    before = "extensions:\n  new:\n    cmd: x\n    envs:\n      # why\n      A: b # c\n      Z: z\n"
    after = before.replace("A: b", "A: d").replace("      Z: z\n", "      B: e\n")
    assert edited(before, {"cmd": "x", "envs": {"A": "d", "B": "e"}}) == after


def test_comments_are_found_outside_of_texts() -> None:
    text = "# a\na: '# no' # b\nb: |\n  # no\nc: x#no\nd: { # c\n}\n"
    assert comments(text) == ["# a", "# b", "# c"]


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("a: [", ConfigError, "file: .*neither JSON nor YAML"),
        ("- a\n", ValueError, "file: its root is not a mapping"),
        ("extensions: 5\n", ValueError, "file: its 'extensions' is not a mapping"),
        ("{a: 1}\n", ValueError, "file: its form cannot be edited: add 'new' to 'extensions' yourself"),
        ("a: &x {b: 1}\nextensions: *x\n", ValueError, "file: its form cannot be edited"),
    ],
)
def test_a_text_that_is_not_understood_is_refused(text: str, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        edited(text)
