"""Errors with which subscriptions end before their time (SEP-3415, "Subscription Termination")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.events.event_type import problem_of
from bridge.protocol.versions import FORBIDDEN, INVALID_PARAMS, NOT_FOUND, UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.errors import ServerRefusedError
    from bridge.events.event_type import EventType
    from bridge.types import Json

REVOKED: Json = {
    "code": FORBIDDEN,
    "message": "the access to these events has ended",
    "data": {"reason": "access_revoked"},
}
"""The error of a subscription whose caller does not see its events any more."""
_ENDS = frozenset({NOT_FOUND, FORBIDDEN, UNSUPPORTED, -32023, -32024, -32026})
"""Codes with which a server ends a subscription: those of hosts in use, and those of SEP-3415."""


def removed(name: str) -> Json:
    """Return the error of a subscription whose type is gone."""
    return {"code": NOT_FOUND, "message": f"there is no event {name!r} any more", "data": {"kind": "event"}}


def changed(type_: EventType, arguments: Mapping[str, Any]) -> Json | None:
    """Return the error of a subscription whose arguments do not match its type any more; None if they do."""
    if (problem := problem_of(dict(arguments), type_.input_schema)) is None:
        return None
    message = f"the arguments of the event {type_.name!r} do not match any more: {problem}"
    return {
        "code": UNSUPPORTED,
        "message": message,
        "data": {"feature": "inputSchema", "reason": "schema_changed"},
    }


def ended_by(error: ServerRefusedError, *, is_opening: bool = False) -> Json | None:
    """Return the error with which another server has ended a subscription; None for any other failure.

    Args:
        error: Its answer.
        is_opening: True for a subscription that is opened again, whose arguments it may not accept any more.
    """
    if error.code not in _ENDS and not (is_opening and error.code == INVALID_PARAMS):
        return None
    data = {"data": error.data} if isinstance(error.data, dict) else {}
    return {"code": error.code, "message": error.message, **data}
