"""Parameters of a chat request: what a service, or one call, wants of the model.

LangChain4j's ChatRequestParameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from bridge.service.chat_model import ToolChoice, ToolChoiceMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.service.chat_model import ChatRequest

_EMPTY: Mapping[str, Any] = {}
_AUTO = ToolChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequestParameters:
    """What is wanted of the model; None is unsaid. A method's parameter of this type sets them for one call."""

    tool_choice: ToolChoice | None = None
    """For the first response: a choice that forces a call would otherwise force one in every response, for ever."""
    model_name: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Parameters that only one provider knows."""

    def over(self, others: ChatRequestParameters) -> ChatRequestParameters:
        """These, and those of the others that are unsaid here."""
        said = {name: value for name in _NAMES if (value := getattr(self, name)) is not None}
        return replace(others, **{**said, "extra": {**others.extra, **self.extra}})

    def applied_to(self, request: ChatRequest) -> ChatRequest:
        """The request with these parameters."""
        said = {name: value for name in _NAMES if (value := getattr(self, name)) is not None}
        return replace(request, **said) if said != {"extra": _EMPTY} else request


_NAMES = tuple(each.name for each in fields(ChatRequestParameters))


def after_first_response(choice: ToolChoice) -> ToolChoice:
    """The choice for the responses after the first: what forced a call has been obeyed."""
    return choice if choice.mode in {ToolChoiceMode.AUTO, ToolChoiceMode.NONE} else _AUTO
