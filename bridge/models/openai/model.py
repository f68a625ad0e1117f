"""Chat model for OpenAI's chat completions API and compatible servers, such as vLLM, Ollama, llama.cpp and Gemini.

    model = OpenAiChatModel("gpt-5.6")                                                    # OPENAI_API_KEY
    model = OpenAiChatModel("qwen3", base_url="http://localhost:11434/v1")                # Ollama

Requires the extra ``openai``.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ChatModelError, MissingExtraError
from bridge.models.clients import ClientPerLoop, check_options
from bridge.models.conversation import conversation_of
from bridge.models.encoding import utf8_text
from bridge.models.openai.messages import PROVIDER, MessageWriter
from bridge.models.openai.replies import ReplyReader, StreamReader
from bridge.models.profiles.profile import OPENAI, Profile
from bridge.models.provider_schemas import ProviderToolWriter, ResponseFormatWriter, format_name
from bridge.service.chat_model import ToolChoiceMode
from bridge.tools.checks import require_type
from bridge.types import without_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from openai import AsyncOpenAI

    from bridge.models.conversation import Conversation
    from bridge.models.profiles.rewriting import RewrittenSchema
    from bridge.models.provider_schemas import ProviderTool, ProviderTools
    from bridge.service.chat_model import ChatEvent, ChatRequest, ChatResponse
    from bridge.types import Json

DEFAULT_TIMEOUT_SECONDS = 600.0
"""Default read timeout in seconds, as in the SDK; long, since no data is sent while a model is thinking."""

_CONNECT_TIMEOUT_SECONDS = 10.0
_OPENAI_HOSTS = ("openai.com", "openai.azure.com")
_MAX_OPENAI_ID_CHARS = 40
_RETRYABLE = frozenset({408, 409, 429})
_SERVER_ERRORS = 500
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


class OpenAiChatModel:
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

    provider: ClassVar = PROVIDER
    """Name of the provider."""

    def __init__(
        self,
        model_name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        max_retries: int = 2,
        dialect: OpenAiDialect | None = None,
    ) -> None:
        check_options(model_name=model_name, timeout_seconds=timeout_seconds, max_retries=max_retries, url=base_url)
        require_type(dialect, OpenAiDialect | None, "dialect", "an OpenAiDialect, or None")
        self.model_name = model_name
        make = partial(_client, base_url, api_key, timeout_seconds, max_retries)
        self._clients = ClientPerLoop(client, make)
        self._dialect = dialect or OpenAiDialect()
        host = self._clients.first.base_url.host
        self._is_openai = any(host == known or host.endswith(f".{known}") for known in _OPENAI_HOSTS)
        self._offers = ProviderToolWriter(
            self._dialect.profile,
            strict=self._dialect.strict_tools,
            metadata_keys=self._dialect.tool_metadata_keys,
        )
        self._formats = ResponseFormatWriter(self._dialect.profile)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """See `bridge.service.chat_model.ChatModel.chat`."""
        body, reader, _ = self._prepared(request)
        create: Any = self._clients.current().chat.completions.create
        with _translated_errors():
            return reader.read(await create(**body, extra_body=dict(request.extra)))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """See `bridge.service.chat_model.StreamingChatModel.stream`."""
        body, reader, offers = self._prepared(request)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        create: Any = self._clients.current().chat.completions.create
        pieces = StreamReader(reader, offers)
        with _translated_errors():
            async with await create(**body, **options, extra_body=dict(request.extra)) as stream:
                async for chunk in stream:
                    for event in pieces.read(chunk):
                        yield event
            for event in pieces.finished():
                yield event

    async def aclose(self) -> None:
        """Close the connections, unless a client was passed in."""
        await self._clients.close()

    def _prepared(self, request: ChatRequest) -> tuple[Json, ReplyReader, ProviderTools]:
        """Build the request body and the reply reader."""
        conversation = conversation_of(request, max_id_chars=_MAX_OPENAI_ID_CHARS if self._is_openai else 1_000)
        offers = self._offers.offers(request, conversation.names)
        rewriting = self._formats.rewriting(request.response_format)
        writer = MessageWriter(
            conversation,
            images_in_tool_results=self._dialect.images_in_tool_results,
            send_thinking=self._dialect.send_thinking,
        )
        default = "max_completion_tokens" if self._is_openai else "max_tokens"
        limit = self._dialect.max_tokens_field or default
        body = {"model": request.model_name or self.model_name, "messages": list(writer.written())} | without_none(
            tools=[_tool(offer) for offer in offers.offers.values()] or None,
            tool_choice=_tool_choice(request, conversation),
            response_format=_response_format(request, rewriting),
            temperature=request.temperature,
            top_p=request.top_p,
            stop=[utf8_text(sequence) for sequence in request.stop_sequences] or None,
            **{limit: request.max_output_tokens},
        )
        return body, ReplyReader(offers, len(request.messages), rewriting), offers


def _client(base_url: str | None, api_key: str | None, timeout_seconds: float, max_retries: int) -> AsyncOpenAI:
    try:
        from openai import AsyncOpenAI, OpenAIError, Timeout  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError("OpenAiChatModel", "openai", "openai") from error
    if api_key is None and base_url is not None and "OPENAI_API_KEY" not in os.environ:
        api_key = "none"  # required by the SDK, but not by local servers
    timeout = Timeout(timeout_seconds, connect=min(timeout_seconds, _CONNECT_TIMEOUT_SECONDS))
    try:
        return AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries)
    except OpenAIError as error:
        raise ChatModelError("there is no API key; set OPENAI_API_KEY, or pass api_key=", provider=PROVIDER) from error


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Translate the SDK's errors to `ChatModelError`."""
    from openai import APIConnectionError, APIError, APIStatusError  # noqa: PLC0415 - an extra

    try:
        yield
    except APIStatusError as error:
        is_retryable = error.status_code in _RETRYABLE or error.status_code >= _SERVER_ERRORS
        raise ChatModelError(
            error.message,
            provider=PROVIDER,
            status=error.status_code,
            request_id=error.request_id,
            retryable=is_retryable and error.code != _OUT_OF_MONEY,
        ) from error
    except APIConnectionError as error:  # includes timeouts
        reason = f"{error.message} ({error.__cause__!r})" if error.__cause__ is not None else error.message
        raise ChatModelError(reason, provider=PROVIDER, retryable=True) from error
    except APIError as error:  # an error within a stream, or an unexpected response
        is_retryable = error.type != "invalid_request_error" and error.code != _OUT_OF_MONEY
        raise ChatModelError(error.message, provider=PROVIDER, retryable=is_retryable) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ChatModelError(f"the reply has an unexpected form: {error}", provider=PROVIDER) from error


def _tool(offer: ProviderTool) -> Json:
    function: Json = {"name": offer.name, "parameters": offer.rewriting.schema}
    if offer.description:
        function["description"] = offer.description
    if offer.rewriting.is_strict:
        function["strict"] = True
    return {**offer.metadata, "type": "function", "function": function}


def _tool_choice(request: ChatRequest, conversation: Conversation) -> str | Json | None:
    choice = request.tool_choice
    if not request.tool_specifications or choice.mode is ToolChoiceMode.AUTO:
        return None
    if choice.mode is ToolChoiceMode.NAMED and choice.tool_name is not None:
        return {"type": "function", "function": {"name": conversation.names[choice.tool_name]}}
    return str(choice.mode.value)


def _response_format(request: ChatRequest, rewriting: RewrittenSchema | None) -> Json | None:
    if request.response_format is None or rewriting is None:
        return None
    schema = {
        "name": format_name(request.response_format),
        "schema": rewriting.schema,
        "strict": rewriting.is_strict,
    }
    return {"type": "json_schema", "json_schema": schema}
