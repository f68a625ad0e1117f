"""Help texts: groups, examples, and lines that end between words."""

from __future__ import annotations

from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from bridge.cli import COMMANDS, main
from bridge.cli.help import HelpContext, WordFormatter
from bridge.cli.serve import command as serve

MAX_LINES = 24
"""Lines of the longest group, at 80 columns."""


def help_of(command: click.Command, width: int) -> str:
    command.context_class = HelpContext
    return command.get_help(HelpContext(command, info_name="bridge serve", terminal_width=width))


def sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line[0].isspace():
            found[line] = []
        elif found and line:
            found[[*found][-1]].append(line)
    return found


def test_the_help_of_serve_begins_with_examples_and_has_groups_of_options() -> None:
    usage, examples, options, *others = sections(help_of(serve, 80)).items()
    assert usage[0].startswith("Usage: bridge serve")
    assert (examples[0], options[0]) == ("Examples:", "Options:")
    assert "  bridge serve tools.py --transport http" in examples[1]
    assert [heading for heading, _ in others][:3] == ["HTTP:", "Servers whose tools are served:", "Keys:"]
    assert max(len(lines) for _, lines in [options, *others]) <= MAX_LINES
    assert "env var" not in help_of(serve, 80)


def test_every_option_of_serve_is_in_one_group() -> None:
    shown = [
        line.split()[0]
        for line in help_of(serve, 80).splitlines()
        if line.startswith("  --") and line.split()[0] != "--help"
    ]
    options = [each.opts[0] for each in serve.params if isinstance(each, click.Option) and each.name != "help"]
    assert sorted(shown) == sorted(options)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_word_is_broken_at_any_width(width: int) -> None:
    words = set(help_of(serve, 10_000).replace("|", "| ").split())
    assert {word for word in help_of(serve, width).replace("|", "| ").split() if word not in words} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_longer_than_a_narrow_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = import_module(f"bridge.cli.{name}").command
    command.context_class = HelpContext
    text = command.get_help(HelpContext(command, info_name=f"bridge {name}"))
    assert {line for line in text.splitlines() if len(line) > 40} == set()


def test_every_command_writes_its_help_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert "\ue000" not in capsys.readouterr().out
    assert WordFormatter(width=40).getvalue() == ""
    assert CliRunner().invoke(serve, ["--help"]).exit_code == 0
