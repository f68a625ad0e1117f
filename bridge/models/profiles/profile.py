"""Schema profile of a provider.

    rewriting = OPENAI.rewrite(specification.parameters, strict=True)
    send(rewriting.schema, strict=rewriting.is_strict)

A profile never fails and never changes its input. If a strict copy would change the meaning, the copy is lenient and
lists its losses.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.models.encoding import utf8_json
from bridge.models.profiles import lenient
from bridge.models.profiles.normalization import normalized
from bridge.models.profiles.rewriting import NotStrictableError, RewrittenSchema
from bridge.models.profiles.strict import ANTHROPIC as ANTHROPIC_RULES
from bridge.models.profiles.strict import OPENAI as OPENAI_RULES
from bridge.models.profiles.strict import strict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.models.profiles.normalization import NormalSchema

_logger = logging.getLogger("bridge.models")


def _no_strict(_: NormalSchema) -> RewrittenSchema:
    raise NotStrictableError("the provider has no strict mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Conversion of schemas for one provider."""

    name: str
    """The provider's name, for messages."""
    lenient: Callable[[NormalSchema], RewrittenSchema]
    """Creates the non-strict copy."""
    strict: Callable[[NormalSchema], RewrittenSchema] = _no_strict
    """Creates the strict copy, or raises `NotStrictableError`; always if the provider has no strict mode."""

    def rewrite(self, schema: Mapping[str, Any], *, strict: bool = False) -> RewrittenSchema:
        """Convert a schema of any draft for the provider, to a strict copy if requested and possible."""
        normal = normalized(schema)
        lost: tuple[str, ...] = ()
        if strict:
            try:
                return self.strict(normal)
            except NotStrictableError as error:
                lost = (f"strictness: {error}",)
        rewriting = self.lenient(normal)
        return replace(rewriting, losses=rewriting.losses + lost)

    def convert(self, schema: Mapping[str, Any], *, strict: bool, owner: str) -> RewrittenSchema:
        """Convert a schema like `rewrite`, and log its losses under the description of its owner."""
        rewriting = self.rewrite(utf8_json(schema), strict=strict)
        if rewriting.losses:
            words = "the schema of %s is not fully supported by %s; lost: %s"
            _logger.warning(words, owner, self.name, "; ".join(rewriting.losses))
        return rewriting


OPENAI = Profile(name="OpenAI", lenient=lenient.openai, strict=partial(strict, rules=OPENAI_RULES))
ANTHROPIC = Profile(name="Anthropic", lenient=lenient.anthropic, strict=partial(strict, rules=ANTHROPIC_RULES))
BEDROCK = Profile(name="Bedrock", lenient=lenient.bedrock, strict=partial(strict, rules=ANTHROPIC_RULES))
GEMINI = Profile(name="Gemini", lenient=lenient.gemini)
