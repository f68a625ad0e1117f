from __future__ import annotations

import json

import pytest

from bridge.words import counted, escaped_json, visible


@pytest.mark.parametrize(
    ("number", "noun", "words"), [(1, "tool", "1 tool"), (0, "tool", "0 tools"), (0.5, "second", "0.5 seconds")]
)
def test_one_thing_is_no_plural(number: float, noun: str, words: str) -> None:
    assert counted(number, noun) == words


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert visible("all\tof\nthis ✓") == "all\tof\nthis ✓"
    assert visible("\x1b[2J\x07\r\x9b\u202e\ud800") == r"\x1b[2J\x07\r\x9b\u202e\ud800"
    assert visible("one\r\ntwo") == "one\ntwo"


@pytest.mark.parametrize("char", "\u115f\u2066\u200b\u2028\u2800\u3164\ufe00\U000e0041\U000e0100")
def test_what_shows_nothing_is_written_out(char: str) -> None:
    assert visible(f"a{char}b") == f"a{char.encode('unicode_escape').decode()}b"


def test_words_in_any_script_and_emoji_stay_as_they_are() -> None:
    assert visible("größer שלום 日本語 ❤\ufe0f") == "größer שלום 日本語 ❤\ufe0f"


def test_json_with_what_shows_nothing_stays_the_same_json() -> None:
    value = {"a": "\x9b\u202e\U000e0041ü", "b": ["\x7f\u2028"]}
    text = json.dumps(value, ensure_ascii=False, indent=2)
    assert "ü" in escaped_json(text)
    assert escaped_json(text).replace("\n", "").isprintable()
    assert json.loads(escaped_json(text)) == value
