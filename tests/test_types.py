"""JSON that other programs wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.types import ValueBounds

JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('[]{}",:\\\na\u2200')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('[{",:\\')), inner),
)


def counts(value: Any) -> tuple[int, int]:
    """Return the numbers of objects and arrays in a value, and of colons and commas outside of texts in its JSON."""
    if not isinstance(value, dict | list):
        return 0, 0
    inner = [counts(each) for each in (value.values() if isinstance(value, dict) else value)]
    marks = max(len(value) - 1, 0) + (len(value) if isinstance(value, dict) else 0)
    return 1 + sum(each[0] for each in inner), 1 + marks + sum(each[1] for each in inner)


@given(JSON, st.booleans())
def test_values_are_counted_whatever_stands_in_texts(value: object, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii).encode()
    containers, entries = counts(value)
    assert ValueBounds(containers, entries).excess(text) is None
    if containers:
        assert ValueBounds(containers - 1, entries).excess(text) is not None
        assert ValueBounds(containers, entries - 1).excess(text) is not None


@given(JSON, st.sampled_from([0.0, 0.5, 1.0]))
def test_the_share_of_a_text_is_never_too_low(value: object, ignored: float) -> None:
    containers, entries = counts(value)
    share = ValueBounds(containers + 1, 2 * entries + 1).share(json.dumps(value).encode(), ignored)
    assert max(containers / (containers + 1), entries / (2 * entries + 1)) <= share <= 1.0


@given(JSON, st.binary())
def test_up_to_a_syntax_error_the_count_is_not_too_low(value: object, rest: bytes) -> None:
    containers, entries = counts(value)
    text = b"[" + json.dumps(value).encode() + b"," + rest
    assert ValueBounds(containers, 10**6).excess(text) is not None
    assert ValueBounds(containers + 1, entries + 1).excess(text) is not None


@pytest.mark.parametrize(
    ("text", "excess"),
    [
        (b'[{},{},"abcdef"]', "3 objects and arrays, of 2 at most"),
        (b"[1,2,3,4,5,6]", "6 names and values, of 4 at most"),
        (b'{"a":1,"b":2}', "4 names and values, of 3 at most"),
        (b'",,,,""b""c""d""e""f"', "6 names and texts, of 3 at most"),
    ],
)
def test_the_excess_names_the_count_and_the_bound(text: bytes, excess: str) -> None:
    entries = int(excess.split(" of ")[1].split(maxsplit=1)[0]) if "names" in excess else 99
    assert ValueBounds(2, entries).excess(text) == excess


@pytest.mark.parametrize("names", [50_001, 100_003])
def test_different_names_are_counted(names: int) -> None:
    members = ",".join(f'"a\\"{number}":"b:\\\\"' for number in range(names))
    text = f"{{{members}}}".encode()
    assert ValueBounds(9, 10**6, names).excess(text) is None
    assert ValueBounds(9, 10**6, names - 1).excess(text) == f"more than {names - 1:,} different names"
    repeated = b"[%b]" % b",".join([b'{"a": "%d:"}' % number for number in range(names)])
    assert ValueBounds(10**6, 10**6, 1).excess(repeated) is None
