from __future__ import annotations

import pytest

from bridge.tools.search.words import STOP_WORDS, stem_of, stems_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserName", ["get", "user", "name"]),
        ("get_user-name", ["get", "user", "name"]),
        ("HTTPServer", ["http", "server"]),
        ("parseURL", ["parse", "url"]),
        ("v2Beta10", ["v", "2", "beta", "10"]),
        ("résumé", ["resume"]),
        ("Größe", ["große"]),
        ("покажи логи", ["покажи", "логи"]),
        ("API-post-page", ["api", "post", "page"]),
        ("?!", []),
    ],
)
def test_identifiers_and_texts_are_split_into_words_without_accents(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    "words",
    [
        ("book", "books", "booked", "booking", "bookings"),
        ("query", "queries"),
        ("search", "searches", "searching"),
        ("create", "creates", "created", "creating"),
        ("stop", "stopped", "stopping"),
        ("attach", "attachment", "attachments"),
    ],
)
def test_forms_of_a_word_have_one_stem(words: tuple[str, ...]) -> None:
    assert {stem_of(word) for word in words} == {stem_of(words[0])}


@pytest.mark.parametrize(
    ("one", "other"), [("for", "fork"), ("are", "area"), ("status", "stat"), ("string", "str"), ("news", "ne")]
)
def test_different_words_have_different_stems(one: str, other: str) -> None:
    assert stem_of(one) != stem_of(other)


def test_stop_words_have_no_stems() -> None:
    assert stems_of(" ".join(STOP_WORDS)) == []
