"""Requests prepared for one provider: tool definitions and response formats in the schemas that it supports."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bridge.models.encoding import json_object, json_text
from bridge.text import utf8_text
from bridge.tools.checks import listed, require_type
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.models.conversation import Conversation
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
class ProviderRequest:
    """One request, prepared for a provider."""

    chat: ChatRequest
    """The request."""
    model_name: str
    """Name of the model, for the provider."""
    conversation: Conversation
    """The messages, with names and IDs for the provider."""
    tools: Mapping[str, ProviderTool]
    """The tools, by provider name."""
    originals: Mapping[str, str]
    """The tool's own name for each provider name."""
    rewriting: RewrittenSchema | None
    """Schema of the reply; None for text."""

    @property
    def system_texts(self) -> list[str]:
        """The system messages, and the schema of the reply if the provider cannot enforce it."""
        texts = self.conversation.system_texts
        if self.chat.response_format is None or self.rewriting is None or self.rewriting.is_strict:
            return texts
        return [*texts, describe_format(self.chat.response_format)]

    @property
    def stop_sequences(self) -> list[str] | None:
        """The stop sequences; None for none."""
        return [utf8_text(sequence) for sequence in self.chat.stop_sequences] or None

    def execution_request(self, name: str, arguments: Mapping[str, Any] | str, call_id: str) -> ToolExecutionRequest:
        """Convert a call of the model to the tool's own name and schema."""
        tool = self.tools.get(name)
        if tool is not None and tool.rewriting.restore is not None:
            parsed = json_object(arguments) if isinstance(arguments, str) else arguments
            arguments = arguments if parsed is None else tool.rewriting.restore(parsed)
        return ToolExecutionRequest(self.originals.get(name, name), arguments, call_id)

    def restored_text(self, text: str) -> str:
        """Convert a reply to the original schema."""
        if self.rewriting is None or self.rewriting.restore is None:
            return text
        parsed = json_object(text)
        return text if parsed is None else json_text(self.rewriting.restore(parsed))


class ProviderSchemas:
    """Prepares requests for one provider; converted schemas are cached.

    Args:
        profile: The provider's schema profile.
        strict: Use strict mode, if possible, for tools that do not set ``strict`` themselves.
        metadata_keys: Metadata keys that are copied into the definition of a tool.
    """

    def __init__(self, profile: Profile, *, strict: bool = False, metadata_keys: tuple[str, ...] = ()) -> None:
        require_type(strict, bool, "strict mode", "True or False")
        self._profile = profile
        self._strict = strict
        self._metadata_keys = listed(metadata_keys, "metadata keys", "the key of a tool's metadata")
        self._tool_schema = lru_cache(_MAX_REMEMBERED)(self._convert_tool)
        self._reply_schema = lru_cache(_MAX_REMEMBERED_FORMATS)(self._convert_format)

    def prepared(self, chat: ChatRequest, conversation: Conversation, model_name: str) -> ProviderRequest:
        """Prepare a request; ``model_name`` is the model for a request that names none."""
        names, reply = conversation.names, chat.response_format
        return ProviderRequest(
            chat,
            chat.model_name or model_name,
            conversation,
            {names[each.name]: self._tool(names[each.name], each) for each in chat.tool_specifications},
            {safe: name for name, safe in names.items()},
            None if reply is None else self._reply_schema(reply.name, json.dumps(reply.schema), reply.strict),
        )

    def _tool(self, name: str, specification: ToolSpecification) -> ProviderTool:
        metadata = {key: specification.metadata[key] for key in self._metadata_keys if key in specification.metadata}
        description = utf8_text(specification.description or "")
        return ProviderTool(name, description, self._tool_schema(specification), metadata)

    def _convert_tool(self, specification: ToolSpecification) -> RewrittenSchema:
        strict = self._strict if specification.strict is None else specification.strict
        return self._profile.convert(specification.parameters, strict=strict, owner=f"the tool {specification.name!r}")

    def _convert_format(self, name: str, schema: str, strict: bool) -> RewrittenSchema:
        return self._profile.convert(json.loads(schema), strict=strict, owner=f"the reply {name!r}")


def format_name(response_format: ResponseFormat) -> str:
    """Name of a response format in characters that providers allow."""
    return _NOT_IN_A_NAME.sub("_", response_format.name)[:_MAX_NAME_CHARS] or "response"


def describe_format(response_format: ResponseFormat) -> str:
    """Prompt for a schema that cannot be enforced."""
    schema = json_text(response_format.schema)
    return f"Answer with JSON alone, without a code fence, that conforms to this JSON Schema:\n{schema}"
