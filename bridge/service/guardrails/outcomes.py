"""Outcomes of guardrails, and the call of one."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, GuardrailError
from bridge.text import short_repr
from bridge.tools.checks import listed, require_callable

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace the value and continue with the next guardrail (LangChain4j's successWith)."""

    value: Any
    """For input: text, which replaces the text of the message, or a `UserMessage`. For output: text, or a value of the
    method's return type. For a tool: its arguments as a mapping; its result as text or a `ToolExecutionResult`.
    """


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the value (LangChain4j's failure and fatal)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Discard the model's answer and request another one with the same messages (LangChain4j's retry)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reprompt:
    """Request another answer with this message to the model (LangChain4j's reprompt)."""

    text: str


InputOutcome = Rewrite | Refuse | None
"""Return value of a guardrail for input, or for a tool."""
OutputOutcome = Rewrite | Refuse | Retry | Reprompt | None
"""Return value of a guardrail for answers."""


def checked_guardrails(guardrails: object, what: str) -> tuple[Any, ...]:
    """Return guardrails as a tuple; each must be a function with one parameter."""
    items = listed(guardrails, what, "a function of the request")
    return tuple(require_callable(item, 1, f"a guardrail in {what}", "the request") for item in items)


async def ruling(guardrail: Callable[[Any], Any], request: object, refused: str, others: Any = Rewrite) -> Any:
    """Call a guardrail and return its outcome.

    Args:
        guardrail: The guardrail.
        request: Its argument.
        refused: The checked object in words, for errors.
        others: Accepted outcomes besides None, `Rewrite` and `Refuse`.

    Raises:
        GuardrailError: The guardrail refused.
        DefinitionError: The guardrail returned another type.
    """
    outcome = guardrail(request)
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if isinstance(outcome, Refuse):
        raise GuardrailError(refused, name_of(guardrail), outcome.reason)
    if outcome is None or isinstance(outcome, Rewrite | others):
        return outcome
    raise DefinitionError(
        f"the guardrail {name_of(guardrail)!r} for {refused} returned {short_repr(outcome)}; return None to accept it, "
        "Rewrite(…) or Refuse(…), and for an answer of a model also Retry(…) or Reprompt(…)"
    )


def name_of(guardrail: object) -> str:
    """Return a guardrail's name: the function's, or the object's type."""
    name: str = getattr(guardrail, "__name__", None) or type(guardrail).__name__
    return name
