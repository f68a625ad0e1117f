"""A message as one line of JSON text: what goes into a store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bridge.errors import WireError
from bridge.service.messages import SystemMessage, message_from_json, message_to_json
from bridge.text import short_repr
from bridge.types import require_object

if TYPE_CHECKING:
    from bridge.service.messages import ChatMessage


def message_to_text(message: ChatMessage) -> str:
    """A message as JSON text; in ASCII, since a model may write half of a character, which no encoding knows."""
    return json.dumps(message_to_json(message), separators=(",", ":"), default=dict)


def message_from_text(text: str | bytes) -> ChatMessage:
    """The message that `message_to_text` wrote.

    Raises:
        WireError: It is no such text.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise WireError(f"a stored message that is no JSON: {short_repr(text)}") from error
    return message_from_json(require_object(data, "a stored message"))


def system_message_from_text(text: str | bytes) -> SystemMessage:
    """The system message that `message_to_text` wrote.

    Raises:
        WireError: It is no such text.
    """
    message = message_from_text(text)
    if not isinstance(message, SystemMessage):
        raise WireError(f"a stored system message that is none: {short_repr(text)}")
    return message
