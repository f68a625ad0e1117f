"""Rewriting: what became of a schema for a provider, and how what the model says under it is put back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.text import truncate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.types import Json

_NOTE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """A schema as a provider takes it."""

    schema: Json
    """The rewritten copy."""
    is_strict: bool = False
    """The provider can hold the model to it, and nothing that the model may say means something else."""
    restore: Callable[[Any], Any] | None = None
    """Turns what a model said under the copy into what it says under the original; None where they are the same."""
    losses: tuple[str, ...] = ()
    """What the copy could not say, in words."""


class NotProvableError(Exception):
    """A schema that no strict copy can stand for; the message says why."""


def noted(schema: Json, left_out: Mapping[str, Any]) -> Json:
    """A schema with the keywords that it could not keep told in its description, so that the model may follow them."""
    if not left_out:
        return schema
    told = {
        keyword: truncate(json.dumps(value, ensure_ascii=False), _NOTE_CHARS) for keyword, value in left_out.items()
    }
    notes = ", ".join(f"{keyword}: {value}" for keyword, value in told.items())
    description = schema.get("description")
    return {**schema, "description": f"{description} ({notes})" if description else f"({notes})"}
