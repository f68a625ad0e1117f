"""Chat model for OpenAI's chat completions API and compatible servers, such as vLLM, Ollama, llama.cpp and Gemini.

    model = OpenAiChatModel("gpt-5.6")                                                    # OPENAI_API_KEY
    model = OpenAiChatModel("qwen3", base_url="http://localhost:11434/v1")                # Ollama

Requires the extra ``openai``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ChatModelError
from bridge.models.openai.messages import PROVIDER, MessageWriter, OpenAiReply
from bridge.models.profiles.profile import OPENAI, Profile
from bridge.models.provider import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_SECONDS, SdkChatModel
from bridge.models.provider_schemas import ProviderSchemas, format_name
from bridge.service.chat_model import ToolChoiceMode
from bridge.tools.checks import require_type
from bridge.types import without_none

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from bridge.models.provider_schemas import ProviderRequest, ProviderTool
    from bridge.types import Json

_OPENAI_HOSTS = ("openai.com", "openai.azure.com")
_MAX_OPENAI_ID_CHARS = 40
_OUT_OF_MONEY = "insufficient_quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiDialect:
    """Differences of a compatible server from OpenAI's API."""

    profile: Profile = OPENAI
    """Supported JSON Schema; for Gemini's endpoint `bridge.models.profiles.profile.GEMINI`."""
    strict_tools: bool = False
    """Use strict mode for tools that do not set ``strict`` themselves."""
    images_in_tool_results: bool = False
    """The server accepts images in messages of the role ``tool``. For OpenAI they are sent in a user message instead.
    """
    send_thinking: bool = False
    """Send the model's earlier thinking back."""
    max_tokens_field: str | None = None
    """Name of the output limit; by default ``max_completion_tokens`` for OpenAI, ``max_tokens`` for others."""
    tool_metadata_keys: tuple[str, ...] = ()
    """Metadata keys that are copied into the tool definition."""


class OpenAiChatModel(SdkChatModel):
    """Chat model for OpenAI's chat completions API (LangChain4j's OpenAiChatModel and OpenAiStreamingChatModel).

    Args:
        model_name: The provider's model name.
        client: An existing client, which is not closed and belongs to one event loop; the next four arguments are
            ignored then. Without it, the model has a client for each event loop that uses it.
        base_url: Base URL of the API; ``OPENAI_BASE_URL`` by default.
        api_key: API key; ``OPENAI_API_KEY`` by default. Not required with a base URL.
        timeout_seconds: Maximum seconds without data, before and during a reply.
        max_retries: Maximum retries by the SDK of requests that may succeed later.
        dialect: Differences of the server from OpenAI's API.

    Raises:
        DefinitionError: An argument is invalid.
        MissingExtraError: The package ``openai`` is not installed.
        ChatModelError: There is no API key.
    """

    provider = PROVIDER
    _reply = OpenAiReply
    _client_name = "AsyncOpenAI"
    _error_name = "OpenAIError"
    _create_name = "chat.completions.create"
    _stream_options: ClassVar = {"stream": True, "stream_options": {"include_usage": True}}

    def __init__(
        self,
        model_name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        max_retries: int = DEFAULT_MAX_RETRIES,
        dialect: OpenAiDialect | None = None,
    ) -> None:
        require_type(dialect, OpenAiDialect | None, "dialect", "an OpenAiDialect, or None")
        self._dialect = dialect or OpenAiDialect()
        schemas = ProviderSchemas(
            self._dialect.profile,
            strict=self._dialect.strict_tools,
            metadata_keys=self._dialect.tool_metadata_keys,
        )
        if api_key is None and base_url is not None and "OPENAI_API_KEY" not in os.environ:
            api_key = "none"  # required by the SDK, but not by local servers
        super().__init__(model_name, schemas, client, api_key, base_url, timeout_seconds, max_retries)
        host = self._first.base_url.host
        is_openai = any(host == known or host.endswith(f".{known}") for known in _OPENAI_HOSTS)
        self._max_id_chars = _MAX_OPENAI_ID_CHARS if is_openai else 1_000
        default_field = "max_completion_tokens" if is_openai else "max_tokens"
        self._max_tokens_field = self._dialect.max_tokens_field or default_field

    def _made(self) -> Any:
        try:
            return super()._made()
        except ChatModelError as error:
            message = "there is no API key; set OPENAI_API_KEY, or pass api_key="
            raise ChatModelError(message, provider=PROVIDER) from error.__cause__

    def _is_retryable(self, error: Any, *, by_status: bool | None) -> bool:
        may_pass = error.type != "invalid_request_error" if by_status is None else by_status
        return may_pass and error.code != _OUT_OF_MONEY

    def _body(self, request: ProviderRequest) -> Json:
        chat = request.chat
        writer = MessageWriter(
            request.conversation,
            images_in_tool_results=self._dialect.images_in_tool_results,
            send_thinking=self._dialect.send_thinking,
        )
        return {
            "model": request.model_name,
            "messages": list(writer.written()),
            "extra_body": dict(chat.extra),
        } | without_none(
            tools=[tool_definition(tool) for tool in request.tools.values()] or None,
            tool_choice=_tool_choice(request),
            response_format=_response_format(request),
            temperature=chat.temperature,
            top_p=chat.top_p,
            stop=request.stop_sequences,
            **{self._max_tokens_field: chat.max_output_tokens},
        )


CHAT_MODEL = OpenAiChatModel


def tool_definition(offer: ProviderTool) -> Json:
    """Write the definition of a tool."""
    function: Json = {"name": offer.name, "parameters": offer.rewriting.schema}
    if offer.description:
        function["description"] = offer.description
    if offer.rewriting.is_strict:
        function["strict"] = True
    return {**offer.metadata, "type": "function", "function": function}


def _tool_choice(request: ProviderRequest) -> str | Json | None:
    choice = request.chat.tool_choice
    if not request.tools or choice.mode is ToolChoiceMode.AUTO:
        return None
    if choice.mode is ToolChoiceMode.NAMED and choice.tool_name is not None:
        return {"type": "function", "function": {"name": request.conversation.names[choice.tool_name]}}
    return str(choice.mode.value)


def _response_format(request: ProviderRequest) -> Json | None:
    if request.chat.response_format is None or request.rewriting is None:
        return None
    name, rewriting = format_name(request.chat.response_format), request.rewriting
    schema = {"name": name, "schema": rewriting.schema, "strict": rewriting.is_strict}
    return {"type": "json_schema", "json_schema": schema}
