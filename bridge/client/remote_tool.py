"""Tools of a remote server as `Tool`.

The executor keeps the tool's remote name, so renamed tools work. Arguments are sent unchanged; only the server
validates them.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from bridge.client.config.servers import matches_any
from bridge.client.connection.running_call import NO_OPTIONS, CallOptions
from bridge.client.output_schema import OutputSchema
from bridge.errors import ServerError, ToolError, WireError
from bridge.tools.content import Text
from bridge.tools.tool import Tool, ToolPolicy
from bridge.wire.tools import result_from_wire, tool_from_wire

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from bridge.client.uris import UriNames
    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
    from bridge.types import Json

REPEATABLE = CallOptions(repeatable=True)
"""Options of calls that may be repeated."""

_logger = logging.getLogger("bridge.client")


class ToolServer(Protocol):
    """Server that runs a remote tool."""

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], *, context: InvocationContext, options: CallOptions
    ) -> Json:
        """Call a tool; see `bridge.client.connection.connection.Connection.call_tool`."""
        ...

    async def task_result(self, task_id: str, *, context: InvocationContext) -> Json:
        """Wait for the end of a task; see `bridge.client.connection.connection.Connection.task_result`."""
        ...

    async def request(
        self, method: str, params: Mapping[str, Any], *, context: InvocationContext, options: CallOptions = NO_OPTIONS
    ) -> Json:
        """Send another request; see `bridge.client.connection.connection.Connection.request`."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteExecutor:
    """Runs a tool on its server (LangChain4j's McpToolExecutor)."""

    server: ToolServer
    """The server that runs the tool."""
    tool: str
    """The tool's name on the server."""
    options: CallOptions = NO_OPTIONS
    """Options of its calls; ``repeatable`` for tools annotated as idempotent or read-only."""
    output: OutputSchema | None = field(default=None, compare=False)
    """Output schema that structured content is validated against; None for no validation."""
    output_schema: Mapping[str, Any] | None = field(default=None, compare=False)
    """Output schema, for `ToolExecutionResult.data`; None if the tool has none."""
    uris: UriNames | None = field(default=None, compare=False)
    """The local URIs of resources in its results; None if they are those of the server."""

    @property
    def label(self) -> str:
        """The tool and its server, for messages."""
        return f"the tool {self.tool!r} of the server {self.server.name!r}"

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request.

        Raises:
            ToolError: The server is unavailable, refused the call, or returned an invalid result. The message names
                server and tool; the cause is the `ServerError`.
            ArgumentsError: The arguments are not JSON data.
        """
        arguments = request.arguments_by_name()
        try:
            wire = await self.server.call_tool(self.tool, arguments, context=context, options=self.options)
        except ServerError as error:
            raise ToolError(error.brief) from error
        return await self.read(wire)

    def call(
        self, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions | None = None
    ) -> Coroutine[Any, Any, Json]:
        """Call the tool and return the result unparsed, for callers that pass it on.

        Args:
            arguments: The arguments, sent unchanged.
            context: Invocation context.
            options: Options of the call; None for the tool's.

        Returns:
            MCP's ``CallToolResult``, unparsed.

        Raises:
            ServerError: As for `bridge.client.connection.connection.Connection.call_tool`.
            ArgumentsError: The arguments are not JSON data.
        """
        return self.server.call_tool(self.tool, arguments, context=context, options=options or self.options)

    async def read(self, wire: Json) -> ToolExecutionResult:
        """Parse a ``CallToolResult``; structured content without content becomes the model's text.

        Raises:
            ToolError: The result is malformed, or violates the output schema. The message names server and tool.
        """
        try:
            result = result_from_wire(wire)
        except WireError as error:
            raise self._unusable(f"a malformed result: {error}") from error
        if self.uris is not None and not self.uris.are_unchanged:
            content = tuple(self.uris.localized(self.server.name, block) for block in result.content)
            result = replace(result, content=content)
        if self.output_schema is not None:
            object.__setattr__(result, "output_schema", self.output_schema)  # `replace` would check the other fields
        if self.output is not None and not result.is_error:
            if result.structured_content is None:
                raise self._unusable("no structured content, which its output schema requires")
            if (problem := await self.output.problem(result.structured_content)) is not None:
                raise self._unusable(f"structured content that does not match its output schema: {problem}")
        if not result.content and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":"))
            return replace(result, model_content=(Text(text),))
        return result

    def _unusable(self, answer: str) -> ToolError:
        return ToolError(f"{self.label} returned {answer}")


def remote_tool(
    wire: Mapping[str, Any],
    server: ToolServer,
    *,
    trusted: bool = False,
    validates_results: bool = True,
    refuses_unjudged: bool = False,
    uris: UriNames | None = None,
    spill_chars: int | None = None,
    always_visible: Iterable[str] = (),
) -> Tool:
    """Create a `Tool` from a server's listing.

    Args:
        wire: MCP's ``Tool``; its schemas are kept unchanged.
        server: The server that runs it.
        trusted: The server's annotations may be relied on.
        validates_results: Validate structured content against the output schema.
        refuses_unjudged: Reject structured content that cannot be validated within the limits.
        uris: The local URIs of resources in its results; None to leave them unchanged.
        spill_chars: As of `ToolPolicy`.
        always_visible: Names, with wildcards, of tools that a model sees without searching for them.

    Raises:
        WireError: The name or the input schema is missing.
        DefinitionError: The input schema does not describe an object.
    """
    specification = tool_from_wire(wire)
    output = None
    if validates_results and specification.output_schema is not None:
        output = OutputSchema(
            specification.output_schema,
            f"the tool {specification.name!r} of the server {server.name!r}",
            refuses_unjudged=refuses_unjudged,
        )
    options = REPEATABLE if is_repeatable(specification) else NO_OPTIONS
    executor = RemoteExecutor(server, specification.name, options, output, specification.output_schema, uris)
    return Tool(
        specification,
        executor,
        policy=ToolPolicy(spill_chars=spill_chars),
        source=f"server {server.name!r}",
        server=server.name,
        trusted=trusted,
        always_visible=matches_any(specification.name, always_visible),
    )


def is_repeatable(specification: ToolSpecification) -> bool:
    """Return True if the tool is annotated as read-only or idempotent."""
    hints = specification.annotations
    return hints is not None and (hints.read_only is True or hints.idempotent is True)
