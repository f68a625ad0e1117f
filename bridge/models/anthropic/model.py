"""Chat model for Anthropic's messages API.

    model = AnthropicChatModel("claude-sonnet-5-5")                                       # ANTHROPIC_API_KEY

Parameters specific to this API go into a request's ``extra``, for example ``{"thinking": {"type": "adaptive"}}`` for
extended thinking or ``{"cache_control": {"type": "ephemeral"}}`` for caching. Requires the extra ``anthropic``.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ChatModelError, MissingExtraError
from bridge.models.anthropic.messages import FORBIDDEN_IN_ID, PROVIDER, system_text, written_messages
from bridge.models.anthropic.replies import ReplyReader, StreamReader
from bridge.models.clients import ClientPerLoop, check_options
from bridge.models.conversation import conversation_of
from bridge.models.encoding import utf8_text
from bridge.models.profiles.profile import ANTHROPIC
from bridge.models.provider_schemas import ProviderToolWriter, ResponseFormatWriter, describe_format
from bridge.service.chat_model import ToolChoiceMode
from bridge.tools.checks import require_count
from bridge.types import without_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from anthropic import AsyncAnthropic

    from bridge.models.conversation import Conversation
    from bridge.models.profiles.rewriting import RewrittenSchema
    from bridge.models.provider_schemas import ProviderTool, ProviderTools
    from bridge.service.chat_model import ChatEvent, ChatRequest, ChatResponse
    from bridge.types import Json

DEFAULT_TIMEOUT_SECONDS = 600.0
"""Default read timeout in seconds, as in the SDK; long, since no data is sent while a model is thinking."""
DEFAULT_MAX_OUTPUT_TOKENS = 8_192
"""Output limit of requests that set none; the API requires one."""

_CONNECT_TIMEOUT_SECONDS = 10.0
_MAX_STRICT_TOOLS = 20
_RETRYABLE = frozenset({408, 409, 429})
_RETRYABLE_TYPES = frozenset({"rate_limit_error", "overloaded_error", "api_error", "timeout_error"})
_FIRST_ERROR = 400
_SERVER_ERRORS = 500


class AnthropicChatModel:
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

    provider: ClassVar = PROVIDER
    """Name of the provider."""

    def __init__(
        self,
        model_name: str,
        *,
        client: AsyncAnthropic | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        max_retries: int = 2,
        max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS,
        strict_tools: bool = False,
        tool_metadata_keys: tuple[str, ...] = (),
    ) -> None:
        check_options(model_name=model_name, timeout_seconds=timeout_seconds, max_retries=max_retries, url=base_url)
        require_count(max_output_tokens, "max_output_tokens")
        self.model_name = model_name
        make = partial(_client, base_url, api_key, timeout_seconds, max_retries)
        self._clients = ClientPerLoop(client, make)
        self._max_output_tokens = max_output_tokens
        self._offers = ProviderToolWriter(ANTHROPIC, strict=strict_tools, metadata_keys=tool_metadata_keys)
        self._formats = ResponseFormatWriter(ANTHROPIC)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """See `bridge.service.chat_model.ChatModel.chat`."""
        body, extra, reader = self._prepared(request)
        client = self._clients.current()
        create: Any = client.messages.create
        with _translated_errors():
            # an explicit timeout; with its default one the SDK refuses long replies without streaming
            return reader.read(await create(**body, extra_body=extra, timeout=client.timeout))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """See `bridge.service.chat_model.StreamingChatModel.stream`."""
        body, extra, reader = self._prepared(request)
        create: Any = self._clients.current().messages.create
        pieces = StreamReader(reader)
        with _translated_errors():
            async with await create(**body, stream=True, extra_body=extra) as stream:
                async for piece in stream:
                    for event in pieces.read(piece):
                        yield event
            for event in pieces.finished():
                yield event

    async def aclose(self) -> None:
        """Close the connections, unless a client was passed in."""
        await self._clients.close()

    def _prepared(self, request: ChatRequest) -> tuple[Json, Json, ReplyReader]:
        """Build the SDK's arguments, the additional parameters, and the reply reader."""
        conversation = conversation_of(request, forbidden_in_id=FORBIDDEN_IN_ID)
        offers = self._offers.offers(request, conversation.names)
        rewriting = self._formats.rewriting(request.response_format)
        body = {
            "model": request.model_name or self.model_name,
            "max_tokens": request.max_output_tokens or self._max_output_tokens,
            "messages": written_messages(conversation),
        } | without_none(
            system=_system(request, conversation, rewriting),
            tools=_tools(offers) or _earlier_tools(conversation) or None,
            tool_choice=_tool_choice(request, conversation),
            stop_sequences=[utf8_text(sequence) for sequence in request.stop_sequences] or None,
        )
        # the SDK has dropped the sampling parameters; the API accepts them for older models
        extra = without_none(temperature=request.temperature, top_p=request.top_p) | dict(request.extra)
        if rewriting is not None and rewriting.is_strict:
            output_format = {"type": "json_schema", "schema": rewriting.schema}
            extra["output_config"] = {**extra.get("output_config", {}), "format": output_format}
        return body, extra, ReplyReader(offers, rewriting)


def _client(base_url: str | None, api_key: str | None, timeout_seconds: float, max_retries: int) -> AsyncAnthropic:
    try:
        from anthropic import AnthropicError, AsyncAnthropic, Timeout  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError("AnthropicChatModel", "anthropic", "anthropic") from error
    timeout = Timeout(timeout_seconds, connect=min(timeout_seconds, _CONNECT_TIMEOUT_SECONDS))
    try:
        client = AsyncAnthropic(base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries)
    except AnthropicError as error:
        raise ChatModelError(str(error), provider=PROVIDER) from error
    if client.api_key is None and client.auth_token is None and client.credentials is None:
        raise ChatModelError("there is no API key; set ANTHROPIC_API_KEY, or pass api_key=", provider=PROVIDER)
    return client


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Translate the SDK's errors to `ChatModelError`."""
    from anthropic import AnthropicError, APIConnectionError, APIStatusError  # noqa: PLC0415 - an extra
    from httpx2 import HTTPError  # noqa: PLC0415 - comes with the extra

    try:
        yield
    except APIStatusError as error:
        is_retryable = error.status_code in _RETRYABLE or error.status_code >= _SERVER_ERRORS
        raise ChatModelError(
            error.api_message or error.message,
            provider=PROVIDER,
            status=error.status_code if error.status_code >= _FIRST_ERROR else None,  # 200 within a stream
            request_id=error.request_id,
            retryable=is_retryable or error.type in _RETRYABLE_TYPES,
        ) from error
    except APIConnectionError as error:  # includes timeouts
        reason = f"{error.message} ({error.__cause__!r})" if error.__cause__ is not None else error.message
        raise ChatModelError(reason, provider=PROVIDER, retryable=True) from error
    except HTTPError as error:  # not translated by the SDK within a stream
        raise ChatModelError(f"the connection failed: {error!r}", provider=PROVIDER, retryable=True) from error
    except AnthropicError as error:
        raise ChatModelError(str(error), provider=PROVIDER) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ChatModelError(f"the reply has an unexpected form: {error}", provider=PROVIDER) from error


def _tools(offers: ProviderTools) -> list[Json]:
    strict_tools = [offer.name for offer in offers.offers.values() if offer.rewriting.is_strict][:_MAX_STRICT_TOOLS]
    return [_tool(offer, is_strict=offer.name in strict_tools) for offer in offers.offers.values()]


def _earlier_tools(conversation: Conversation) -> list[Json]:
    """Definitions of tools that the messages mention but the request does not offer; the API requires them."""
    if not conversation.mentions_tools:
        return []
    return [{"name": name, "input_schema": {"type": "object"}} for name in conversation.names.values()]


def _tool(offer: ProviderTool, *, is_strict: bool) -> Json:
    tool: Json = {**offer.metadata, "name": offer.name, "input_schema": offer.rewriting.schema}
    if offer.description:
        tool["description"] = offer.description
    return tool | ({"strict": True} if is_strict else {})


def _tool_choice(request: ChatRequest, conversation: Conversation) -> Json | None:
    choice = request.tool_choice
    if not request.tool_specifications:
        return {"type": "none"} if conversation.mentions_tools else None
    if choice.mode is ToolChoiceMode.AUTO:
        return None
    if choice.mode is ToolChoiceMode.NAMED and choice.tool_name is not None:
        return {"type": "tool", "name": conversation.names[choice.tool_name]}
    return {"type": "any" if choice.mode is ToolChoiceMode.REQUIRED else "none"}


def _system(request: ChatRequest, conversation: Conversation, rewriting: RewrittenSchema | None) -> str | None:
    """The system prompt, with the reply's schema if strict mode is not possible."""
    texts = [system_text(conversation)]
    if request.response_format is not None and rewriting is not None and not rewriting.is_strict:
        texts.append(describe_format(request.response_format))
    return "\n\n".join(text for text in texts if text) or None
