"""Plain language: phrases that readers stumble over stay out of pages, messages, help texts and docstrings."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.markdown import ROOT, Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PHRASES = {
    r"\bof it\b": "name the thing: 'one of its streams' or 'the whole file'",
    r"\b(that|who|which|what) (is|are) (none\b|no\b(?! longer))": "say 'is not a …', or 'other values'",
    r"(?<!there )(?<!There )\b(is|are) no (?!longer\b|more\b|other\b|such\b|one\b|code\b|page\b)": "say 'is not a …'",
    r"\bstands?\b(?! alone)|\bstood\b": "say 'is', 'means' or 'matches'",
    r"\b(all|as many|of the|free|several) places\b": "say 'slots' or 'locations'",
    r"(?<!\bnot )\bas long\b(?! as \d)": "say 'while', 'if' or 'up to'",
    r"\balso if\b": "say 'even if'",
    r"\bis no choice\b": "say 'is not one of the choices'",
    r"(?:^|[.;:|]\s+)Of (?:an?|the|other|each|all|these|such|ten|\d+)\b": "begin with the subject",
}
"""Patterns of phrases, and a remedy for each."""
ALLOWED = ("Of 601 [tasks]",)
OPENERS = ("What", "Who", "Whose", "Where", "How", "Whether", "That")
"""Words that open no docstring: it names the thing, or says what it does."""
PAGES = [
    Document(path) for path in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
]
DEPLOYED = sorted(
    path for path in (ROOT / "examples" / "deploy").rglob("*") if path.suffix in {".yaml", ".conf", ".service"}
)
SOURCES = sorted((ROOT / "bridge").rglob("*.py"))
WORDS_OF_SEARCH = ROOT / "bridge" / "tools" / "search" / "synonyms.py"
"""The file with words that a search takes for one another."""
WITH_DOCSTRINGS = [
    path
    for folder in ("bridge", "servers", "examples", "tests", ".docker")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def found_in(text: str) -> list[str]:
    """Every phrase in a text, with its surroundings and the remedy."""
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    return [
        f"{text[max(0, match.start() - 40) : match.end() + 40]!r}: {remedy}"
        for phrase, remedy in PHRASES.items()
        for match in re.finditer(phrase, text)
    ]


def comments(text: str) -> str:
    """The comments of a configuration file; those of successive lines are one sentence."""
    return "\n".join(re.findall(r"#+ ?(.*)$", text, re.MULTILINE))


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string of a module that is no docstring, with its line."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every docstring of a module, its classes, functions and attributes, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_a_page_is_in_plain_language(page: Document) -> None:
    assert found_in(page.sentences) == []


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: str(path.name))
def test_the_comments_of_a_file_for_deployment_are_in_plain_language(path: Path) -> None:
    assert found_in(" ".join(comments(path.read_text(encoding="utf-8")).split())) == []


def test_messages_and_help_texts_are_in_plain_language() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": phrases
        for path in SOURCES
        if path != WORDS_OF_SEARCH and "inspector" not in path.parts
        for line, text in strings(ast.parse(path.read_text(encoding="utf-8")))
        if (phrases := found_in(text))
    }
    assert found == {}


def test_a_docstring_names_the_thing_or_says_what_it_does() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": text.partition("\n")[0]
        for path in WITH_DOCSTRINGS
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if text.split(" ", 1)[0] in OPENERS
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "a key of it",
        "a value that is none",
        "'green' is no choice",
        "stands for",
        "all places",
        "they wait as long",
        "also if it",
        "Of an idempotent tool, all",
    ],
)
def test_a_phrase_is_found(text: str) -> None:
    assert found_in(text) != []


@pytest.mark.parametrize(
    "text", ["there is no file", "it is no longer used", "ten times as fast", "not as long", "takes place"]
)
def test_other_sentences_are_not_flagged(text: str) -> None:
    assert found_in(text) == []
