"""Response formats: the schema of a reply as a provider takes it, and the reply put back under the original."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from bridge.models.sendable import json_object, json_text, sendable_json

if TYPE_CHECKING:
    from bridge.models.profiles.profile import Profile
    from bridge.models.profiles.rewriting import Rewriting
    from bridge.service.chat_model import ResponseFormat

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARS = 64
_MAX_REMEMBERED = 64


class ResponseFormatWriter:
    """Rewrites the schemas of replies for one provider; one that came before it does not rewrite again.

    Args:
        profile: What the provider takes of JSON Schema.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._remembered = lru_cache(_MAX_REMEMBERED)(self._rewrite)

    def rewriting(self, response_format: ResponseFormat | None) -> Rewriting | None:
        """The schema as the provider takes it; None where the reply is to be text."""
        if response_format is None:
            return None
        return self._remembered(response_format.name, json.dumps(response_format.schema), response_format.strict)

    def _rewrite(self, name: str, schema: str, strict: bool) -> Rewriting:
        return self._profile.told(json.loads(schema), strict=strict, owner=f"the reply {name!r}")


def format_name(response_format: ResponseFormat) -> str:
    """The name of a response format in the letters that providers take."""
    return _NOT_IN_A_NAME.sub("_", response_format.name)[:_MAX_NAME_CHARS] or "response"


def restored_text(text: str, rewriting: Rewriting | None) -> str:
    """A reply as it would have been under the original schema."""
    if rewriting is None or rewriting.restore is None:
        return text
    said = json_object(text)
    return text if said is None else json_text(rewriting.restore(said))


def words_for_format(response_format: ResponseFormat) -> str:
    """What a model is told that cannot be held to a schema."""
    schema = json_text(sendable_json(dict(response_format.schema)))
    return f"Answer with JSON alone, without a code fence, that conforms to this JSON Schema:\n{schema}"
