"""Terminal output."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from bridge.cli.terminal import broken_for, wants_colour, wrapped, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "on_a_terminal", "elsewhere"),
    [
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
        ({"TERM": "xterm", "FORCE_COLOR": "0"}, False, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_colours_follow_the_terminal_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], on_a_terminal: bool, elsewhere: bool
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (wants_colour(FakeTerminal()), wants_colour(io.StringIO())) == (on_a_terminal, elsewhere)


def test_numbers_that_json_does_not_have_are_null(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_json([float("inf"), float("nan"), 1.5])
    assert json.loads(capfdbinary.readouterr().out) == [None, None, 1.5]


def test_diagnostics_end_between_words_and_commands_and_json_stay_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    text = (
        "bridge: there is no file named tools.py\n  bridge inspect tools.py --port 1\n" + '{"a": "a long text of it"}'
    )
    broken = broken_for(FakeTerminal(), text)
    assert broken.splitlines() == [
        "bridge: there is no",
        "    file named",
        "    tools.py",
        "  bridge inspect tools.py --port 1",
        '{"a": "a long text of it"}',
    ]
    assert broken_for(io.StringIO(), text) == text


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize(
    "line",
    [
        "error: tool 'add': the description says nothing about its --long-option to the model",
        "    a: integer between one and ten, or a text of the same meaning",
        "sums    failed   server 'sums', starting: command not found: 'no-such-program'",
    ],
)
def test_a_line_is_broken_between_words_at_any_width(line: str, width: int) -> None:
    parts = wrapped(line, width)
    assert " ".join(" ".join(parts).split()) == " ".join(line.split())
    assert all(len(part) <= width or len(part.split()) == 1 for part in parts)


def test_a_line_continues_below_its_last_column() -> None:
    line = "sums  failed  command not found: 'no-such-program'"
    assert wrapped(line, 36) == ["sums  failed  command not found:", "              'no-such-program'"]
