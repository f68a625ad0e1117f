"""Tool definitions and response formats for one provider.

Offers: the tools of a request as a provider is told of them, and the way back from what the model calls.

Response formats: the schema of a reply as a provider takes it, and the reply put back under the original.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bridge.models.encoding import json_object, json_text, utf8_json, utf8_text
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.models.profiles.profile import Profile
    from bridge.models.profiles.rewriting import RewrittenSchema
    from bridge.service.chat_model import ChatRequest, ResponseFormat
    from bridge.tools.specification import ToolSpecification

_MAX_REMEMBERED = 4_096

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")

_MAX_NAME_CHARS = 64

_MAX_REMEMBERED_FORMATS = 64


@dataclass(frozen=True, slots=True)
class ProviderTool:
    """One tool as the provider is told of it."""

    name: str
    description: str
    rewriting: RewrittenSchema
    metadata: Mapping[str, Any]
    """What of the specification's metadata the provider is to have."""


@dataclass(frozen=True, slots=True)
class ProviderTools:
    """The tools of one request, by the names that the provider knows."""

    offers: Mapping[str, ProviderTool]
    originals: Mapping[str, str]
    """Each name that the provider knows with the tool's own."""

    def request(self, name: str, arguments: Mapping[str, Any] | str, call_id: str) -> ToolExecutionRequest:
        """What the model wants run, in the tools' own words."""
        offer = self.offers.get(name)
        if offer is not None and offer.rewriting.restore is not None:
            said = json_object(arguments) if isinstance(arguments, str) else arguments
            arguments = arguments if said is None else offer.rewriting.restore(said)
        return ToolExecutionRequest(self.originals.get(name, name), arguments, call_id)


class ProviderToolWriter:
    """Writes offers for one provider; what it wrote for a specification once it does not write again.

    Args:
        profile: What the provider takes of JSON Schema.
        strict: Tools whose specification does not say are held to their schemas where that can be.
        metadata_keys: What of a specification's metadata the provider is to have.
    """

    def __init__(self, profile: Profile, *, strict: bool = False, metadata_keys: tuple[str, ...] = ()) -> None:
        self._profile = profile
        self._strict = strict
        self._metadata_keys = metadata_keys
        self._remembered = lru_cache(_MAX_REMEMBERED)(self._rewrite)

    def offers(self, request: ChatRequest, names: Mapping[str, str]) -> ProviderTools:
        """The tools of a request under the names that the provider is to know."""
        return ProviderTools(
            {names[each.name]: self._offer(names[each.name], each) for each in request.tool_specifications},
            {safe: name for name, safe in names.items()},
        )

    def _offer(self, name: str, specification: ToolSpecification) -> ProviderTool:
        metadata = {key: specification.metadata[key] for key in self._metadata_keys if key in specification.metadata}
        return ProviderTool(name, utf8_text(specification.description or ""), self._remembered(specification), metadata)

    def _rewrite(self, specification: ToolSpecification) -> RewrittenSchema:
        strict = self._strict if specification.strict is None else specification.strict
        return self._profile.told(specification.parameters, strict=strict, owner=f"the tool {specification.name!r}")


class ResponseFormatWriter:
    """Rewrites the schemas of replies for one provider; one that came before it does not rewrite again.

    Args:
        profile: What the provider takes of JSON Schema.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._remembered = lru_cache(_MAX_REMEMBERED_FORMATS)(self._rewrite)

    def rewriting(self, response_format: ResponseFormat | None) -> RewrittenSchema | None:
        """The schema as the provider takes it; None where the reply is to be text."""
        if response_format is None:
            return None
        return self._remembered(response_format.name, json.dumps(response_format.schema), response_format.strict)

    def _rewrite(self, name: str, schema: str, strict: bool) -> RewrittenSchema:
        return self._profile.told(json.loads(schema), strict=strict, owner=f"the reply {name!r}")


def format_name(response_format: ResponseFormat) -> str:
    """The name of a response format in the letters that providers take."""
    return _NOT_IN_A_NAME.sub("_", response_format.name)[:_MAX_NAME_CHARS] or "response"


def restored_text(text: str, rewriting: RewrittenSchema | None) -> str:
    """A reply as it would have been under the original schema."""
    if rewriting is None or rewriting.restore is None:
        return text
    said = json_object(text)
    return text if said is None else json_text(rewriting.restore(said))


def describe_format(response_format: ResponseFormat) -> str:
    """What a model is told that cannot be held to a schema."""
    schema = json_text(utf8_json(dict(response_format.schema)))
    return f"Answer with JSON alone, without a code fence, that conforms to this JSON Schema:\n{schema}"
