from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.tools.search.languages import words_in_english
from bridge.tools.search.words import words_of
from tests.benchmarks.tool_search.questions import HELD_BACK, TUNED_ON, questions


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("Lösche die Datei bitte", ["delete", "file"]),
        ("envoie un message à Paul", ["send", "message", "a", "paul"]),
        ("borra la máquina virtual", ["delete", "machine", "virtual"]),
        ("mostra i log del pod", ["show", "log", "pod"]),
        ("cria uma página", ["create", "page"]),
        ("покажи логи", ["show", "log"]),
        ("在 github 上创建分支", ["在", "github", "上", "create", "branch"]),
        ("ファイルを削除", ["file", "を", "delete"]),
    ],
)
def test_frequent_words_of_other_languages_become_english(query: str, words: list[str]) -> None:
    assert words_in_english(query) == words


def test_english_stays_as_it_is() -> None:
    asked = questions(TUNED_ON) + questions(HELD_BACK)
    english = [question.text for question in asked if question.kind != "other languages"]
    assert [text for text in english if words_in_english(text) != words_of(text)] == []


@given(st.text())
def test_no_text_fails(text: str) -> None:
    assert all(words_in_english(text))
