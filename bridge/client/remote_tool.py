"""Remote tools: a tool of a server as a `Tool`.

The executor keeps the name that the tool has on its server, so that a renamed tool still calls the right one. It sends
arguments as they are given: only the server judges them.
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
    """Where a remote tool lives."""

    @property
    def name(self) -> str:
        """What the configuration calls the server."""
        ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], *, context: InvocationContext, **options: Any
    ) -> Json:
        """Call a tool; see `bridge.client.connection.connection.Connection.call_tool`."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteExecutor:
    """Runs a tool where it lives (LangChain4j's McpToolExecutor)."""

    server: RemoteServer
    """Where it lives."""
    tool: str
    """Its name there."""
    repeatable: bool
    """It says that it is idempotent, or only reads."""
    output: OutputSchema | None = field(default=None, compare=False)
    """What its structured content is checked against; None for nothing."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request.

        Raises:
            ToolError: The server is not there, refused, or answered what is no result; it names server and tool, and
                its cause is the `ServerError`.
            ArgumentsError: The arguments are no JSON data.
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
        """Call the tool, for whoever passes results on as they came.

        Args:
            arguments: Its arguments, sent as given.
            context: What surrounds the call.
            input_responses: Answers to the questions of an earlier round (modern era).
            request_state: The state of that round, as it came (modern era).
            hands_on_questions: Return a result with ``resultType: "input_required"`` as it came.

        Returns:
            MCP's ``CallToolResult`` as it came.

        Raises:
            ServerError: As for `bridge.client.connection.connection.Connection.call_tool`.
            ArgumentsError: The arguments are no JSON data.
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
        """A result as it came, as a result here: a model reads the content, code the structured content too.

        Raises:
            ToolError: It is none, or not what the tool declares; it names server and tool.
        """
        try:
            result = result_from_wire(wire)
        except WireError as error:
            raise self._unusable(f"what is no result: {error}") from error
        if self.output is not None and not result.is_error:
            if result.structured_content is None:
                raise self._unusable("without the structured content that it declares")
            if (problem := await self.output.problem(result.structured_content)) is not None:
                raise self._unusable(f"structured content that is not what it declares: {problem}")
        if not result.content and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":"))
            return replace(result, model_content=(Text(text),))
        return result

    def _unusable(self, answer: str) -> ToolError:
        return ToolError(f"the tool {self.tool!r} of the server {self.server.name!r} answered {answer}")


def remote_tool(
    wire: Mapping[str, Any],
    server: RemoteServer,
    *,
    trusted: bool = False,
    validates_results: bool = True,
    refuses_unjudged: bool = False,
) -> Tool:
    """A tool as its server lists it.

    Args:
        wire: MCP's ``Tool``; its schemas are carried as they are.
        server: Where it lives.
        trusted: The server's annotations may be relied on.
        validates_results: Check structured content against the output schema.
        refuses_unjudged: Refuse structured content that cannot be checked within the bounds.

    Raises:
        WireError: It has no name, or no input schema.
        DefinitionError: Its input schema is not that of an object.
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
    """Whether a tool says of itself that calling it twice does no harm."""
    hints = specification.annotations
    return hints is not None and (hints.read_only is True or hints.idempotent is True)
