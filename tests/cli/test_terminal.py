"""Terminal output."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from bridge.cli.terminal import wants_colour, write_json

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
