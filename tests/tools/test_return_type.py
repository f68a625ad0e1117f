from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, LiteralString, NamedTuple, NewType

import pytest
from typing_extensions import TypeAliasType, TypedDict

from bridge.tools.content import Content, Image, Text
from bridge.tools.results import is_content_type, is_none_type, is_open_type, is_text_type
from bridge.tools.tool import ToolExecutionResult


class Word(enum.StrEnum):
    YES = "yes"


class Word2(str):
    __slots__ = ()


class Framed(TypedDict):
    picture: Image


class Pair(NamedTuple):
    left: int
    right: str


Alias = TypeAliasType("Alias", Annotated[str, "words"])
Name = NewType("Name", str)

KINDS: dict[str, list[Any]] = {
    "none": [None, type(None), Annotated[None, "x"]],
    "text": [str, Alias, Name, Word2, Literal["a", "b"], LiteralString, Annotated[Name, "x"]],
    "open": [Any, object, str | None, int | str, Literal["a"] | None, Any | None, Annotated[int | str, "x"]],
    "content": [
        Image,
        Content,
        Image | None,
        bytes,
        ToolExecutionResult,
        list,
        tuple,
        list[Any],
        list[Image],
        list[Image] | None,
        list[int | bytes],
        set[Text],
        tuple[int, Image],
        tuple[Image, ...],
        Sequence[Text | Image],
        Annotated[list[Image], "x"],
    ],
    "data": [
        int,
        float | None,
        Word,
        Literal["a", 1],
        list[str],
        list[list[str]],
        tuple[int, str],
        dict,
        dict[str, Any],
        dict[str, Image],
        Mapping[str, bytes],
        Framed,
        Pair,
        set[int],
    ],
}


@pytest.mark.parametrize(("kind", "annotation"), [(kind, each) for kind, several in KINDS.items() for each in several])
def test_a_return_annotation_promises_one_thing(kind: str, annotation: Any) -> None:
    kinds = {"none": is_none_type, "text": is_text_type, "open": is_open_type, "content": is_content_type}
    assert [name for name, holds in kinds.items() if holds(annotation)] == ([] if kind == "data" else [kind])
