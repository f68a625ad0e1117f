from __future__ import annotations

import pytest

from bridge.words import counted


@pytest.mark.parametrize(
    ("number", "noun", "words"), [(1, "tool", "1 tool"), (0, "tool", "0 tools"), (0.5, "second", "0.5 seconds")]
)
def test_one_thing_is_no_plural(number: float, noun: str, words: str) -> None:
    assert counted(number, noun) == words
