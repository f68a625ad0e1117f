from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING

import pytest

from bridge.text import escape_controls, escaped_json, nearest, with_count

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.mark.parametrize(
    ("number", "noun", "words"), [(1, "tool", "1 tool"), (0, "tool", "0 tools"), (0.5, "second", "0.5 seconds")]
)
def test_one_thing_is_no_plural(number: float, noun: str, words: str) -> None:
    assert with_count(number, noun) == words


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert escape_controls("all\tof\nthis ✓") == "all\tof\nthis ✓"
    assert escape_controls("\x1b[2J\x07\r\x9b\u202e\ud800") == r"\x1b[2J\x07\r\x9b\u202e\ud800"
    assert escape_controls("one\r\ntwo") == "one\ntwo"


@pytest.mark.parametrize("char", "\u115f\u2066\u200b\u2028\u2800\u3164\ufe00\U000e0041\U000e0100")
def test_what_shows_nothing_is_written_out(char: str) -> None:
    assert escape_controls(f"a{char}b") == f"a{char.encode('unicode_escape').decode()}b"


def test_words_in_any_script_and_emoji_stay_as_they_are() -> None:
    assert escape_controls("größer שלום 日本語 ❤\ufe0f") == "größer שלום 日本語 ❤\ufe0f"


def test_json_with_what_shows_nothing_stays_the_same_json() -> None:
    value = {"a": "\x9b\u202e\U000e0041ü", "b": ["\x7f\u2028"]}
    text = json.dumps(value, ensure_ascii=False, indent=2)
    assert "ü" in escaped_json(text)
    assert escaped_json(text).replace("\n", "").isprintable()
    assert json.loads(escaped_json(text)) == value


def test_the_nearest_names_differ_by_little_whatever_their_case() -> None:
    known = ["list_users", "get_user", "get_users", "delete"]
    assert nearest("get_usr", known, 2) == ["get_user", "get_users"]
    assert nearest("GET_USER", known) == ["get_user"]
    assert nearest("purchase", known) == []


class Counted(str):
    """A name that counts how often its letters are read."""

    __slots__ = ()
    looks = 0

    def casefold(self) -> str:
        Counted.looks += 1
        return super().casefold()


def test_the_work_for_a_near_name_is_bounded_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def compare(word: str, possibilities: Iterable[str], n: int) -> list[str]:
        names = list(possibilities)
        compared.append(len(names))
        return get_close_matches(word, names, n)

    monkeypatch.setattr("bridge.text.get_close_matches", compare)
    known = [Counted(f"tool_{i}") for i in range(30_000)]
    assert nearest("tool_5O", known, 1) == ["tool_5"]
    assert compared == [20]
    assert Counted.looks <= 10_020
    assert nearest("x" * 129, known) == []
    assert compared == [20]
