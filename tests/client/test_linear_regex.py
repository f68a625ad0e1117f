from __future__ import annotations

import pytest

from bridge.client.bounded_schema import LinearRegex


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-22"),
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "01234567-89ab-cdef-0123-456789abcdef"),
        (r"^[^\s@]+@[\w.-]+$", "a@b.c"),
        (r"^((25[0-5]|2[0-4]\d|1?\d?\d)(\.|$)){4}$", "127.0.0.1"),
        (r"[\[\]]", "]"),
        ("a|\\{", "{"),
    ],
)
def test_what_schemas_say_is_searched_for(pattern: str, text: str) -> None:
    regex = LinearRegex.of(pattern)
    assert regex is not None
    assert (regex.matches(text), regex.matches(f"%{text[:0]}")) == (True, False)
    assert regex.steps(text) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)b",
        r"(a)\1",
        "(",
        "[[a-z]]",
        "[a-z&&[b]]",
        "(a{100}){100}",
        r"\w{1000}",
        "a{4294967296}",
        "(" * 3_000,
        "x" * 3_000,
        "((((((((a{9}){9}){9}){9}){9}){9}){9}){9})",
    ],
)
def test_what_is_no_bounded_work_or_read_differently_is_left_out(pattern: str) -> None:
    assert LinearRegex.of(pattern) is None


def test_a_long_text_is_left_out() -> None:
    regex = LinearRegex.of("^(a+)+$")
    assert regex is not None
    assert regex.steps("a" * 10_000) is not None
    assert regex.steps("a" * 1_000_000) is None
