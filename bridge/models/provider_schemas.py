"""Tool definitions and response formats for one provider."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bridge.models.encoding import json_object, json_text, utf8_json, utf8_text
from bridge.tools.checks import listed, require_type
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
    """One tool definition for the provider."""

    name: str
    description: str
    rewriting: RewrittenSchema
    metadata: Mapping[str, Any]
    """Metadata that is copied into the definition."""


@dataclass(frozen=True, slots=True)
class ProviderTools:
    """The tools of one request, by provider name."""

    offers: Mapping[str, ProviderTool]
    originals: Mapping[str, str]
    """The tool's own name for each provider name."""

    def request(self, name: str, arguments: Mapping[str, Any] | str, call_id: str) -> ToolExecutionRequest:
        """Convert a call of the model to the tool's own name and schema."""
        offer = self.offers.get(name)
        if offer is not None and offer.rewriting.restore is not None:
            parsed = json_object(arguments) if isinstance(arguments, str) else arguments
            arguments = arguments if parsed is None else offer.rewriting.restore(parsed)
        return ToolExecutionRequest(self.originals.get(name, name), arguments, call_id)


class ProviderToolWriter:
    """Creates tool definitions for one provider; converted schemas are cached.

    Args:
        profile: The provider's schema profile.
        strict: Use strict mode, if possible, for tools that do not set ``strict`` themselves.
        metadata_keys: Metadata keys that are copied into the definition.
    """

    def __init__(self, profile: Profile, *, strict: bool = False, metadata_keys: tuple[str, ...] = ()) -> None:
        require_type(strict, bool, "strict mode", "True or False")
        self._profile = profile
        self._strict = strict
        self._metadata_keys = listed(metadata_keys, "metadata keys", "the key of a tool's metadata")
        self._remembered = lru_cache(_MAX_REMEMBERED)(self._rewrite)

    def offers(self, request: ChatRequest, names: Mapping[str, str]) -> ProviderTools:
        """Create the definitions of a request's tools, by provider name."""
        return ProviderTools(
            {names[each.name]: self._offer(names[each.name], each) for each in request.tool_specifications},
            {safe: name for name, safe in names.items()},
        )

    def _offer(self, name: str, specification: ToolSpecification) -> ProviderTool:
        metadata = {key: specification.metadata[key] for key in self._metadata_keys if key in specification.metadata}
        return ProviderTool(name, utf8_text(specification.description or ""), self._remembered(specification), metadata)

    def _rewrite(self, specification: ToolSpecification) -> RewrittenSchema:
        strict = self._strict if specification.strict is None else specification.strict
        return self._profile.convert(specification.parameters, strict=strict, owner=f"the tool {specification.name!r}")


class ResponseFormatWriter:
    """Converts reply schemas for one provider, with a cache."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._remembered = lru_cache(_MAX_REMEMBERED_FORMATS)(self._rewrite)

    def rewriting(self, response_format: ResponseFormat | None) -> RewrittenSchema | None:
        """Convert the schema; None for a text reply."""
        if response_format is None:
            return None
        return self._remembered(response_format.name, json.dumps(response_format.schema), response_format.strict)

    def _rewrite(self, name: str, schema: str, strict: bool) -> RewrittenSchema:
        return self._profile.convert(json.loads(schema), strict=strict, owner=f"the reply {name!r}")


def format_name(response_format: ResponseFormat) -> str:
    """Name of a response format in characters that providers allow."""
    return _NOT_IN_A_NAME.sub("_", response_format.name)[:_MAX_NAME_CHARS] or "response"


def restored_text(text: str, rewriting: RewrittenSchema | None) -> str:
    """Convert a reply to the original schema."""
    if rewriting is None or rewriting.restore is None:
        return text
    parsed = json_object(text)
    return text if parsed is None else json_text(rewriting.restore(parsed))


def describe_format(response_format: ResponseFormat) -> str:
    """Prompt for a schema that cannot be enforced."""
    schema = json_text(utf8_json(dict(response_format.schema)))
    return f"Answer with JSON alone, without a code fence, that conforms to this JSON Schema:\n{schema}"
