from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from bridge.text import clip, to_json_line


def test_a_text_is_cut_with_a_mark_where_it_is_too_long() -> None:
    assert clip("x" * 256) == "x" * 256
    assert clip("x" * 257) == "x" * 256 + "…"
    assert clip("abc", 2) == "ab…"


def test_what_a_terminal_would_obey_is_written_escaped() -> None:
    assert to_json_line({"a\x9b": "b\u2028\x7fé"}) == '{"a\\u009b":"b\\u2028\\u007fé"}'


def test_half_a_character_is_written_escaped_and_no_number_that_json_does_not_have() -> None:
    assert to_json_line({"a": ["\ud800", math.nan, math.inf]}) == '{"a":["\\ud800",null,null]}'
    assert to_json_line(math.nan) == "null"


def test_what_cannot_be_written_at_all_is_told_by_its_type() -> None:
    nested: list[object] = []
    nested.append(nested)
    assert to_json_line(nested) == '"a list that cannot be serialized"'


@given(st.text(alphabet=st.characters()))
def test_any_text_is_one_line_that_says_it(text: str) -> None:
    line = to_json_line(text)
    assert len(line.splitlines()) == 1
    assert json.loads(line) == text
