"""Docstrings as descriptions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import pytest

from bridge.tools.schema.annotations import attribute_descriptions, read_docstring

GOOGLE = """Say the weather.

    More about it.

    Args:
        city: The city's
            name.
        days (int): How many days.

    Returns:
        Words.
    """

NUMPY = """Say the weather.

    Parameters
    ----------
    city : str
        The city's name.
    days : int
        How many days.
    """

REST = """Say the weather.

    :param city: The city's name.
    :param int days: How many days.
    :returns: Words.
    """


EPYTEXT = """Say the weather.

    @param city: The city's name.
    @param days: How many days.
    @return: Words.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST, EPYTEXT], ids=["google", "numpy", "rest", "epytext"])
def test_each_style_describes_the_parameters(docstring: str) -> None:
    assert read_docstring(docstring).parameters == {"city": "The city's name.", "days": "How many days."}


def test_parameters_described_together_and_without_words_are_named_each() -> None:
    docstring = "Add.\n\nParameters\n----------\na, b : int\n    Both.\nc\n"
    assert read_docstring(docstring).parameters == {"a": "Both.", "b": "Both.", "c": ""}


@pytest.mark.parametrize(
    "docstring", [None, "", "One line.", "Two\nlines.", "One.\n\nArgs:\n", "One.\n\nAttributes:\n    a: An attribute."]
)
def test_a_docstring_without_parameters_describes_none(docstring: str | None) -> None:
    assert read_docstring(docstring).parameters == {}


@pytest.mark.parametrize(
    ("docstring", "description"),
    [
        (None, None),
        ("", None),
        ("   \n  ", None),
        ("One line.", "One line."),
        ("\n    Begins on\n    the second line.\n\n    More.\n    ", "Begins on the second line.\n\nMore."),
        (GOOGLE, "Say the weather.\n\nMore about it."),
        (NUMPY, "Say the weather."),
        (REST, "Say the weather."),
        (EPYTEXT, "Say the weather."),
        ("Add.\n:param a: One.", "Add."),
        ("Add.\nArgs:\n    a: One.", "Add."),
        ("Knows this: a colon\nin a line.", "Knows this: a colon in a line."),
        ("One.\n\nUnits are:\n- C\n- K\n\n    x = 1\n", "One.\n\nUnits are:\n- C\n- K\n\n    x = 1"),
        ("One.\n\nTwo.\n\n- three\n- four\n\nReturns:\n    Five.", "One.\n\nTwo.\n\n- three\n- four"),
        (":param a: One.", None),
    ],
)
def test_the_description_is_all_but_the_sections(docstring: str | None, description: str | None) -> None:
    assert read_docstring(docstring).description == description


class Level(Enum):
    LOW = 1
    """Can wait."""
    HIGH = 2


@dataclass
class Base:
    a: int
    """The base's a."""
    b: int
    """The base's b."""


class Sub(Base):
    b: int
    """The sub's b,
    on two lines."""
    c = 3
    "In quotes of one line."
    d: int
    4  # noqa: B018 - no text


class Pair(NamedTuple):
    left: int
    """The left text."""


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (Level, {"LOW": "Can wait."}),
        (Base, {"a": "The base's a.", "b": "The base's b."}),
        (Sub, {"a": "The base's a.", "b": "The sub's b,\non two lines.", "c": "In quotes of one line."}),
        (Pair, {"left": "The left text."}),
        (int, {}),
    ],
)
def test_strings_after_attributes_describe_them(owner: type, expected: dict[str, str]) -> None:
    assert attribute_descriptions(owner) == expected


def test_a_class_without_source_has_no_descriptions() -> None:
    assert attribute_descriptions(type("Made", (), {"a": 1})) == {}
