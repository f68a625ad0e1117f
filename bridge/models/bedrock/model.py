"""Chat model for Amazon Bedrock's Converse API.

    model = BedrockChatModel("eu.anthropic.claude-sonnet-4-6", region_name="eu-central-1")  # credentials as boto3's

Parameters specific to this API go into a request's ``extra``: ``additionalModelRequestFields``, ``guardrailConfig``, ….
boto3 is blocking, so each request uses a worker thread. Requires the extra ``bedrock``.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ChatModelError, MissingExtraError
from bridge.models.bedrock.messages import FORBIDDEN_IN_ID, PROVIDER, MessageWriter
from bridge.models.bedrock.replies import ReplyReader, StreamReader, request_id_of
from bridge.models.bedrock.request import BlockingRequest, watch
from bridge.models.clients import check_options
from bridge.models.conversation import conversation_of
from bridge.models.encoding import json_text, utf8_text
from bridge.models.profiles.profile import BEDROCK
from bridge.models.provider_schemas import ProviderToolWriter, ResponseFormatWriter, describe_format, format_name
from bridge.service.chat_model import ToolChoiceMode
from bridge.types import without_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from bridge.models.conversation import Conversation
    from bridge.models.profiles.rewriting import RewrittenSchema
    from bridge.models.provider_schemas import ProviderTool, ProviderTools
    from bridge.service.chat_model import ChatEvent, ChatRequest, ChatResponse
    from bridge.types import Json

DEFAULT_TIMEOUT_SECONDS = 600.0
"""Default read timeout in seconds; long, since no data is sent while a model is thinking."""

_CONNECT_TIMEOUT_SECONDS = 10.0
_MAX_CONNECTIONS = 64
_CACHE_POINT = "cachePoint"
_RETRYABLE = frozenset(
    {
        "InternalServerException",
        "ModelErrorException",
        "ModelNotReadyException",
        "ModelStreamErrorException",
        "ModelTimeoutException",
        "ServiceUnavailableException",
        "ThrottlingException",
    }
)
_FIRST_ERROR = 400
_TOO_MANY = 429
_SERVER_ERRORS = 500


class BedrockChatModel:
    """Chat model for Bedrock's Converse and ConverseStream (LangChain4j's BedrockChatModel).

    Args:
        model_name: Model ID, inference profile or ARN.
        client: An existing ``bedrock-runtime`` client, which is not closed; the next four arguments are ignored then.
            Creating a client reads files and blocks briefly.
        region_name: AWS region; boto3's default.
        endpoint_url: Endpoint URL; the region's by default.
        timeout_seconds: Maximum seconds without data, before and during a reply.
        max_retries: Maximum retries by the SDK of requests that may succeed later.
        strict_tools: Use strict mode for tools that do not set ``strict`` themselves.
        cache_tools: Add the ``cachePoint`` in a tool's metadata after its definition.

    Raises:
        DefinitionError: An argument is invalid.
        MissingExtraError: The package ``boto3`` is not installed.
        ChatModelError: There is no region.
    """

    provider: ClassVar = PROVIDER
    """Name of the provider."""

    def __init__(
        self,
        model_name: str,
        *,
        client: Any = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        max_retries: int = 2,
        strict_tools: bool = False,
        cache_tools: bool = False,
    ) -> None:
        check_options(model_name=model_name, timeout_seconds=timeout_seconds, max_retries=max_retries, url=endpoint_url)
        self.model_name = model_name
        self._owns_client = client is None
        self._client = client or _client(region_name, endpoint_url, timeout_seconds, max_retries)
        watch(self._client)
        keys = (_CACHE_POINT,) if cache_tools else ()
        self._offers = ProviderToolWriter(BEDROCK, strict=strict_tools, metadata_keys=keys)
        self._formats = ResponseFormatWriter(BEDROCK)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """See `bridge.service.chat_model.ChatModel.chat`.

        On cancellation this returns immediately. The request is not retried, and its connection is closed when the
        response arrives or after ``timeout_seconds``: botocore has no public way to close it earlier.
        """
        body, reader = self._prepared(request)
        with _translated_errors(), BlockingRequest() as job:
            return reader.read(await job.run(partial(self._client.converse, **body)))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """See `bridge.service.chat_model.StreamingChatModel.stream`."""
        body, reader = self._prepared(request)
        with _translated_errors():
            with BlockingRequest() as job:
                reply = await job.run(partial(self._client.converse_stream, **body))
                pieces = StreamReader(reader, request_id_of(reply))
                following = partial(next, iter(reply["stream"]), None)
                while (piece := await job.run(following)) is not None:
                    for event in pieces.read(piece):
                        yield event
            for event in pieces.finished():
                yield event

    async def aclose(self) -> None:
        """Close the connections, unless a client was passed in."""
        if self._owns_client:
            self._client.close()

    def _prepared(self, request: ChatRequest) -> tuple[Json, ReplyReader]:
        """Build the request parameters and the reply reader."""
        conversation = conversation_of(request, forbidden_in_id=FORBIDDEN_IN_ID)
        offers = self._offers.offers(request, conversation.names)
        rewriting = self._formats.rewriting(request.response_format)
        with_tools = bool(request.tool_specifications) and request.tool_choice.mode is not ToolChoiceMode.NONE
        writer = MessageWriter(conversation, with_tools=with_tools)
        model_name = request.model_name or self.model_name
        body = {"modelId": model_name, "messages": writer.written()} | without_none(
            system=[*writer.system(), *_format_in_words(request, rewriting)] or None,
            toolConfig=_tool_config(request, conversation, offers) if with_tools else None,
            inferenceConfig=_inference(request) or None,
            outputConfig=_output(request, rewriting),
        )
        return {**body, **request.extra}, ReplyReader(offers, rewriting, model_name)


def _client(region_name: str | None, endpoint_url: str | None, timeout_seconds: float, max_retries: int) -> Any:
    try:
        import boto3  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415 - comes with the extra
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - comes with the extra
    except ImportError as error:
        raise MissingExtraError("BedrockChatModel", "boto3", "bedrock") from error
    config = Config(
        read_timeout=timeout_seconds,
        connect_timeout=min(timeout_seconds, _CONNECT_TIMEOUT_SECONDS),
        retries={"mode": "standard", "total_max_attempts": max_retries + 1},
        max_pool_connections=_MAX_CONNECTIONS,
    )
    session = boto3.session.Session(region_name=region_name)
    try:
        return session.client("bedrock-runtime", endpoint_url=endpoint_url, config=config)
    except BotoCoreError as error:
        raise ChatModelError(f"{error}; pass region_name=, or set AWS_DEFAULT_REGION", provider=PROVIDER) from error


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Translate botocore's errors to `ChatModelError`."""
    from botocore.eventstream import ParserError  # noqa: PLC0415 - an extra
    from botocore.exceptions import (  # noqa: PLC0415 - an extra
        BotoCoreError,
        ClientError,
        HTTPClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )
    from botocore.exceptions import ConnectionError as AwsConnectionError  # noqa: PLC0415 - an extra
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - comes with the extra

    try:
        yield
    except ClientError as error:  # includes errors within a stream
        details, metadata = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        code = details.get("Code", "")
        status = metadata.get("HTTPStatusCode")
        status = status if status is not None and status >= _FIRST_ERROR else None
        is_retryable = status is not None and (status >= _SERVER_ERRORS or status == _TOO_MANY)
        raise ChatModelError(
            f"{code}: {details.get('Message', '')}",
            provider=PROVIDER,
            status=status,
            request_id=metadata.get("RequestId"),
            retryable=is_retryable or code[:1].upper() + code[1:] in _RETRYABLE,
        ) from error
    except (AwsConnectionError, HTTPClientError, HTTPError) as error:
        raise ChatModelError(f"the connection failed: {error}", provider=PROVIDER, retryable=True) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ChatModelError(
            f"{error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", provider=PROVIDER
        ) from error
    except BotoCoreError as error:
        raise ChatModelError(str(error), provider=PROVIDER) from error
    except (AttributeError, LookupError, ParserError, TypeError, ValueError) as error:
        raise ChatModelError(f"the reply has an unexpected form: {error}", provider=PROVIDER) from error


def _tool_config(request: ChatRequest, conversation: Conversation, offers: ProviderTools) -> Json:
    tools = [written for offer in offers.offers.values() for written in _tools(offer)]
    choice = request.tool_choice
    match choice.mode:
        case ToolChoiceMode.REQUIRED:
            return {"tools": tools, "toolChoice": {"any": {}}}
        case ToolChoiceMode.NAMED if choice.tool_name is not None:
            return {"tools": tools, "toolChoice": {"tool": {"name": conversation.names[choice.tool_name]}}}
        case _:  # auto is the default, and not all models allow it explicitly
            return {"tools": tools}


def _tools(offer: ProviderTool) -> Iterator[Json]:
    tool: Json = {"name": offer.name}
    if offer.description.strip():
        tool["description"] = offer.description
    tool["inputSchema"] = {"json": offer.rewriting.schema}
    yield {"toolSpec": tool | ({"strict": True} if offer.rewriting.is_strict else {})}
    if _CACHE_POINT in offer.metadata:
        yield {_CACHE_POINT: offer.metadata[_CACHE_POINT]}


def _inference(request: ChatRequest) -> Json:
    return without_none(
        maxTokens=request.max_output_tokens,
        temperature=request.temperature,
        topP=request.top_p,
        stopSequences=[utf8_text(sequence) for sequence in request.stop_sequences] or None,
    )


def _output(request: ChatRequest, rewriting: RewrittenSchema | None) -> Json | None:
    if request.response_format is None or rewriting is None or not rewriting.is_strict:
        return None
    schema = {"schema": json_text(rewriting.schema), "name": format_name(request.response_format)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


def _format_in_words(request: ChatRequest, rewriting: RewrittenSchema | None) -> Iterator[Json]:
    """The reply's schema as text, if strict mode is not possible."""
    if request.response_format is not None and rewriting is not None and not rewriting.is_strict:
        yield {"text": describe_format(request.response_format)}
