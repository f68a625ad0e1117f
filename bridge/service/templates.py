"""Templates: what a service's method says to the model, with the method's parameters filled in.

    @system_message("You are a polite translator.")
    @user_message("Translate into {language}: {{it}}")
    async def translate(self, text: str, language: str) -> str: ...

A parameter stands in one pair of braces or in two (LangChain4j's way); ``it`` is the parameter that nothing else uses,
where there is one. Braces around anything but a name are text, so that JSON may stand in a prompt. What is filled in is
never looked at again: a value with braces stays what it is.
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
"""The name of the one parameter, in a template (LangChain4j's word)."""

_SYSTEM, _USER = "__bridge_system_message__", "__bridge_user_message__"
_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}|\{([^\W\d]\w*)\}")

_NOW: Mapping[str, Callable[[], str]] = {
    "current_date": lambda: datetime.now().astimezone().date().isoformat(),
    "current_time": lambda: datetime.now().astimezone().time().isoformat("seconds"),
    "current_date_time": lambda: datetime.now().astimezone().isoformat(timespec="seconds"),
}
"""What a template may name without a parameter, as in LangChain4j; by the local clock."""


def system_message(template: str) -> Callable[[F], F]:
    """Say how the model is to behave in a method of a service (LangChain4j's @SystemMessage)."""
    return lambda function: _noted(function, _SYSTEM, template)


def user_message(template: str) -> Callable[[F], F]:
    """Say what a method of a service asks of the model (LangChain4j's @UserMessage)."""
    return lambda function: _noted(function, _USER, template)


def system_template_of(function: Any) -> str | None:
    """What `system_message` noted."""
    text: str | None = getattr(function, _SYSTEM, None)
    return text


def user_template_of(function: Any) -> str | None:
    """What `user_message` noted."""
    text: str | None = getattr(function, _USER, None)
    return text


class PromptTemplate:
    """A text with places for parameters.

    Args:
        text: The text.
        names: The parameters that there are.
        source: Where the template stands, for messages.

    Attributes:
        used: The parameters that it uses; ``it`` is one of them until somebody says which parameter it is.

    Raises:
        DefinitionError: It names a parameter that there is not.
    """

    def __init__(self, text: str, names: Collection[str], source: str) -> None:
        self._text = text
        self.used = {match[1] or match[2] for match in _PLACEHOLDER.finditer(text)} - (_NOW.keys() - set(names))
        for name in sorted(self.used - set(names) - {IT}):
            raise DefinitionError(
                f"the template of {source} names {name!r}, and there is no such parameter; "
                "add it, or put a space inside the braces where they are text"
            )

    def render(self, values: Mapping[str, Any]) -> str:
        """The text with the values of the parameters."""

        def value_of(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return format_value(values[name]) if name in values else _NOW[name]()

        return _PLACEHOLDER.sub(value_of, self._text)


def format_value(value: Any) -> str:
    """A value as it stands in a prompt: text as it is, everything else as JSON, or as it shows itself."""
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return to_json(value).decode()
    except PydanticSerializationError:
        return str(value)


def _noted(function: F, key: str, template: str) -> F:
    if not callable(function):
        raise DefinitionError(f"{function!r} cannot have a template; decorate a method of the service's interface")
    setattr(function, key, template)
    return function
