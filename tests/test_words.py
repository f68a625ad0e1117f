from __future__ import annotations

import pytest

from bridge.words import counted, visible


@pytest.mark.parametrize(
    ("number", "noun", "words"), [(1, "tool", "1 tool"), (0, "tool", "0 tools"), (0.5, "second", "0.5 seconds")]
)
def test_one_thing_is_no_plural(number: float, noun: str, words: str) -> None:
    assert counted(number, noun) == words


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert visible("all\tof\nthis ✓") == "all\tof\nthis ✓"
    assert visible("\x1b[2J\x07\r\x9b\u202e\ud800") == r"\x1b[2J\x07\r\x9b\u202e\ud800"
