"""Amazon Bedrock's models, through its Converse API.

    model = BedrockChatModel("eu.anthropic.claude-sonnet-4-6", region_name="eu-central-1")  # credentials as boto3's

What only this API knows goes into a request's ``extra``: ``additionalModelRequestFields``, ``guardrailConfig``, ….
boto3 blocks, so each request has a worker thread. Needs the extra ``bedrock``.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.errors import ChatModelError, MissingExtraError
from bridge.models.bedrock_messages import FORBIDDEN_IN_ID, PROVIDER, MessageWriter
from bridge.models.bedrock_replies import ReplyReader, StreamReader, request_id_of
from bridge.models.bedrock_request import BlockingRequest, watch
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
"""How long the provider may say nothing; models that think are silent for long."""

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
    """A model behind Bedrock's Converse and ConverseStream (LangChain4j's BedrockChatModel).

    Args:
        model_name: The model's id, an inference profile or an ARN.
        client: A ready ``bedrock-runtime`` client, which stays the caller's; the arguments after it, but the last
            two, are not used then. Making one reads files, and takes a moment.
        region_name: The region; as boto3 finds it by default.
        endpoint_url: Another endpoint than the region's.
        timeout_seconds: How long the provider may say nothing, before its answer and within it.
        max_retries: How often the SDK tries again what may succeed then.
        strict_tools: Hold the model to the schemas of tools that do not say; a tool may say ``strict=True`` itself.
        cache_tools: A tool whose metadata has ``cachePoint`` is followed by that point in the list of tools.

    Raises:
        MissingExtraError: The package ``boto3`` is not installed.
        ChatModelError: There is no region.
    """

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
        self.model_name = model_name
        self._owns_client = client is None
        self._client = client or _client(region_name, endpoint_url, timeout_seconds, max_retries)
        watch(self._client)
        keys = (_CACHE_POINT,) if cache_tools else ()
        self._offers = ProviderToolWriter(BEDROCK, strict=strict_tools, metadata_keys=keys)
        self._formats = ResponseFormatWriter(BEDROCK)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """See `bridge.service.chat_model.ChatModel.chat`.

        A cancelled caller leaves at once. What was sent is not sent again, and is answered to nobody; its connection
        ends with the answer, or after ``timeout_seconds``: nothing public of botocore ends it earlier.
        """
        body, reader = self._prepared(request)
        with _translated_errors(), BlockingRequest() as line:
            return reader.read(await line.run(partial(self._client.converse, **body)))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """See `bridge.service.chat_model.StreamingChatModel.stream`."""
        body, reader = self._prepared(request)
        with _translated_errors():
            with BlockingRequest() as line:
                reply = await line.run(partial(self._client.converse_stream, **body))
                pieces = StreamReader(reader, request_id_of(reply))
                following = partial(next, iter(reply["stream"]), None)
                while (piece := await line.run(following)) is not None:
                    for event in pieces.read(piece):
                        yield event
            for event in pieces.finished():
                yield event

    async def aclose(self) -> None:
        """Close the connections, unless the client was given."""
        if self._owns_client:
            self._client.close()

    def _prepared(self, request: ChatRequest) -> tuple[Json, ReplyReader]:
        """The request's parameters, and what reads the reply."""
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
    """What goes wrong with the provider as the one error that callers know."""
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
    except ClientError as error:  # errors within a stream included
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
        raise ChatModelError(f"the reply is not what the API promises: {error}", provider=PROVIDER) from error


def _tool_config(request: ChatRequest, conversation: Conversation, offers: ProviderTools) -> Json:
    tools = [written for offer in offers.offers.values() for written in _tools(offer)]
    choice = request.tool_choice
    match choice.mode:
        case ToolChoiceMode.REQUIRED:
            return {"tools": tools, "toolChoice": {"any": {}}}
        case ToolChoiceMode.NAMED if choice.tool_name is not None:
            return {"tools": tools, "toolChoice": {"tool": {"name": conversation.names[choice.tool_name]}}}
        case _:  # what is not said is auto, and not every model lets one say it
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
    """The schema of the reply where the model cannot be held to it."""
    if request.response_format is not None and rewriting is not None and not rewriting.is_strict:
        yield {"text": describe_format(request.response_format)}
