"""ServerCore: a server's identity, capabilities, views of tools, and execution of calls."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from bridge.errors import ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError, UnknownToolError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, LIMIT_EXCEEDED, MODERN_VERSIONS
from bridge.server.auth.access import EVERYTHING
from bridge.server.changes import Changes
from bridge.server.failures import failed, reported
from bridge.server.features import Features
from bridge.server.listing import CACHE_SCOPE
from bridge.server.running_calls import RunningCalls
from bridge.server.served.prompts import ServedPrompts
from bridge.server.served.resources import ServedResources
from bridge.server.tasks.options import TaskOptions
from bridge.server.tool_list import ToolViews
from bridge.tools.execution import LOCAL, execute, result_of_failure
from bridge.tools.lifespan import Lifespan
from bridge.tools.tool import OneTool, ToolExecutionRequest, ToolExecutionResult
from bridge.types import RETRY_AFTER_META_KEY
from bridge.wire.tasks import TASKS_EXTENSION
from bridge.wire.tools import result_to_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bridge.protocol.session import Session
    from bridge.server.auth.access import Access
    from bridge.server.limits import Limits
    from bridge.server.limits.accounts import Accounts, Execute
    from bridge.server.tasks.forwarded import ForwardedTasks
    from bridge.server.tasks.shared.redis_store import RedisTaskStore
    from bridge.server.tasks.tasks import Tasks
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.tool import Tool
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")
_Written = TypeVar("_Written")

DISCOVERY_TTL_MS = 60_000
"""Milliseconds for which a client may cache the response to ``server/discover``."""


class ServerCore:
    """Published features; `bridge.server.Publisher` documents the arguments."""

    def __init__(
        self,
        features: object,
        *,
        name: str,
        version: str = "",
        title: str | None = None,
        instructions: str | None = None,
        page_size: int | None = None,
        policy: ExecutionPolicy | None = None,
        state_keys: Sequence[bytes] | None = None,
        memory_id_of: Callable[[InvocationContext], Any] | None = None,
        limits: Limits | None = None,
        max_calls: int | None = None,
        tasks: TaskOptions | None = None,
        lifespan: Lifespan[Any] | Callable[[], Any] | None = None,
    ) -> None:
        self.features = features = Features.of(features)
        self.lifespan = features.lifespan if lifespan is None else Lifespan.of(lifespan)
        """The lifespan whose value functions of modules without one get; None for none."""
        self.tools = tools = features.tools
        self.name = name
        self.version = version
        self.title = title
        self.own_instructions = instructions
        self.state_keys = state_keys
        if features.tasks is not None:
            features.tasks.bind(name, state_keys)
        self.memory_id_of = memory_id_of
        self.policy = replace(policy or LOCAL, reveal_errors=False, on_unknown_tool=_raise)
        self.producing = replace(self.policy, on_arguments_error=_raise, on_execution_error=_raise)
        """The policy of what reads a resource or renders a prompt."""
        self.views = ToolViews(tools, page_size)
        self.catalog = self.views.whole.catalog
        self.resources = None if features.resources is None else ServedResources(features.resources, self, page_size)
        """The resources; None if the server has none."""
        self.prompts = None if features.prompts is None else ServedPrompts(features.prompts, self, page_size)
        """The prompts; None if the server has none."""
        self.changes = Changes(features)  # after the lists, which forget their pages before clients are notified
        self.running = RunningCalls()
        """The running calls."""
        self.on_session_change: Callable[[Session, Json], Awaitable[None]] | None = None
        """Called with a session of the handshake era and a change of its state, which replicas have to know."""
        self.accounts: Accounts | None = None
        """Accounts of the callers; None without limits."""
        self._execute: Execute = execute
        self.task_options = tasks or TaskOptions()
        self.limits = limits
        """Limits of each caller; None for none."""
        self._max_result_bytes = cache(limits.result_bytes_of) if limits is not None and limits.are_of_results else None
        if limits is not None and limits.are_of_requests:
            from bridge.server.limits.accounts import Accounts, limited  # noqa: PLC0415 - only with limits

            self.accounts = Accounts(limits)
            if limits.are_of_calls:
                self._execute = limited(self.accounts)
        self.is_plain = self.policy.is_plain and self._max_result_bytes is None
        """True if plain tools may be called without `call`; see `bridge.server.methods.functions`."""
        is_counted = limits is not None and limits.are_of_calls
        # Up to half of the maximum, `bounded` refuses nobody.
        self.plain_places = 0 if is_counted else sys.maxsize if max_calls is None else max_calls // 2
        """Maximum running calls up to which plain tools may be called without `call`."""
        if max_calls is not None:
            from bridge.server.limits.accounts import bounded  # noqa: PLC0415 - only with a maximum

            self._execute = bounded(self._execute, max_calls, self.running)

    @property
    def implementation(self) -> Json:
        """Name, version and title of the server (MCP's ``Implementation``)."""
        named = {"name": self.name, "version": self.version}
        return named if self.title is None else named | {"title": self.title}

    @property
    def capabilities(self) -> Json:
        """Capabilities of the server in the handshake era (MCP's ``ServerCapabilities``)."""
        capabilities: Json = {"logging": {}, "tools": {"listChanged": True}}
        if self.resources is not None:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts is not None:
            capabilities["prompts"] = {"listChanged": True}
        if self.completes:
            capabilities["completions"] = {}
        return _with_extensions(capabilities, self.features.extensions)

    @property
    def stateless_capabilities(self) -> Json:
        """The same where clients have no sessions, and so neither notifications nor a level of log messages."""
        capabilities = {name: dict(each) for name, each in self.capabilities.items() if name != "logging"}
        for name in ("tools", "resources", "prompts"):
            if name in capabilities:
                capabilities[name] |= {"listChanged": False}
        if "resources" in capabilities:
            capabilities["resources"]["subscribe"] = False
        return capabilities

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks."""
        store = self.task_options.store
        if store is not None and store.is_shared:
            from bridge.server.tasks.shared.shared_tasks import SharedTasks  # noqa: PLC0415 - only with Redis

            return SharedTasks(self, self.task_options, cast("RedisTaskStore", store))
        from bridge.server.tasks.tasks import Tasks  # noqa: PLC0415 - only with tasks

        return Tasks(self, self.task_options)

    def drain_tasks(self) -> None:
        """Begin no task that another process can run."""
        if "tasks" in vars(self):
            self.tasks.drain()

    @property
    def has_tasks(self) -> bool:
        """True if a call can become a task, or earlier tasks are kept."""
        return self.features.tasks is not None or self.task_options.apply_to(self.tools)

    def forwarded(self, task_id: str) -> ForwardedTasks | None:
        """Return the tasks of other servers if one of them may have an ID; None for an ID of this server."""
        forwarded = self.features.tasks
        return forwarded if forwarded is not None and forwarded.has(task_id) else None

    @property
    def extensions(self) -> Json:
        """Extensions of the protocol that the server has, in the modern era."""
        return {**self.features.extensions, **({TASKS_EXTENSION: {}} if self.has_tasks else {})}

    @property
    def completes(self) -> bool:
        """True if the server has anything with arguments that could be completed."""
        return self.resources is not None or self.prompts is not None

    @property
    def instructions(self) -> str | None:
        """Instructions about the server for the model, with what the features tell now."""
        return "\n\n".join(filter(None, (self.own_instructions, self.features.notice()))) or None

    @property
    def discovery(self) -> Json:
        """Result of ``server/discover`` (MCP's ``DiscoverResult``)."""
        result = {
            "resultType": "complete",
            "supportedVersions": sorted(MODERN_VERSIONS),
            "capabilities": _with_extensions(self.capabilities, self.extensions),
            "ttlMs": DISCOVERY_TTL_MS,
            "cacheScope": CACHE_SCOPE,
        }
        return result if self.instructions is None else result | {"instructions": self.instructions}

    async def produce(
        self, tool: Tool, request: ToolExecutionRequest, context: InvocationContext
    ) -> ToolExecutionResult:
        """Run what reads a resource or renders a prompt; see `bridge.server.served.feature.Running`."""
        self.running.check_open(request.name)
        try:
            context = self._prepared(context)
            result = await self._execute(OneTool(tool), request, context, self.producing)
        except (ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError, ProtocolError):
            raise
        except BaseException as error:  # noqa: BLE001 - answered without its text
            raise reported(request.name, error, self.running) from None
        if result.is_error:
            seconds = result.metadata.get(RETRY_AFTER_META_KEY)
            if seconds is None:
                raise ProtocolError(INTERNAL_ERROR, result.text)
            raise ProtocolError(LIMIT_EXCEEDED, result.text, {"retryAfterSeconds": seconds})
        return result

    def max_result_bytes(self, name: str) -> int | None:
        """Return the maximum length of the result of a name; None for no limit."""
        return None if self._max_result_bytes is None else self._max_result_bytes(name)

    def write_produced(self, name: str, wire: Json, write: Callable[[Json], _Written]) -> _Written:
        """Write the result of `produce`, given as JSON.

        Raises:
            ProtocolError: It is over the limit of the results of this name, or cannot be sent.
        """
        max_bytes = self.max_result_bytes(name)
        plain = wire if max_bytes is None else dict(wire)  # writing may add members
        try:
            written = write(wire)
        except Exception as error:  # noqa: BLE001 - answered without its text
            raise failed(name, error) from None
        if max_bytes is not None:
            from bridge.server.limits.accounts import excess_bytes  # noqa: PLC0415 - only with limits

            if (length := excess_bytes(max_bytes, plain, written)) is not None:
                message = f"the result of {name!r} has {length} bytes, and may have {max_bytes}: ask for less"
                raise ProtocolError(INTERNAL_ERROR, message)
        return written

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        write: Callable[[Json], _Written],
        *,
        modern: bool,
        access: Access = EVERYTHING,
    ) -> _Written:
        """Run a ``tools/call``.

        Args:
            name: The tool's name.
            arguments: Its arguments, not yet validated.
            context: The context of the call; its memory id is set here.
            write: Writes the result, given as JSON. If it raises, the tool's result cannot be sent.
            modern: True for a client of version 2026-07-28. Older versions allow only objects as structured content; of
                other types it is left out.
            access: Permissions of the caller; a tool outside of them is unknown.

        Raises:
            ProtocolError: The tool is unknown, or the call failed outside of the tool, which has been logged.
            InputRequired: The tool asked a question that needs another round.
        """
        self.running.check_open(name)
        tools = self.views.of(access).tools
        _check_scopes(name, tools, access)
        try:
            context = self._prepared(context)
            request, tool = ToolExecutionRequest(name, arguments), tools.find(name)
            if tool is not None and self._runs_without_limits(tool, context):
                try:
                    result = await tool.executor.execute(request, context)
                except BaseException as raised:  # noqa: BLE001 - as in `execute`
                    result = await result_of_failure(raised, tool, arguments, self.policy)
            else:
                result = await self._execute(tools, request, context, self.policy)
            max_bytes = None if self._max_result_bytes is None else self._max_result_bytes(name)
            return write_result(name, result, write, max_bytes, modern=modern)
        except BaseException as error:  # noqa: BLE001 - answered without its text
            if isinstance(error, anyio.get_cancelled_exc_class()):
                context.cancel()
            if isinstance(error, UnknownToolError) and error.name == name and name not in tools:
                raise ProtocolError(INVALID_PARAMS, str(error)) from None
            raise reported(name, error, self.running) from None

    def _prepared(self, context: InvocationContext) -> InvocationContext:
        """Return the context of a call with what the server adds."""
        if self.memory_id_of is not None:
            context.memory_id = self.memory_id_of(context)
        return context if self.lifespan is None else context.within(self.lifespan)

    def _runs_without_limits(self, tool: Tool, context: InvocationContext) -> bool:
        """True if nothing limits, changes or observes a call, so that its executor may run without `execute`."""
        return (
            self.is_plain
            and tool.is_unlimited
            and context.deadline is None
            and self.running.has_room(self.plain_places)
        )


def _with_extensions(capabilities: Json, extensions: Mapping[str, Json]) -> Json:
    return {**capabilities, "extensions": dict(extensions)} if extensions else capabilities


def _check_scopes(name: str, tools: ToolBox, access: Access) -> None:
    """Refuse a call without its scope. Over HTTP, `ToolScopeGuard` has refused it before."""
    if name in tools and access.missing(name):
        raise ProtocolError(INVALID_REQUEST, f"the tool {name!r} needs a scope that was not granted")


def _raise(error: Exception, *_: object) -> str:
    raise error


def write_result(
    name: str,
    result: ToolExecutionResult,
    write: Callable[[Json], _Written],
    max_bytes: int | None,
    *,
    modern: bool,
) -> _Written:
    """Write the result of a call, or an error in its place if it cannot be sent; the arguments are those of `call`."""
    try:
        wire = _of_era(result, modern=modern)
        if max_bytes is None:
            return write(wire)
        from bridge.server.limits.accounts import excess_bytes  # noqa: PLC0415 - only with limits

        plain = dict(wire)  # writing may add members
        written = write(wire)
        if (length := excess_bytes(max_bytes, plain, written)) is None:
            return written
        message = f"the result of {name!r} has {length} bytes, and may have {max_bytes}: ask for less"
    except Exception:
        _logger.exception("the result of the tool %r cannot be sent", name)
        message = f"the tool {name!r} failed; its server's log says why"
    return write(_of_era(ToolExecutionResult.error(message), modern=modern))


def _of_era(result: ToolExecutionResult, *, modern: bool) -> Json:
    """Return a result as JSON, in the form of its client's era."""
    wire = result_to_wire(result)
    if modern:
        wire.setdefault("resultType", "complete")  # or a task of another server
    elif not isinstance(wire.get("structuredContent", {}), dict):
        del wire["structuredContent"]
    return wire
