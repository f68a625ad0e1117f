"""Return type: what a return annotation promises about a tool's results."""

from __future__ import annotations

import types
from collections.abc import Collection, MutableSequence, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, LiteralString, Union, get_args, get_origin

from typing_extensions import TypeAliasType

from bridge.tools.content import Block
from bridge.tools.tool import ToolExecutionResult

_CONTENT = (Block, bytes, bytearray, memoryview, ToolExecutionResult)
_SEQUENCES = (list, tuple, set, frozenset, Sequence, MutableSequence, Collection)


def is_none_type(annotation: Any) -> bool:
    """The function returns nothing."""
    return _bare(annotation) in (None, types.NoneType)


def is_text_type(annotation: Any) -> bool:
    """The function returns text: `str`, or one of some texts. An enum of texts is JSON data."""
    annotation = _bare(annotation)
    if get_origin(annotation) is Literal:
        return all(type(choice) is str for choice in get_args(annotation))
    if annotation is LiteralString:
        return True
    return isinstance(annotation, type) and issubclass(annotation, str) and not issubclass(annotation, Enum)


def is_open_type(annotation: Any) -> bool:
    """The function may return anything, or text among other things: the value has to tell what it is."""
    annotation = _bare(annotation)
    return annotation in (Any, object) or any(
        is_open_type(each) or is_text_type(each) for each in _alternatives(annotation)
    )


def is_content_type(annotation: Any) -> bool:
    """The function may return blocks of content, bytes, a list with one of these, or a whole result."""
    annotation = _bare(annotation)
    if isinstance(annotation, type) and issubclass(annotation, _CONTENT):
        return True
    if any(map(is_content_type, _alternatives(annotation))):
        return True
    if (get_origin(annotation) or annotation) not in _SEQUENCES:
        return False
    items = [each for each in get_args(annotation) if each is not ...]
    return not items or any(map(_may_be_block, items))


def _may_be_block(annotation: Any) -> bool:
    annotation = _bare(annotation)
    return (
        annotation in (Any, object) or is_content_type(annotation) or any(map(_may_be_block, _alternatives(annotation)))
    )


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()


def _bare(annotation: Any) -> Any:
    """A type without what was written around it: metadata, aliases and new names."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        else:
            return annotation
