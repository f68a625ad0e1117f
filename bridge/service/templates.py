"""Prompt templates of service methods.

    @system_message("You are a polite translator.")
    @user_message("Translate into {language}: {{it}}")
    async def translate(self, text: str, language: str) -> str: ...

A parameter is written in single or double braces (the latter as in LangChain4j). ``it`` is the parameter that is not
used otherwise. Braces around anything except a name are plain text, so that prompts may contain JSON. Inserted values
are not expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import PydanticSerializationError, to_json

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Collection

F = TypeVar("F", bound=Callable[..., Any])

IT = "it"
"""Name of the only parameter in a template, as in LangChain4j."""

_SYSTEM, _USER = "__bridge_system_message__", "__bridge_user_message__"
_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}|\{([^\W\d]\w*)\}")

_NOW: Mapping[str, Callable[[], str]] = {
    "current_date": lambda: datetime.now().astimezone().date().isoformat(),
    "current_time": lambda: datetime.now().astimezone().time().isoformat("seconds"),
    "current_date_time": lambda: datetime.now().astimezone().isoformat(timespec="seconds"),
}
"""Variables that need no parameter, as in LangChain4j; in local time."""


def system_message(template: str) -> Callable[[F], F]:
    """Set the system message of a service's method (LangChain4j's @SystemMessage)."""
    return lambda function: _set_template(function, _SYSTEM, template)


def user_message(template: str) -> Callable[[F], F]:
    """Set the user message of a service's method (LangChain4j's @UserMessage)."""
    return lambda function: _set_template(function, _USER, template)


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
                "add it, or put a space inside the braces if they are text"
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


def _set_template(function: F, key: str, template: str) -> F:
    if not callable(function):
        raise DefinitionError(f"{function!r} cannot have a template; decorate a method of the service's interface")
    setattr(function, key, template)
    return function
