from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bridge.errors import DefinitionError
from bridge.service.templates import PromptTemplate, system_message, system_template_of, user_message, user_template_of

if TYPE_CHECKING:
    from pathlib import Path


class City(BaseModel):
    name: str


class Unit(StrEnum):
    CELSIUS = "celsius"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Translate {x}.", "Translate it."),
        ("Translate {{x}}.", "Translate it."),
        ("Translate {{ x }}.", "Translate it."),
        ("{x}{{x}}", "itit"),
        ('Reply {"a": 1} about {x}', 'Reply {"a": 1} about it'),
        ("{ x } and {} and {1} and {{1}}", "{ x } and {} and {1} and {{1}}"),
    ],
)
def test_a_parameter_stands_in_one_pair_of_braces_or_two(template: str, text: str) -> None:
    assert PromptTemplate(template, ["x"], "m").render({"x": "it"}) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (1, "1"),
        (True, "true"),
        (None, "null"),
        ([1, "a"], '[1,"a"]'),
        (City(name="Paris"), '{"name":"Paris"}'),
        (Unit.CELSIUS, "celsius"),
        (object, "<class 'object'>"),
    ],
)
def test_values_are_written_as_text_or_json(value: Any, text: str) -> None:
    assert PromptTemplate("{x}", ["x"], "m").render({"x": value}) == text


@given(st.text())
def test_what_is_filled_in_is_never_looked_at_again(value: str) -> None:
    assert PromptTemplate("{x}|{y}", ["x", "y"], "m").render({"x": value, "y": "{x}"}) == f"{value}|{{x}}"


def test_a_name_that_is_no_parameter_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the template of m uses 'city', but there is no such parameter"):
        PromptTemplate("Weather in {city}?", ["town"], "m")


def test_the_date_and_the_time_are_known() -> None:
    text = PromptTemplate("{current_date} {{current_time}} {current_date_time}", [], "m").render({})
    date, time, both = text.split(" ")
    assert datetime.fromisoformat(both).tzinfo is not None
    assert datetime.fromisoformat(f"{date}T{time}").tzinfo is None


def test_decorators_leave_the_function_as_it_is() -> None:
    def chat(self: object) -> None: ...

    assert user_message("user")(system_message("system")(chat)) is chat
    assert (system_template_of(chat), user_template_of(chat)) == ("system", "user")


def test_a_template_is_read_from_a_file_beside_the_method(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "translator.txt").write_text("Übersetze nach {language}.", encoding="utf-8")
    module = tmp_path / "translator.py"
    source = "from bridge import system_message\n@system_message(file='prompts/translator.txt')\ndef chat(): ...\n"
    names: dict[str, Any] = {}
    exec(compile(source, module, "exec"), names)
    assert system_template_of(names["chat"]) == "Übersetze nach {language}."


def test_a_template_that_cannot_be_read_is_refused_with_its_path(tmp_path: Path) -> None:
    def chat(self: object) -> None: ...

    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    for file in ("missing.txt", "latin.txt"):
        with pytest.raises(DefinitionError, match=f"chat cannot be read from {re.escape(str(tmp_path / file))}: "):
            user_message(file=tmp_path / file)(chat)
    for given_twice in ({}, {"template": "text", "file": "text.txt"}):
        decorate: Any = user_message
        with pytest.raises(DefinitionError, match="is a text or a file; give one of them"):
            decorate(**given_twice)(chat)
    with pytest.raises(DefinitionError, match=r"template must be text, or file=… for a file, not PosixPath"):
        decorate(tmp_path)
