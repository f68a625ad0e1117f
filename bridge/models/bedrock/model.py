"""Chat model for Amazon Bedrock's Converse API.

    model = BedrockChatModel("eu.anthropic.claude-sonnet-4-6", region_name="eu-central-1")  # credentials as boto3's

Parameters specific to this API go into a request's ``extra``: ``additionalModelRequestFields``, ``guardrailConfig``, ….
boto3 is blocking, so each request uses a worker thread. Requires the extra ``bedrock``.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.errors import ChatModelError, MissingExtraError
from bridge.models.bedrock.messages import FORBIDDEN_IN_ID, PROVIDER, BedrockReply, MessageWriter
from bridge.models.bedrock.request import BlockingRequest, watch
from bridge.models.encoding import json_text
from bridge.models.profiles.profile import BEDROCK
from bridge.models.provider import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_SECONDS, ProviderChatModel, error_status
from bridge.models.provider_schemas import ProviderSchemas, format_name
from bridge.service.chat_model import ToolChoiceMode
from bridge.types import without_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from bridge.models.provider_schemas import ProviderRequest, ProviderTool
    from bridge.types import Json

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


class BedrockChatModel(ProviderChatModel):
    """Chat model for Bedrock's Converse and ConverseStream (LangChain4j's BedrockChatModel).

    A cancelled `chat` returns immediately. Its request is not retried, and its connection is closed when the response
    arrives or after ``timeout_seconds``: botocore has no public way to close it earlier.

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

    provider = PROVIDER
    _reply = BedrockReply
    _url_parameter = "endpoint_url"
    _forbidden_in_id = FORBIDDEN_IN_ID

    def __init__(
        self,
        model_name: str,
        *,
        client: Any = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        max_retries: int = DEFAULT_MAX_RETRIES,
        strict_tools: bool = False,
        cache_tools: bool = False,
    ) -> None:
        keys = (_CACHE_POINT,) if cache_tools else ()
        schemas = ProviderSchemas(BEDROCK, strict=strict_tools, metadata_keys=keys)
        super().__init__(model_name, schemas, endpoint_url, timeout_seconds, max_retries)
        self._owns_client = client is None
        self._client = client or self._new_client(region_name)
        watch(self._client)

    async def aclose(self) -> None:
        """Close the connections, unless a client was passed in."""
        if self._owns_client:
            self._client.close()

    def _new_client(self, region_name: str | None) -> Any:
        try:
            import boto3  # noqa: PLC0415 - an extra
            from botocore.config import Config  # noqa: PLC0415 - comes with the extra
            from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - comes with the extra
        except ImportError as error:
            raise MissingExtraError("BedrockChatModel", "boto3", "bedrock") from error
        config = Config(
            read_timeout=self._timeout_seconds,
            connect_timeout=self._connect_timeout_seconds,
            retries={"mode": "standard", "total_max_attempts": self._max_retries + 1},
            max_pool_connections=_MAX_CONNECTIONS,
        )
        session = boto3.session.Session(region_name=region_name)
        try:
            return session.client("bedrock-runtime", endpoint_url=self._url, config=config)
        except BotoCoreError as error:
            raise ChatModelError(f"{error}; pass region_name=, or set AWS_DEFAULT_REGION", provider=PROVIDER) from error

    async def _send(self, body: Json) -> Json:
        with BlockingRequest() as job:
            reply: Json = await job.run(partial(self._client.converse, **body))
            return reply

    async def _send_streamed(self, body: Json) -> AsyncGenerator[Json, None]:
        with BlockingRequest() as job:
            reply = await job.run(partial(self._client.converse_stream, **body))
            yield {"ResponseMetadata": reply["ResponseMetadata"]}
            following = partial(next, iter(reply["stream"]), None)
            while (event := await job.run(following)) is not None:
                yield event

    def _body(self, request: ProviderRequest) -> Json:
        with_tools = bool(request.tools) and request.chat.tool_choice.mode is not ToolChoiceMode.NONE
        messages = MessageWriter(request.conversation, with_tools=with_tools).written()
        body = {"modelId": request.model_name, "messages": messages} | without_none(
            system=[{"text": text} for text in request.system_texts] or None,
            toolConfig=_tool_config(request) if with_tools else None,
            inferenceConfig=_inference(request) or None,
            outputConfig=_output(request),
        )
        return {**body, **request.chat.extra}

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
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
            status, may_pass = error_status(metadata.get("HTTPStatusCode"))
            raise ChatModelError(
                f"{code}: {details.get('Message', '')}",
                provider=PROVIDER,
                status=status,
                request_id=metadata.get("RequestId"),
                retryable=may_pass or code[:1].upper() + code[1:] in _RETRYABLE,
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


CHAT_MODEL = BedrockChatModel


def _tool_config(request: ProviderRequest) -> Json:
    tools = [written for tool in request.tools.values() for written in _tools(tool)]
    choice = request.chat.tool_choice
    match choice.mode:
        case ToolChoiceMode.REQUIRED:
            return {"tools": tools, "toolChoice": {"any": {}}}
        case ToolChoiceMode.NAMED if choice.tool_name is not None:
            return {"tools": tools, "toolChoice": {"tool": {"name": request.conversation.names[choice.tool_name]}}}
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


def _inference(request: ProviderRequest) -> Json:
    return without_none(
        maxTokens=request.chat.max_output_tokens,
        temperature=request.chat.temperature,
        topP=request.chat.top_p,
        stopSequences=request.stop_sequences,
    )


def _output(request: ProviderRequest) -> Json | None:
    if request.chat.response_format is None or request.rewriting is None or not request.rewriting.is_strict:
        return None
    schema = {"schema": json_text(request.rewriting.schema), "name": format_name(request.chat.response_format)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
