from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.models.encoding import json_object, json_text, utf8_json
from bridge.text import utf8_text

ANY_TEXT = st.text(st.characters(codec=None), max_size=20)
"""Text that may have unpaired surrogates."""

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
)


@given(ANY_TEXT)
def test_any_text_can_be_sent_and_whole_characters_stay(text: str) -> None:
    sent = utf8_text(text)
    sent.encode()
    assert len(sent) <= len(text)
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert sent is text


def test_two_halves_that_belong_together_become_a_character() -> None:
    assert utf8_text("\ud83e\udd8a \ud83e") == "🦊 �"


@given(ANY_JSON)
def test_any_json_can_be_sent(value: Any) -> None:
    json.dumps(utf8_json(value), ensure_ascii=False).encode()
    json_text(value).encode()


def test_json_that_can_be_sent_is_not_copied() -> None:
    value = {"a": ["größe"]}
    assert utf8_json(value) is value


@given(ANY_TEXT)
def test_a_text_is_an_object_or_it_is_not(text: str) -> None:
    found = json_object(text)
    assert found is None or isinstance(found, dict)


def test_only_a_whole_object_is_an_object() -> None:
    assert json_object(' {"a": [1]}\n') == {"a": [1]}
    for text in ("", "[1]", '{"a": 1', '{"a": 1} {}', '{"a": Infinity}', "{" * 100_000):
        assert json_object(text) is None
