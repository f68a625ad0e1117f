"""Profile: what one provider takes of JSON Schema.

    rewriting = OPENAI.rewrite(specification.parameters, strict=True)
    send(rewriting.schema, strict=rewriting.is_strict)

A profile never fails and never changes what it is given. Where a strict copy would not mean the same, or what has to
be left out is more than a bound, the copy is lenient and tells what it lost.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.models.encoding import utf8_json
from bridge.models.profiles import lenient
from bridge.models.profiles.lenient import gemini
from bridge.models.profiles.normalization import normalized
from bridge.models.profiles.rewriting import NotStrictableError, RewrittenSchema
from bridge.models.profiles.strict import ANTHROPIC as ANTHROPIC_RULES
from bridge.models.profiles.strict import OPENAI as OPENAI_RULES
from bridge.models.profiles.strict import StrictRules, strict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.models.profiles.normalization import NormalSchema


_logger = logging.getLogger("bridge.models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How schemas are rewritten for one provider."""

    name: str
    """The provider, for messages."""
    lenient: Callable[[NormalSchema], RewrittenSchema]
    """Makes the copy that the model is shown."""
    strict: Callable[[NormalSchema], RewrittenSchema] | None = None
    """Makes the copy that the model is held to; None where the provider cannot. Raises `NotStrictableError`."""

    def rewrite(self, schema: Mapping[str, Any], *, strict: bool = False) -> RewrittenSchema:
        """A copy of a schema as the provider takes it.

        Args:
            schema: A JSON Schema of any draft; it is left as it is.
            strict: The model is to be held to the schema, if that can be.
        """
        normal = normalized(schema)
        if not strict:
            return self.lenient(normal)
        if self.strict is None:
            rewriting = self.lenient(normal)
            return replace(rewriting, losses=(*rewriting.losses, "strictness: the provider knows none"))
        try:
            return self.strict(normal)
        except NotStrictableError as error:
            rewriting = self.lenient(normal)
            return replace(rewriting, losses=(*rewriting.losses, f"strictness: {error}"))

    def told(self, schema: Mapping[str, Any], *, strict: bool, owner: str) -> RewrittenSchema:
        """A copy of a schema as it can be sent to the provider; what it lost is logged.

        Args:
            schema: As for `rewrite`.
            strict: As for `rewrite`.
            owner: Whose schema it is, for the log.
        """
        rewriting = self.rewrite(utf8_json(schema), strict=strict)
        if rewriting.losses:
            words = "the schema of %s cannot be said in full to %s; lost: %s"
            _logger.warning(words, owner, self.name, "; ".join(rewriting.losses))
        return rewriting


def _strict_by(rules: StrictRules) -> Callable[[NormalSchema], RewrittenSchema]:
    return partial(strict, rules=rules)


OPENAI = Profile(name="OpenAI", lenient=lenient.openai, strict=_strict_by(OPENAI_RULES))
ANTHROPIC = Profile(name="Anthropic", lenient=lenient.anthropic, strict=_strict_by(ANTHROPIC_RULES))
BEDROCK = Profile(name="Bedrock", lenient=lenient.bedrock, strict=_strict_by(ANTHROPIC_RULES))
GEMINI = Profile(name="Gemini", lenient=gemini)
