"""Tools of an OpenAPI document."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from bridge.client.output_schema import OutputSchema
from bridge.errors import DefinitionError
from bridge.openapi.api import DEFAULT_TIMEOUT_SECONDS, MAX_RESPONSE_BYTES, HttpApi
from bridge.openapi.base_url import base_url_of, operation_url
from bridge.openapi.document import OpenApiDocument, models
from bridge.openapi.executor import OperationExecutor
from bridge.openapi.parameters import inputs_of, json_media_type
from bridge.openapi.reading import read_document
from bridge.openapi.schemas import SchemaConverter
from bridge.openapi.security import Security, checked_headers, secret_names
from bridge.openapi.selection import naming, select
from bridge.openapi.serialization import has_dot_segments
from bridge.tools.checks import require_count, require_seconds
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import Tool
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from bridge.openapi.document import Operation
    from bridge.openapi.security import Credential
    from bridge.types import Json

_logger = logging.getLogger("bridge.openapi")

_MAX_SHOWN = 20
_IN_PROCESS = "http://localhost"
_ANNOTATIONS: Mapping[str, ToolAnnotations] = {
    **dict.fromkeys(
        ("GET", "HEAD", "OPTIONS", "TRACE"), ToolAnnotations(read_only=True, idempotent=True, open_world=True)
    ),
    "PUT": ToolAnnotations(read_only=False, idempotent=True, destructive=True, open_world=True),
    "DELETE": ToolAnnotations(read_only=False, idempotent=True, destructive=True, open_world=True),
}
_CHANGES = ToolAnnotations(read_only=False, open_world=True)
_SUCCESS = ("200", "201", "202", "203", "2XX", "2xx")


def from_openapi(
    source: Any,
    operations: Iterable[str] = (),
    *,
    base_url: str | None = None,
    credentials: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    output_schemas: bool = True,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
) -> ToolBox:
    """Make chosen operations of an OpenAPI document tools (OpenAPI 3.0 and 3.1).

    Each call of a tool is one HTTP request to the host of the base URL; redirects are not followed. Needs the extra
    ``openapi``.

    Args:
        source: The document as a mapping, as the path of a JSON or YAML file, or as an ``http(s)://`` URL; or a FastAPI
            application, which is called in this process without a socket.
        operations: The operations to publish, each by its operationId, ``METHOD /path`` or ``tag:NAME``; ``*`` stands
            for any text, and ``!`` before any of them leaves out what it matches. None is published unless it is named.
            One that is not supported is an error if it is named by itself, and otherwise left out with a warning.
        base_url: Base URL of the API. Defaults to the first server of the document.
        credentials: Secret by security scheme of the document: a key or token, or ``user:password`` for HTTP basic.
        headers: Further headers of every request, treated as secrets.
        output_schemas: Publish the schemas of responses; a response that does not match is then an error.
        timeout_seconds: Maximum seconds of a request.
        max_response_bytes: Maximum bytes of the body of a response.

    Returns:
        The tools. See `bridge.openapi.running` to keep connections between calls.

    Raises:
        DefinitionError: The document is invalid, or refers to what is outside of it; no operation is chosen, or one
            is not supported. The message names it.
        MissingExtraError: ``openapi-pydantic`` or ``pyyaml`` is not installed.
    """
    require_seconds(timeout_seconds, "timeout_seconds")
    require_count(max_response_bytes, "max_response_bytes")
    if isinstance(operations, str):
        operations = [operations]
    is_app = callable(getattr(source, "openapi", None)) and callable(source)
    content, name = (source.openapi(), "the application") if is_app else read_document(source)
    document = OpenApiDocument(content, name)
    patterns = list(operations)
    chosen = select(document, patterns)
    is_fetched = isinstance(source, str) and source.startswith(("http://", "https://"))
    if is_app:
        base_url = base_url or _IN_PROCESS
    base = base_url_of(document, given=base_url, fetched_from=source if is_fetched else None)
    security, configured = Security(document, credentials or {}), checked_headers(headers or {})
    api = HttpApi(
        base,
        app=source if is_app else None,
        secrets=(*security.secrets, *(each.value for each in configured)),
        timeout_seconds=timeout_seconds,
        max_response_bytes=max_response_bytes,
    )
    maker = _ToolMaker(document, api, security, configured, with_outputs=output_schemas)
    is_named = naming(patterns)
    tools, left_out = list[Tool](), list[DefinitionError]()
    for operation in chosen:
        try:
            url = operation_url(document, operation, base, is_given=base_url is not None)
            tools.append(maker.tool(operation, url))
        except DefinitionError as error:
            if is_named(operation):
                raise
            left_out.append(error)
    if left_out and not tools:
        raise left_out[0]
    for reason in left_out[:_MAX_SHOWN]:
        _logger.warning("an operation is left out: %s", reason)
    if len(left_out) > _MAX_SHOWN:
        _logger.warning("%d further operations of %s are left out", len(left_out) - _MAX_SHOWN, document.source)
    maker.warn()
    return ToolBox(tools)


@asynccontextmanager
async def running(tools: Iterable[Tool]) -> AsyncIterator[None]:
    """Keep the connections of tools of `from_openapi` during this block; the lifespans of applications run.

    Args:
        tools: Any tools; the others are ignored.
    """
    apis = {id(tool.executor.api): tool.executor.api for tool in tools if isinstance(tool.executor, OperationExecutor)}
    async with AsyncExitStack() as stack:
        for api in apis.values():
            await stack.enter_async_context(api)
        yield


class _ToolMaker:
    """Makes the tools of one document."""

    def __init__(
        self,
        document: OpenApiDocument,
        api: HttpApi,
        security: Security,
        headers: tuple[Credential, ...],
        *,
        with_outputs: bool,
    ) -> None:
        self._document = document
        self._api = api
        self._security = security
        self._headers = headers
        self._with_outputs = with_outputs
        self._without_credential: dict[str, list[str]] = {}

    def warn(self) -> None:
        """Log the operations without a credential, once for each security scheme."""
        for scheme, labels in self._without_credential.items():
            others = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
            _logger.warning(
                "no credential is configured for the security scheme %s, which is needed by %s%s of %s",
                scheme,
                labels[0],
                others,
                self._document.source,
            )

    def tool(self, operation: Operation, base_url: str) -> Tool:
        """Make the tool of an operation."""
        if has_dot_segments(operation.path) or set("?#\\") & set(operation.path):
            raise DefinitionError(
                f"{self._document.source}: the path {operation.path!r} must not have dot segments, '?', '#' or '\\'"
            )
        secrets = self._security.names | secret_names(self._headers)
        inputs = inputs_of(self._document, operation, secrets)
        credentials, missing = self._security.of(operation)
        if missing is not None and not self._headers:
            self._without_credential.setdefault(missing, []).append(operation.label)
        output = self._output_schema(operation) if self._with_outputs else None
        source = f"{operation.label} of {self._document.source}"
        fields = ("summary", "description", "deprecated")
        texts = {key: operation.content[key] for key in fields if key in operation.content}
        model = self._document.parsed(models().Operation, texts, operation.label)
        executor = OperationExecutor(
            tool=operation.name,
            api=self._api,
            method=operation.method,
            base_url=base_url,
            path=operation.path,
            inputs=inputs,
            credentials=(*self._headers, *credentials),
            output=None if output is None else OutputSchema(output, source),
        )
        specification = ToolSpecification(
            name=operation.name,
            title=model.summary or None,
            description=_description(model) or operation.label,
            parameters=inputs.schema,
            output_schema=output,
            annotations=_ANNOTATIONS.get(operation.method, _CHANGES),
        )
        return Tool(specification, executor, interactive=False, source=source)

    def _output_schema(self, operation: Operation) -> Json | None:
        """Schema of the response if there is one successful one, and it is a JSON object; None otherwise."""
        responses = operation.content.get("responses")
        if not isinstance(responses, dict):
            return None
        successes = [key for key in responses if str(key).startswith("2")]
        if len(successes) != 1 or successes[0] not in _SUCCESS:
            return None
        response = self._document.resolved(responses[successes[0]], f"a response of {operation.label}")
        content = response.get("content")
        kind = json_media_type(content)
        if kind is None or not isinstance(content, dict) or len(content) != 1:
            return None
        schema = self._document.resolved(content[kind], f"a response of {operation.label}").get("schema")
        converter = SchemaConverter(self._document, "response", operation.label)
        schema = converter.resolved(schema)  # MCP requires the type at the root
        if not isinstance(schema, dict) or schema.get("type") != "object":
            return None
        return converter.with_definitions(converter.convert(schema))


def _description(model: Any) -> str:
    """Text for the model; empty if there is none."""
    parts = [part.strip() for part in (model.summary, model.description) if part and part.strip()]
    if len(parts) > 1 and parts[1].startswith(parts[0]):
        del parts[0]
    return "\n\n".join([*(["Deprecated."] if model.deprecated else []), *parts])
