"""Chat model for Anthropic's messages API.

    model = AnthropicChatModel("claude-sonnet-5-5")                                       # ANTHROPIC_API_KEY

Parameters specific to this API go into a request's ``extra``, for example ``{"thinking": {"type": "adaptive"}}`` for
extended thinking or ``{"cache_control": {"type": "ephemeral"}}`` for caching. Requires the extra ``anthropic``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import ChatModelError
from bridge.models.anthropic.messages import FORBIDDEN_IN_ID, PROVIDER, AnthropicReply, written_messages
from bridge.models.profiles.profile import ANTHROPIC
from bridge.models.provider import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_SECONDS, SdkChatModel
from bridge.models.provider_schemas import ProviderSchemas
from bridge.service.chat_model import ToolChoiceMode
from bridge.tools.checks import require_count
from bridge.types import without_none

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from bridge.models.provider_schemas import ProviderRequest, ProviderTool
    from bridge.types import Json

DEFAULT_MAX_OUTPUT_TOKENS = 8_192
"""Output limit of requests that set none; the API requires one."""

_MAX_STRICT_TOOLS = 20
_RETRYABLE_TYPES = frozenset({"rate_limit_error", "overloaded_error", "api_error", "timeout_error"})


class AnthropicChatModel(SdkChatModel):
    """Chat model for Anthropic's messages API (LangChain4j's AnthropicChatModel and AnthropicStreamingChatModel).

    Args:
        model_name: The provider's model name.
        client: An existing client, which is not closed and belongs to one event loop; the next four arguments are
            ignored then. Without it, the model has a client for each event loop that uses it.
        base_url: Base URL of the API; ``ANTHROPIC_BASE_URL`` by default.
        api_key: API key; ``ANTHROPIC_API_KEY`` by default.
        timeout_seconds: Maximum seconds without data, before and during a reply.
        max_retries: Maximum retries by the SDK of requests that may succeed later.
        max_output_tokens: Output limit of requests that set none.
        strict_tools: Use strict mode for tools that do not set ``strict`` themselves.
        tool_metadata_keys: Metadata keys that are copied into the tool definition: ``("cache_control",)`` for tools
            with ``metadata={"cache_control": {"type": "ephemeral"}}``.

    Raises:
        DefinitionError: An argument is invalid.
        MissingExtraError: The package ``anthropic`` is not installed.
        ChatModelError: There are no credentials.
    """

    provider = PROVIDER
    _reply = AnthropicReply
    _forbidden_in_id = FORBIDDEN_IN_ID
    _client_name = "AsyncAnthropic"
    _error_name = "AnthropicError"
    _create_name = "messages.create"

    def __init__(
        self,
        model_name: str,
        *,
        client: AsyncAnthropic | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        max_retries: int = DEFAULT_MAX_RETRIES,
        max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS,
        strict_tools: bool = False,
        tool_metadata_keys: tuple[str, ...] = (),
    ) -> None:
        require_count(max_output_tokens, "max_output_tokens")
        self._max_output_tokens = max_output_tokens
        schemas = ProviderSchemas(ANTHROPIC, strict=strict_tools, metadata_keys=tool_metadata_keys)
        super().__init__(model_name, schemas, client, api_key, base_url, timeout_seconds, max_retries)

    def _made(self) -> AsyncAnthropic:
        client: AsyncAnthropic = super()._made()
        if client.api_key is None and client.auth_token is None and client.credentials is None:
            raise ChatModelError("there is no API key; set ANTHROPIC_API_KEY, or pass api_key=", provider=PROVIDER)
        return client

    def _is_retryable(self, error: Any, *, by_status: bool | None) -> bool:
        return bool(by_status) or getattr(error, "type", None) in _RETRYABLE_TYPES

    def _body(self, request: ProviderRequest) -> Json:
        chat = request.chat
        # the SDK has dropped the sampling parameters; the API accepts them for older models
        extra = without_none(temperature=chat.temperature, top_p=chat.top_p) | dict(chat.extra)
        if request.rewriting is not None and request.rewriting.is_strict:
            output_format = {"type": "json_schema", "schema": request.rewriting.schema}
            extra["output_config"] = {**extra.get("output_config", {}), "format": output_format}
        return {
            "model": request.model_name,
            "max_tokens": chat.max_output_tokens or self._max_output_tokens,
            "messages": written_messages(request.conversation),
            "extra_body": extra,
        } | without_none(
            system="\n\n".join(request.system_texts) or None,
            tools=tool_definitions(request) or None,
            tool_choice=_tool_choice(request),
            stop_sequences=request.stop_sequences,
        )


CHAT_MODEL = AnthropicChatModel


def tool_definitions(request: ProviderRequest) -> list[Json]:
    """Definitions of the tools, or else of those that the messages mention; the API requires them."""
    if not request.tools and request.conversation.mentions_tools:
        return [{"name": name, "input_schema": {"type": "object"}} for name in request.conversation.names.values()]
    strict_tools = [tool.name for tool in request.tools.values() if tool.rewriting.is_strict][:_MAX_STRICT_TOOLS]
    return [_tool(tool, is_strict=tool.name in strict_tools) for tool in request.tools.values()]


def _tool(offer: ProviderTool, *, is_strict: bool) -> Json:
    tool: Json = {**offer.metadata, "name": offer.name, "input_schema": offer.rewriting.schema}
    if offer.description:
        tool["description"] = offer.description
    return tool | ({"strict": True} if is_strict else {})


def _tool_choice(request: ProviderRequest) -> Json | None:
    choice = request.chat.tool_choice
    if not request.tools:
        return {"type": "none"} if request.conversation.mentions_tools else None
    if choice.mode is ToolChoiceMode.AUTO:
        return None
    if choice.mode is ToolChoiceMode.NAMED and choice.tool_name is not None:
        return {"type": "tool", "name": request.conversation.names[choice.tool_name]}
    return {"type": "any" if choice.mode is ToolChoiceMode.REQUIRED else "none"}
