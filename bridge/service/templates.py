"""Prompt templates of service methods.

    @system_message("You are a polite translator.")
    @user_message("Translate into {language}: {{it}}")
    async def translate(self, text: str, language: str) -> str: ...

A parameter is written in single or double braces (the latter as in LangChain4j). ``it`` is the parameter that is not
used otherwise. Braces around anything except a name are plain text, so that prompts may contain JSON. Inserted values
are not expanded again. A template may be a file: ``@system_message(file="translator.txt")``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pydantic_core import PydanticSerializationError, to_json

from bridge.errors import DefinitionError
from bridge.tools.checks import require_type

if TYPE_CHECKING:
    import os
    from collections.abc import Collection
    from types import FunctionType

F = TypeVar("F", bound=Callable[..., Any])

IT = "it"
"""Name of the only parameter in a template, as in LangChain4j."""

_SYSTEM, _USER = "__bridge_system_message__", "__bridge_user_message__"
_PLACEHOLDER = re.compile(r"\{\{\s*([^\W\d]\w*)\s*\}\}|\{([^\W\d]\w*)\}")

_NOW: Mapping[str, Callable[[], str]] = {
    "current_date": lambda: datetime.now().astimezone().date().isoformat(),
    "current_time": lambda: datetime.now().astimezone().time().isoformat("seconds"),
    "current_date_time": lambda: datetime.now().astimezone().isoformat(timespec="seconds"),
}
"""Variables that need no parameter, as in LangChain4j; in local time."""


@overload
def system_message(template: str) -> Callable[[F], F]: ...
@overload
def system_message(*, file: str | os.PathLike[str]) -> Callable[[F], F]: ...
def system_message(template: str | None = None, *, file: str | os.PathLike[str] | None = None) -> Callable[[F], F]:
    """Set the system message of a service's method (LangChain4j's @SystemMessage).

    Args:
        template: The template.
        file: File with the template in UTF-8, in place of ``template``; relative to the file that defines the method.

    Raises:
        DefinitionError: The file cannot be read, the template is not text, or not exactly one of them is given.
    """
    return _template_decorator(_SYSTEM, template, file)


@overload
def user_message(template: str) -> Callable[[F], F]: ...
@overload
def user_message(*, file: str | os.PathLike[str]) -> Callable[[F], F]: ...
def user_message(template: str | None = None, *, file: str | os.PathLike[str] | None = None) -> Callable[[F], F]:
    """Set the user message of a service's method (LangChain4j's @UserMessage).

    Args:
        template: The template.
        file: File with the template in UTF-8, in place of ``template``; relative to the file that defines the method.

    Raises:
        DefinitionError: The file cannot be read, the template is not text, or not exactly one of them is given.
    """
    return _template_decorator(_USER, template, file)


def system_template_of(function: Any) -> str | None:
    """Return the template set by `system_message`."""
    text: str | None = getattr(function, _SYSTEM, None)
    return text


def user_template_of(function: Any) -> str | None:
    """Return the template set by `user_message`."""
    text: str | None = getattr(function, _USER, None)
    return text


class PromptTemplate:
    """A text with placeholders for parameters.

    Args:
        text: The template.
        names: Names of the parameters.
        source: Location of the template, for messages.

    Attributes:
        used: Names that the template uses, including ``it``.

    Raises:
        DefinitionError: The template uses an unknown parameter.
    """

    def __init__(self, text: str, names: Collection[str], source: str) -> None:
        self._text = text
        self.used = {match[1] or match[2] for match in _PLACEHOLDER.finditer(text)} - (_NOW.keys() - set(names))
        for name in sorted(self.used - set(names) - {IT}):
            raise DefinitionError(
                f"the template of {source} uses {name!r}, but there is no such parameter; "
                "add it, or write single braces with a space inside them if they are text"
            )

    def render(self, values: Mapping[str, Any]) -> str:
        """Insert the values of the parameters."""

        def value_of(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return format_value(values[name]) if name in values else _NOW[name]()

        return _PLACEHOLDER.sub(value_of, self._text)


def format_value(value: Any) -> str:
    """Format a value for a prompt: strings unchanged, other values as JSON, or with ``str()``."""
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return to_json(value).decode()
    except PydanticSerializationError:
        return str(value)


def _template_decorator(key: str, template: str | None, file: str | os.PathLike[str] | None) -> Callable[[F], F]:
    if (template is None) == (file is None):
        raise DefinitionError("a template is a text or a file; give one of them")
    if file is None:
        require_type(template, str, "template", "text, or file=… for a file")

    def decorate(function: F) -> F:
        if not inspect.isfunction(function):
            raise DefinitionError(f"{function!r} cannot have a template; decorate a method of the service's interface")
        setattr(function, key, template if file is None else _read(file, function))
        return function

    return decorate


def _read(file: str | os.PathLike[str], function: FunctionType) -> str:
    path = Path(function.__code__.co_filename).parent / file
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"the template of {function.__qualname__} cannot be read from {path}: {error}") from error
