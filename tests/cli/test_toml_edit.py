"""A table is set in TOML, and every other line stays as it was."""

from __future__ import annotations

import sys
import tomllib

import pytest

from bridge.cli.install.toml_text import comments, member_of, with_member
from bridge.errors import ConfigError, MissingExtraError

ENTRY = {"command": "x", "args": ["a"]}
NEW = '[mcp_servers.new]\ncommand = "x"\nargs = ["a"]\n'


def edited(text: str) -> str:
    return with_member(text, "mcp_servers", "new", ENTRY, "file")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", NEW),
        ("# mine\nmodel = 'é' # good\n", f"# mine\nmodel = 'é' # good\n\n{NEW}"),
        (
            "[mcp_servers.a]\ncommand = 'y' # one\n\n[z]\nb = [ 1,\n 2 ]\n",
            f"[mcp_servers.a]\ncommand = 'y' # one\n\n{NEW}\n[z]\nb = [ 1,\n 2 ]\n",
        ),
        ("[mcp_servers.new]\ncommand = 'y'\nargs = []\ncwd = '/'\n\n# z\n[z]\nb = 1\n", f"{NEW}\n# z\n[z]\nb = 1\n"),
        ("[mcp_servers.new]\ncommand = 'y'\n[mcp_servers.new.env]\nA = 'b'\n", NEW),
    ],
)
def test_the_table_is_added_or_replaced_and_nothing_else_changes(before: str, after: str) -> None:
    assert edited(before) == after
    document = tomllib.loads(before)
    document.setdefault("mcp_servers", {})["new"] = ENTRY
    assert tomllib.loads(after) == document
    assert member_of(after, "mcp_servers", "new", "file") == ENTRY
    assert edited(after) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (  # comments after the entry stay above the next table
            "[mcp_servers.new]\ncommand = 'y' # c\n# of z; ask Ann\n[z]\nb = nan\n",
            '[mcp_servers.new]\ncommand = "x" # c\nargs = ["a"]\n# of z; ask Ann\n[z]\nb = nan\n',
        ),
        (
            "[mcp_servers.new]\ncommand = 'y'\n\n[mcp_servers.new.env]\nA = 'b'\n\n# of z\n[z]\n",
            f"{NEW}\n\n# of z\n[z]\n",
        ),
        (
            "[mcp_servers.a]\ncommand = 'y'\n\n# of z\n[z]\n",
            f"[mcp_servers.a]\ncommand = 'y'\n\n{NEW}\n# of z\n[z]\n",
        ),
        (  # a mark, and the line endings of Windows
            "\ufeff# mine\r\n[mcp_servers.a]\r\ncommand = 'y'\r\n",
            "\ufeff# mine\r\n[mcp_servers.a]\r\ncommand = 'y'\r\n\r\n" + NEW.replace("\n", "\r\n"),
        ),
    ],
)
def test_comments_marks_and_line_endings_are_kept(before: str, after: str) -> None:
    assert edited(before) == after


def test_comments_that_would_be_lost_are_a_refusal() -> None:
    text = "[mcp_servers.new]\ncommand = 'y'\n[z]\n# of env\n[mcp_servers.new.env]\nA = 'b'\n# of k\n[k]\n"
    with pytest.raises(ValueError, match="cannot be edited"):
        edited(text)


def test_comments_are_found_outside_of_texts() -> None:
    text = '# a\na = \'# no\' # b\nb = """\n# no \\""""\nc = [ # c\n]\nd = "\\"# no"\ne = \'\'\'\n# no\'\'\'\n'
    assert tomllib.loads(text)["d"] == '"# no'
    assert comments(text) == ["# a", "# b", "# c"]


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = {a = {command = 'y'}}\n",
        "[mcp_servers]\na.command = 'y'\n",
        "[mcp_servers.a]\ncommand = 'y'\n[z]\n[mcp_servers.b]\ncommand = 'y'\n",
    ],
)
def test_servers_in_other_forms_are_kept_too(text: str) -> None:
    document = tomllib.loads(text)
    document["mcp_servers"]["new"] = ENTRY
    assert tomllib.loads(edited(text)) == document


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("a = [", ConfigError, "file: not TOML: "),
        ("mcp_servers = 5\n", ValueError, "file: its 'mcp_servers' is not a table"),
        ("[mcp_servers]\nnew = 3\n", ValueError, "file: its 'mcp_servers.new' is not a table: remove it"),
        ("[[mcp_servers.new]]\n", ValueError, "file: its 'mcp_servers.new' is not a table: remove it"),
    ],
)
def test_a_text_that_is_not_understood_is_refused(text: str, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        edited(text)


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mcp-toolbridge\[clients\]'"):
        edited("")
