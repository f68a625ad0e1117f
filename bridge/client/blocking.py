"""Synchronous client for programs without an event loop.

    with bridge.connect("mcp.json") as servers:
        print(servers.call("add", a=1, b=2).text)

All I/O runs in the portal thread (`bridge.portal`), on the same `McpToolProvider` that asynchronous programs use.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar

import anyio
import anyio.from_thread
from anyio.lowlevel import current_token

from bridge import portal
from bridge.client.blocking_events import BlockingEvents
from bridge.client.provider import McpToolProvider
from bridge.tools.channel import Channel
from bridge.tools.transform import wrapped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping

    import httpx2
    from typing_extensions import Unpack

    from bridge.client.config.servers import Prefixing, ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.processes import ProcessOptions
    from bridge.client.connection.status import ReconnectPolicy
    from bridge.client.connection_pool import HeaderSupplier, Servers
    from bridge.client.tasks.remote_task import RemoteTask
    from bridge.client.tool_catalog import NameMapper, ServerStatus, ToolFilter
    from bridge.events.event_type import Delivery, EventType
    from bridge.prompts.prompt import Prompt, PromptMessage
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.skills.skill import Skill
    from bridge.tools.channel import LogLevel
    from bridge.tools.completion import Completion
    from bridge.tools.content import File
    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import CallNext, Middleware
    from bridge.tools.questions import Answer, Question
    from bridge.tools.task import Task
    from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutionResult, ToolProviderRequest
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Feature

_T = TypeVar("_T")


class ProviderOptions(TypedDict, total=False):
    """Keyword arguments of `McpToolProvider`; callbacks run in the portal thread."""

    handlers: ClientHandlers | None
    filter: ToolFilter | None
    name_mapper: NameMapper | None
    prefix: Prefixing | None
    local: ToolBox | None
    headers_supplier: HeaderSupplier | None
    meta_supplier: HeaderSupplier | None
    auth: Callable[[ServerConfig], httpx2.Auth | None] | None
    reconnect: ReconnectPolicy | None
    processes: ProcessOptions | None
    resources: bool
    features: Collection[Feature]
    validates_results: bool
    middleware: Iterable[Middleware]


class BlockingTask:
    """Blocking version of a `RemoteTask`, with the same text; made by `BlockingToolProvider.start` and `.task`.

    Args:
        task: The task.
        run: Runs a coroutine function in the event loop of the provider.
    """

    def __init__(self, task: RemoteTask, run: Callable[..., Any]) -> None:
        self._task = task
        self._run = run

    def __str__(self) -> str:
        return str(self._task)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    @property
    def server(self) -> str:
        """The server's name in the configuration."""
        return self._task.server

    @property
    def tool(self) -> str:
        """The tool's name on the server."""
        return self._task.tool

    @property
    def id(self) -> str:
        """ID of the task on its server; empty if the server has answered directly."""
        return self._task.id

    def status(self) -> Task:
        """Ask the server for the state; see `RemoteTask.status`."""
        state: Task = self._run(self._task.status)
        return state

    def result(self) -> ToolExecutionResult:
        """Wait for the end; see `RemoteTask.result`."""
        result: ToolExecutionResult = self._run(self._task.result)
        return result

    def cancel(self) -> None:
        """Ask the server to cancel the task; see `RemoteTask.cancel`."""
        self._run(self._task.cancel)

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Answer questions of the task; see `RemoteTask.answer`."""
        self._run(self._task.answer, answers)


class BlockingToolProvider:
    """Blocking client for remote tools, created by `connect`; safe to use from any thread.

    Args:
        provider: An open provider that belongs to the portal's event loop.
    """

    is_dynamic = True
    """The tools may change between two calls of a model."""

    def __init__(self, provider: McpToolProvider) -> None:
        self._provider = provider
        self._process_id = os.getpid()
        self._tools = provider.tools.transformed(lambda tools: wrapped(tools, _run_in_portal))

    def _run(self, function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """Run a coroutine function in the portal's event loop, unless this process is a fork."""
        self._check_process()
        return portal.run_in_portal(function, *arguments)

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            raise RuntimeError(
                f"these connections belong to the process {self._process_id}, and this process is a fork: "
                "call connect() in each process after the fork"
            )

    @property
    def tools(self) -> ToolBox:
        """Current tools, updated when a server's tools change. They can be called in any event loop."""
        self._check_process()
        return self._tools

    async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
        """Return the current tools to an AI service; see `McpToolProvider.provide_tools`."""
        self._check_process()
        await portal.await_in_portal(self._provider.provide_tools, request)
        return tuple(self._tools)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        /,
        *,
        context: InvocationContext | None = None,
        **more: Any,
    ) -> ToolExecutionResult:
        """Call a tool by its local name and wait for its result; see `McpToolProvider.call`."""
        return self._run(lambda: self._provider.call(name, arguments, context=context, **more))

    def start(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        /,
        *,
        context: InvocationContext | None = None,
        **more: Any,
    ) -> BlockingTask:
        """Start a call as a task; see `McpToolProvider.start`."""
        task = self._run(lambda: self._provider.start(name, arguments, context=context, **more))
        return BlockingTask(task, self._run)

    def task(self, text: str, *, context: InvocationContext | None = None) -> BlockingTask:
        """Take up a task; see `McpToolProvider.task`."""

        async def taken_up() -> RemoteTask:
            return self._provider.task(text, context=context)

        return BlockingTask(self._run(taken_up), self._run)

    def set_filter(self, filter: ToolFilter | None) -> None:  # noqa: A002 - LangChain4j's word
        """Use another filter from now on; see `McpToolProvider.set_filter`."""

        async def set_filter() -> None:
            self._provider.set_filter(filter)

        self._run(set_filter)

    def list_resources(self, server: str | None = None) -> tuple[Resource | ResourceTemplate, ...]:
        """List resources and templates; see `RemoteResources.list`."""
        return self._run(self._provider.resources.list, server)

    def read_resource(self, uri: str) -> tuple[File, ...]:
        """Read a resource; see `RemoteResources.read`."""
        return self._run(self._provider.resources.read, uri)

    def watch_resource(self, uri: str, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a listener, in the portal thread, after each change of a resource; see `RemoteResources.watch`."""
        stop = self._run(self._provider.resources.watch, uri, listener)

        async def stop_watching() -> None:
            stop()

        return partial(self._run, stop_watching)

    def complete_resource(
        self, template: str, variable: str, text: str, values: Mapping[str, str] | None = None
    ) -> Completion:
        """Return values for a variable of a template; see `RemoteResources.complete`."""
        return self._run(self._provider.resources.complete, template, variable, text, values)

    def list_prompts(self, server: str | None = None) -> tuple[Prompt, ...]:
        """List prompts; see `RemotePrompts.list`."""
        return self._run(self._provider.prompts.list, server)

    def render_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> tuple[PromptMessage, ...]:
        """Return the messages of a prompt; see `RemotePrompts.render`."""
        return self._run(self._provider.prompts.render, name, arguments)

    def complete_prompt(
        self, name: str, argument: str, text: str, arguments: Mapping[str, str] | None = None
    ) -> Completion:
        """Return values for an argument of a prompt; see `RemotePrompts.complete`."""
        return self._run(self._provider.prompts.complete, name, argument, text, arguments)

    def list_skills(self, server: str | None = None) -> tuple[Skill, ...]:
        """List skills; see `RemoteSkills.list`."""
        return self._run(lambda: self._provider.skills.list(server=server))

    def read_skill(self, skill: Skill, uri: str | None = None) -> File:
        """Read and verify a file of a skill, by default its instructions; see `Skills.read`."""
        return self._run(self._provider.skills.read, skill, uri)

    def list_events(self, server: str | None = None) -> tuple[EventType, ...]:
        """List types of events; see `RemoteEvents.list`."""
        return self._run(lambda: self._provider.events.list(server=server))

    def subscribe(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        cursor: str | None = None,
        max_age_seconds: float | None = None,
        delivery: Delivery | None = None,
        context: InvocationContext | None = None,
    ) -> BlockingEvents:
        """Subscribe: ``with servers.subscribe("build.finished") as builds:``; see `RemoteEvents.subscribe`."""
        self._check_process()
        subscription = self._provider.events.subscribe(
            name, arguments, cursor=cursor, max_age_seconds=max_age_seconds, delivery=delivery, context=context
        )
        return BlockingEvents(subscription, self._run)

    def add(self, servers: Servers) -> None:
        """Add servers; see `McpToolProvider.add`."""
        self._run(self._provider.add, servers)

    def remove(self, *names: str) -> None:
        """Remove servers; see `McpToolProvider.remove`."""
        self._run(self._provider.remove, *names)

    def refresh(self) -> None:
        """List the tools of every server again."""
        self._run(self._provider.refresh)

    def status(self) -> tuple[ServerStatus, ...]:
        """Current status of each server."""

        async def read_status() -> tuple[ServerStatus, ...]:
            return self._provider.status()

        return self._run(read_status)

    def close(self) -> None:
        """Close all connections. Idempotent; does nothing in a forked process."""
        if os.getpid() == self._process_id:
            self._run(self._provider.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _CallerChannel(Channel):
    """Channel to the caller of a tool whose event loop is not the portal's."""

    def __init__(self, context: InvocationContext) -> None:
        self.has_listener = context.has_listener
        self._context = context
        self._token = current_token()

    @property
    def wants_logs(self) -> bool:
        return self._context.wants_logs

    @property
    def peer(self) -> object | None:
        return self._context.peer

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._run(self._context.progress, progress, total, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        await self._run(self._context.log, level, data, logger)

    async def close_stream(self) -> None:
        await self._run(self._context.close_stream)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        return await self._run(self._context.ask, questions)

    async def _run(self, function: Callable[..., Coroutine[Any, Any, _T]], *arguments: Any) -> _T:
        # The portal runs on asyncio. A worker thread of anyio would pass the portal's cancel scope to the other loop.
        return await asyncio.to_thread(partial(anyio.from_thread.run, function, *arguments, token=self._token))


async def _run_in_portal(
    request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
) -> ToolExecutionResult:
    """Run a remote tool in the event loop of its connection."""
    if portal.is_here():
        return await call_next(request, context)
    channel = _CallerChannel(context)
    seconds_left = None if context.deadline is None else context.deadline - anyio.current_time()

    async def run() -> ToolExecutionResult:
        fork = context.fork(channel=channel)
        fork.deadline = None if seconds_left is None else anyio.current_time() + seconds_left
        return await call_next(request, fork)

    return await portal.await_in_portal(run)


def connect(servers: Servers, /, **options: Unpack[ProviderOptions]) -> BlockingToolProvider:
    """Connect to servers from a program without an event loop; asynchronous programs use `McpToolProvider`.

    Args:
        servers: A configuration, its path (``mcp.json``, or ``mcp.json#name`` for one of its servers), the path of a
            Python file with tools, a URL, or servers.
        options: Keyword arguments of `McpToolProvider`.

    Returns:
        The connected servers, as a context manager that closes the connections.

    Raises:
        ConfigError: The configuration is invalid.
        ServerError: A required server cannot be reached, or its tools cannot be listed.
    """

    async def opened() -> McpToolProvider:
        provider = McpToolProvider(servers, **options)
        await provider.open()
        return provider

    return BlockingToolProvider(portal.run_in_portal(opened))
