"""Connection to one remote server, with automatic reconnection.

    Connection ── used by programs, from any task
        ╰── Supervisor ── task that opens, closes and reconnects (`bridge.client.connection.supervisor`)
              ╰── Session ── from handshake to loss (`bridge.client.connection.session`)

A call to an unavailable server triggers an attempt to connect, and waits briefly for it. If the connection is lost
during a call, the call is repeated only if it provably never ran or may be repeated; otherwise it fails immediately.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from bridge.client.connection.handlers import ClientHandlers
from bridge.client.connection.list_methods import TOOLS
from bridge.client.connection.processes import Processes
from bridge.client.connection.running_call import NO_OPTIONS
from bridge.client.connection.status import (
    ConnectionEvents,
    ConnectionState,
    ConnectionStatus,
    ReconnectPolicy,
    ToolListing,
)
from bridge.errors import ServerFailure, ServerUnavailableError
from bridge.portal import start_detached
from bridge.protocol.messages import notification

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    import httpx2

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.list_methods import Listed, ListMethod
    from bridge.client.connection.requests import CallBeginner
    from bridge.client.connection.running_call import CallOptions
    from bridge.client.connection.session import Session
    from bridge.client.connection.status import Era, MessageDirection, ServerInfo
    from bridge.client.connection.supervisor import Supervisor
    from bridge.errors import ServerError
    from bridge.tools.context import InvocationContext
    from bridge.types import Feature, Json

    ToolCaller = Callable[
        [Supervisor, str, Mapping[str, Any], InvocationContext | None, CallOptions], Coroutine[Any, Any, Json]
    ]

_logger = logging.getLogger("bridge.client")


class Connection:
    """Connection to one server. It belongs to the event loop that opens it.

    Args:
        config: The server: its transport and settings.
        processes: What child processes share with those of other connections; None for nothing.
        handlers: Handlers of server requests; None for none.
        reconnect: Reconnection delays and health checks.
        auth: Authentication of HTTP requests; None to use the configuration.
    """

    def __init__(
        self,
        config: ServerConfig,
        processes: Processes | None = None,
        *,
        handlers: ClientHandlers | None = None,
        reconnect: ReconnectPolicy | None = None,
        auth: httpx2.Auth | None = None,
    ) -> None:
        self.config = config
        self._processes = processes or Processes()
        self._definitions = self._processes.definitions_of(config)
        self._handlers = handlers or ClientHandlers()
        self._reconnect = reconnect or ReconnectPolicy()
        self._auth = auth
        self._supervisor: Supervisor | None = None
        self._call_tool: ToolCaller | None = None  # imported at the first opening
        self.send_call: CallBeginner | None = None
        """Sends a call at once; see `bridge.client.connection.requests.send_call`; None before `open`."""
        self._events = ConnectionEvents()

    async def open(self, *, wait: bool = True) -> None:
        """Start the connection; does nothing if it is open.

        Args:
            wait: Return when the server is ready; close again if the first attempt fails. Otherwise return immediately
                and keep trying; see `settled`.

        Raises:
            ServerUnavailableError: The server cannot be started or reached, or the handshake fails or times out.
        """
        supervisor = self._supervisor
        if supervisor is None or supervisor.is_stopping:
            if supervisor is not None:
                await supervisor.done.wait()
            if self._supervisor is supervisor:  # no other task has started it meanwhile
                self._start()
        supervisor = self._supervisor
        assert supervisor is not None
        if not wait:
            return
        await supervisor.settled()
        if supervisor.connects == 0 and not supervisor.is_idle:
            error = supervisor.error or supervisor.failures.closed("connecting")
            supervisor.stop()
            await supervisor.done.wait()
            raise error

    async def aclose(self) -> None:
        """Close the connection, and its child process with all descendants. Idempotent; may be called from any task."""
        if (supervisor := self._supervisor) is not None:
            supervisor.stop()
            await supervisor.done.wait()

    async def settled(self) -> ConnectionState:
        """Wait until the first attempt since `open` has succeeded or failed; returns the state."""
        if self._supervisor is not None:
            await self._supervisor.settled()
        return self.state

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.config.name

    @property
    def state(self) -> ConnectionState:
        """Current state."""
        return self._events.state

    @property
    def is_busy(self) -> bool:
        """True while calls run, or wait for the server."""
        return self._supervisor is not None and self._supervisor.is_busy

    @property
    def last_error(self) -> ServerError | None:
        """Last error of the connection; None when it is ready again."""
        return self._events.last_error

    @property
    def era(self) -> Era | None:
        """Era of the last handshake; None before the first."""
        return session.era if (session := self._last_session) else None

    @property
    def protocol_version(self) -> str | None:
        """MCP version of the last handshake; None before the first."""
        return session.version if (session := self._last_session) else None

    @property
    def server_info(self) -> ServerInfo | None:
        """The server's description of itself in the last handshake; None before the first."""
        kept = None if self._definitions is None else self._definitions.info
        return session.info if (session := self._last_session) else kept

    def status(self) -> ConnectionStatus:
        """Current status of the connection."""
        supervisor, session = self._supervisor, self._last_session
        return ConnectionStatus(
            name=self.name,
            state=self.state,
            transport=self.config.transport.kind if session is None else session.link.kind,
            address=self.config.transport.redacted(),
            era=self.era,
            protocol_version=self.protocol_version,
            server_info=self.server_info,
            last_error=self.last_error,
            connects=supervisor.connects if supervisor else 0,
            pid=session.link.pid if session and not session.ended.is_set() else None,
            **(supervisor.circuit.counts() if supervisor else {}),
        )

    def on_state(self, listener: Callable[[ConnectionState], None]) -> Callable[[], None]:
        """Call a listener with each new state; returns a function that removes it. Exceptions are logged."""
        return self._events.state_listeners.add(listener)

    def on_list_changed(self, feature: Feature, listener: Callable[[], None]) -> Callable[[], None]:
        """Register a listener that is called when the server's tools, resources or prompts have, or may have, changed.

        The server may announce it, in either era. The list of tools may also differ after a reconnection.

        Args:
            feature: ``tools``, ``resources`` or ``prompts``.
            listener: Called in the event loop; its exceptions are logged.

        Returns:
            A function that removes the listener.
        """
        self._events.wanted.follow(feature)
        return self._events.list_listeners[feature].add(listener)

    def on_updated(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a listener with the URI of a watched resource that has, or may have, new content, as `on_state`."""
        return self._events.update_listeners.add(listener)

    async def watch(self, uri: str) -> None:
        """Ask the server to announce new content of a resource, in this session and the next ones; see `on_updated`.

        Raises:
            ServerUnavailableError: The server is unavailable.
            ServerRefusedError: The server does not announce changes of this resource.
        """
        supervisor = self._opened(phase := f"watching {uri!r}")
        await supervisor.usable(phase, self.config.connect_wait_seconds)
        self._events.wanted.watch(uri)
        await supervisor.notified(self.config.timeout_seconds)
        if supervisor.receiver is not None and (error := supervisor.receiver.refused.get(uri)) is not None:
            self._events.wanted.unwatch(uri)
            raise supervisor.failures.refused(phase, error, None) from error

    def watch_again(self, uri: str) -> None:
        """Watch a resource once the server is ready; its listeners are then notified once, as after a reconnection."""
        self._events.wanted.watch_again(uri)

    def unwatch(self, uri: str) -> None:
        """Ask the server no longer to announce new content of a resource."""
        self._events.wanted.unwatch(uri)

    def on_message(self, listener: Callable[[MessageDirection, str], None]) -> Callable[[], None]:
        """Call a listener with direction and JSON of each message of sessions opened from now on, as `on_state`."""
        return self._events.message_listeners.add(listener)

    async def list_tools(self) -> ToolListing:
        """List the server's tools, all pages, without caching; tools refused by pins are left out.

        Returns:
            The tools as MCP's ``Tool``, and their TTL.

        Raises:
            ServerError: They cannot be listed.
        """
        listed = await self.list_items(TOOLS)
        return ToolListing(listed.items, listed.ttl_seconds, listed.malformed, tuple(listed.refused.values()))

    async def list_items(self, method: ListMethod) -> Listed:
        """List items of the server, all pages, without caching; those refused by pins are left out.

        Args:
            method: ``resources/list``, for example; see `bridge.client.connection.list_methods`.

        Returns:
            The items; none if the server does not have the method.

        Raises:
            ServerError: They cannot be listed.
        """
        from bridge.client.connection.requests import list_all  # noqa: PLC0415 - only for open connections

        listed = await list_all(self._opened(f"listing {method.noun}s"), method)
        if method is TOOLS:
            self._events.tools = listed.items
        return listed if (pins := self.config.pins) is None else pins.admitted(self.name, method, listed)

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        context: InvocationContext | None = None,
        options: CallOptions = NO_OPTIONS,
    ) -> Coroutine[Any, Any, Json]:
        """Call a tool.

        Args:
            name: The tool's name on the server.
            arguments: The arguments, sent unchanged.
            context: Invocation context: receives progress and log messages, limits the time by its deadline, and is
                passed to handlers.
            options: Options of the call.

        Returns:
            MCP's ``CallToolResult``, unparsed; a failed tool sets ``isError``.

        Raises:
            ServerUnavailableError: The server is unavailable, or was lost before the call could run: it never ran.
            OutcomeUnknownError: The connection was lost, or the time limit reached, while the call may have been
                running.
            ServerRefusedError: The server responded with an error, for example for an unknown tool.
            ServerAnswerError: The response violates the protocol.
            ArgumentsError: The arguments are not JSON data.
        """
        supervisor = self._supervisor
        if supervisor is None or supervisor.is_stopping:
            supervisor = self._opened(f"calling {name!r}")
        assert self._call_tool is not None
        return self._call_tool(supervisor, name, arguments, context, options)

    async def task_result(
        self, task_id: str, *, context: InvocationContext | None = None, options: CallOptions = NO_OPTIONS
    ) -> Json:
        """Wait for the end of a task, through reconnections and restarts, and answer its questions with the handlers.

        Args:
            task_id: ID of the task on the server.
            context: Invocation context; see `call_tool`.
            options: Options of the requests.

        Returns:
            MCP's ``CallToolResult``, unparsed.

        Raises:
            OutcomeUnknownError: The task was cancelled, or the server does not know it, or did not respond in time.
            ServerRefusedError: The task has failed.
            ServerAnswerError: The server violates the protocol, or asks something that no handler can answer.
        """
        from bridge.client.connection.requests import task_result  # noqa: PLC0415 - only for open connections

        return await task_result(self._opened("waiting for a task"), task_id, context, options)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        context: InvocationContext | None = None,
        options: CallOptions = NO_OPTIONS,
    ) -> Json:
        """Send a request other than a call, such as that for a resource, or one of an extension.

        Args:
            method: Method, such as ``resources/read``. Those of the protocol, which only read, are repeated after a
                lost connection.
            params: Parameters.
            context: Invocation context; see `call_tool`.
            options: Options of the request.

        Returns:
            The result, unparsed.

        Raises:
            ServerError: As for `call_tool`.
        """
        from bridge.client.connection.requests import request  # noqa: PLC0415 - only for open connections

        return await request(self._opened(f"requesting {method}"), method, params or {}, context, options)

    async def stream(self, method: str, params: Mapping[str, Any], receive: Callable[[Json], Awaitable[None]]) -> None:
        """Send a request that lasts, and receive its notifications; see `bridge.client.connection.streams.stream`."""
        from bridge.client.connection.streams import stream  # noqa: PLC0415 - only for open connections

        await stream(self._opened(f"requesting {method}"), method, params, receive)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send the server a notification of an extension, without waiting for it.

        Args:
            method: The method: ``notifications/…``.
            params: The parameters, as JSON data.

        Raises:
            ServerUnavailableError: The server is unavailable.
        """
        if (session := self._opened(phase := f"notifying of {method}").ready_session) is None:
            raise ServerUnavailableError(ServerFailure(server=self.name, phase=phase, reason="it is not connected"))
        session.post_soon(notification(method, dict(params or {})))

    @property
    def _last_session(self) -> Session | None:
        return self._supervisor.last if self._supervisor else None

    def _opened(self, phase: str) -> Supervisor:
        if self._supervisor is None or self._supervisor.is_stopping:
            raise ServerUnavailableError(
                ServerFailure(server=self.name, phase=phase, reason="the connection is not open", hint="open it first")
            )
        return self._supervisor

    def _start(self) -> None:
        from bridge.client.connection.requests import call_tool, send_call  # noqa: PLC0415 - only for open connections
        from bridge.client.connection.supervisor import Supervisor  # noqa: PLC0415 - only for open connections

        self._call_tool = call_tool
        self._supervisor = Supervisor(
            self.config,
            handlers=self._handlers,
            reconnect=self._reconnect,
            auth=self._auth,
            events=self._events,
            starts=self._processes.starts,
            definitions=self._definitions,
        )
        self.send_call = partial(send_call, self._supervisor)
        self._events.change_state(ConnectionState.CONNECTING, None)
        start_detached(self._supervisor.run, f"connection to {self.name}")
