"""Large results of a server, which are kept aside: applied to calls, and read by their callers.

call ─> KeptResults.fitted ─> Spill ─> a result with head, tail and a link
resources/read, read_result ─> KeptResults.readable ─> Spill, or the other server that has kept it
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pydantic_core import from_json

from bridge.errors import ResourceNotFoundError, ToolError, WireError
from bridge.resources.box import Readable, ResourceBox
from bridge.resources.resource import Resource
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.content import File
from bridge.tools.spill.preview import READ_TOOL
from bridge.tools.spill.reading import read_tool
from bridge.tools.spill.spill import URI_PREFIX, Spill, listed_meta, session_key
from bridge.tools.spill.store import ResultStoreError
from bridge.tools.toolbox import ToolBox
from bridge.wire.received import write_result
from bridge.wire.tools import result_from_wire, result_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.protocol.session import Session
    from bridge.server.features import Features
    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.task import Task
    from bridge.tools.tool import Tool

_logger = logging.getLogger("bridge.server")


class KeptResults:
    """The large results of one server.

    Args:
        spill: Keeps them; None to keep those of tools with a limit of their own.
        features: The tools and resources of the server; changes apply.
        find_other: Returns what reads a URI that is not one of the server's own results; None for nothing.
    """

    def __init__(self, spill: Spill | None, features: Features, find_other: Callable[[str], Readable | None]) -> None:
        self.spill = Spill() if spill is None else spill
        self._find_other = find_other
        self.tools, self.resources = features.tools, features.resources
        """The tools and resources to serve: with the tool that reads results, if results are kept."""
        self.always: frozenset[str] = frozenset()
        """Names of tools that every caller sees."""
        self._has_warned = False
        if self.spill.mode == "keep":
            self._reader = read_tool(self.spill, self._read_other)
            self.always = frozenset({READ_TOOL})
            self.tools = self.with_reader(features.tools)
            if self.resources is None:
                self.resources = ResourceBox()

    def with_reader(self, tools: ToolBox) -> ToolBox:
        """Return a box with tools, also after their changes, and with the tool that reads results, if they are kept."""
        if self.spill.mode != "keep":
            return tools
        served = ToolBox()

        def follow() -> None:
            others = [tool for tool in tools.all_versions if tool.name != READ_TOOL]
            if len(others) < len(tools.all_versions) and not self._has_warned:
                self._has_warned = True
                _logger.warning("left out a tool %r: large results are read by a tool of this name", READ_TOOL)
            served.replace([*others, self._reader])

        follow()
        tools.on_change(follow)
        return served

    async def fitted(self, tool: Tool, result: ToolExecutionResult, context: InvocationContext) -> ToolExecutionResult:
        """Return a result for the client; one that is over the limit has structured content only if it is declared."""
        fitted = await self.spill.fitted(tool, result, context)
        if fitted is result:
            return result
        session: Session | None = context.peer  # type: ignore[assignment]  # of a served call
        if session is not None and not self.spill.used_store.is_shared:
            session.at_end.setdefault(self, partial(self.spill.end_session, session))
        return fitted if self.spill.declares(tool) else replace(fitted, structured_content=None)

    async def fitted_task(self, tool: Tool, task: Task, context: InvocationContext) -> Task:
        """Return a completed task of another server, with a result for the client."""
        limit = self.spill.limit_of(tool)
        if limit is None or len(task.outcome) <= limit:
            return task
        try:
            result = result_from_wire(from_json(task.outcome))
        except (ValueError, WireError):
            return task
        fitted = await self.fitted(tool, result, context)
        return task if fitted is result else replace(task, outcome=write_result(result_to_wire(fitted)))

    def listed(self, tool: Tool) -> ToolSpecification:
        """Return the specification of a tool as clients get it: with the size of its results."""
        limit = self.spill.limit_of(tool)
        if limit is None or not self.spill.keeps(tool):
            return tool.specification
        schema = tool.specification.output_schema if self.spill.declares(tool) else None
        return replace(
            tool.specification, output_schema=schema, metadata=listed_meta(tool.specification.metadata, limit)
        )

    def readable(self, uri: str) -> Readable | None:
        """Return what reads the URI of a kept result; None for another URI."""
        if self.spill.mode != "keep" or not uri.startswith(URI_PREFIX):
            return None
        resource = Resource(name="kept result", uri=uri, reader=_Reader(self.spill, self._find_other(uri)))
        return Readable(resource, resource.tool, {})

    async def end_session(self, session_id: str) -> None:
        """Delete the results of a session that has ended for all replicas."""
        try:
            await self.spill.used_store.forget(session=session_key(session_id))
        except ResultStoreError as error:
            _logger.warning("the results of an ended session are kept until they expire: %s", error)

    async def _read_other(self, uri: str, context: InvocationContext) -> File | None:
        """Read a result that another server has kept, whose link a gateway has passed on."""
        found = self._find_other(uri) if URI_PREFIX.partition(":")[0] in uri else None
        if found is None or found.resource.server is None:
            return None
        try:
            result = await found.tool.executor.execute(ToolExecutionRequest(found.tool.name, found.arguments), context)
        except ResourceNotFoundError:
            return None
        return next((block for block in result.content if isinstance(block, File)), None)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one URI of a kept result (`ToolExecutor`)."""

    spill: Spill
    other: Readable | None

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        try:
            file = await self.spill.find(request.name, context)
        except ResultStoreError as error:
            _logger.error("%s", error)  # noqa: TRY400 - it says all
            raise ToolError("the result cannot be read now; try again later") from error
        if file is not None:
            return ToolExecutionResult((file,))
        if self.other is None:
            raise ResourceNotFoundError(request.name)
        again = ToolExecutionRequest(self.other.tool.name, self.other.arguments)
        return await self.other.tool.executor.execute(again, context)
