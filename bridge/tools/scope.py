"""Scope: what the string annotations of a function name that its module does not have."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType


def scope_of(function: Any, frame: FrameType | None) -> dict[str, Any]:
    """The names that a function's string annotations use, found in the functions and classes around its definition.

    Only there are they known, and only while the function is being defined: once it is a tool, `typing` finds no more
    than the names of the module.

    Args:
        function: The function, while its definition is being executed.
        frame: A frame that the definition called.
    """
    function = inspect.unwrap(function)
    around = getattr(function, "__qualname__", "").split(".")[-2::-1]
    scopes = [name for name in around if name != "<locals>"]
    wanted = _names_in_annotations(function) if scopes else set()
    found: dict[str, Any] = {}
    while wanted and scopes and frame is not None:
        if frame.f_code.co_name == scopes[0]:
            del scopes[0]
            for name in wanted & frame.f_locals.keys():
                found.setdefault(name, frame.f_locals[name])
        frame = frame.f_back
    return found


def _names_in_annotations(function: Any) -> set[str]:
    names: set[str] = set()
    for annotation in getattr(function, "__annotations__", {}).values():
        if isinstance(annotation, str):
            try:
                names.update(compile(annotation, "<annotation>", "eval").co_names)
            except SyntaxError:
                continue  # said when the tool is made, with the parameter's name
    return names - getattr(function, "__globals__", {}).keys()
