"""Tools of a remote server as `Tool`.

The executor keeps the tool's remote name, so renamed tools work. Arguments are sent unchanged; only the server
validates them.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from bridge.client.output_schema import OutputSchema
from bridge.errors import ServerError, ToolError, WireError
from bridge.tools.content import Text
from bridge.tools.tool import Tool
from bridge.wire.tools import result_from_wire, tool_from_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
    from bridge.types import Json

_logger = logging.getLogger("bridge.client")


class RemoteServer(Protocol):
    """Server that runs a remote tool."""

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], *, context: InvocationContext, **options: Any
    ) -> Json:
        """Call a tool; see `bridge.client.connection.connection.Connection.call_tool`."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteExecutor:
    """Runs a tool on its server (LangChain4j's McpToolExecutor)."""

    server: RemoteServer
    """The server that runs the tool."""
    tool: str
    """The tool's name on the server."""
    repeatable: bool
    """True if the tool is annotated as idempotent or read-only, so that a call may be repeated."""
    output: OutputSchema | None = field(default=None, compare=False)
    """Output schema that structured content is validated against; None for no validation."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request.

        Raises:
            ToolError: The server is unavailable, refused the call, or returned an invalid result. The message names
                server and tool; the cause is the `ServerError`.
            ArgumentsError: The arguments are not JSON data.
        """
        assert not isinstance(request.arguments, str)
        try:
            wire = await self.server.call_tool(
                self.tool, request.arguments, context=context, repeatable=self.repeatable
            )
        except ServerError as error:
            raise ToolError(error.brief) from error
        return await self.read(wire)

    async def call(
        self,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        *,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        hands_on_questions: bool = False,
    ) -> Json:
        """Call the tool and return the result unparsed, for callers that pass it on.

        Args:
            arguments: The arguments, sent unchanged.
            context: Invocation context.
            input_responses: Answers to the input requests of an earlier round (modern era).
            request_state: The state of that round, unchanged (modern era).
            hands_on_questions: Return a result with ``resultType: "input_required"`` instead of answering it.

        Returns:
            MCP's ``CallToolResult``, unparsed.

        Raises:
            ServerError: As for `bridge.client.connection.connection.Connection.call_tool`.
            ArgumentsError: The arguments are not JSON data.
        """
        return await self.server.call_tool(
            self.tool,
            arguments,
            context=context,
            repeatable=self.repeatable,
            input_responses=input_responses,
            request_state=request_state,
            hands_on_questions=hands_on_questions,
        )

    async def read(self, wire: Json) -> ToolExecutionResult:
        """Parse a ``CallToolResult``; structured content without content becomes the model's text.

        Raises:
            ToolError: The result is malformed, or violates the output schema. The message names server and tool.
        """
        try:
            result = result_from_wire(wire)
        except WireError as error:
            raise self._unusable(f"a malformed result: {error}") from error
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
        return ToolError(f"the tool {self.tool!r} of the server {self.server.name!r} returned {answer}")


def remote_tool(
    wire: Mapping[str, Any],
    server: RemoteServer,
    *,
    trusted: bool = False,
    validates_results: bool = True,
    refuses_unjudged: bool = False,
) -> Tool:
    """Create a `Tool` from a server's listing.

    Args:
        wire: MCP's ``Tool``; its schemas are kept unchanged.
        server: The server that runs it.
        trusted: The server's annotations may be relied on.
        validates_results: Validate structured content against the output schema.
        refuses_unjudged: Reject structured content that cannot be validated within the limits.

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
    executor = RemoteExecutor(server, specification.name, is_repeatable(specification), output)
    return Tool(specification, executor, source=f"server {server.name!r}", server=server.name, trusted=trusted)


def is_repeatable(specification: ToolSpecification) -> bool:
    """Return True if the tool is annotated as read-only or idempotent."""
    hints = specification.annotations
    return hints is not None and (hints.read_only is True or hints.idempotent is True)
