"""Connection to one remote server, with automatic reconnection.

    Connection ── used by programs, from any task
        ╰── Supervisor ── task that opens, closes and reconnects (`bridge.client.connection.supervisor`)
              ╰── Session ── one client of the SDK, from handshake to loss (`bridge.client.connection.session`)

A call to an unavailable server triggers a connection attempt and waits briefly. If the connection is lost during a
call, the call is repeated only if it provably never ran or may be repeated; otherwise it fails immediately.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from bridge.client.config.servers import HttpTransport, MemoryTransport, StdioTransport, UnusableTransport
from bridge.client.connection.handlers import ClientHandlers
from bridge.client.connection.state import ConnectionState, ConnectionStatus, Healing, Listeners, ToolListing
from bridge.errors import ServerError, ServerFailure, ServerUnavailableError
from bridge.portal import start_detached

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    import httpx2

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.session import Session
    from bridge.client.connection.state import Era, ServerInfo, TransportKind
    from bridge.client.connection.supervisor import Supervisor
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

_logger = logging.getLogger("bridge.client")


class Connection:
    """Connection to one server. It belongs to the event loop that opens it.

    Args:
        config: The server: its transport and settings.
        handlers: Handlers of server requests; None for none.
        healing: Reconnection delays and health checks.
        auth: Authentication of HTTP requests; None to use the configuration.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        handlers: ClientHandlers | None = None,
        healing: Healing | None = None,
        auth: httpx2.Auth | None = None,
    ) -> None:
        self.config = config
        self.state = ConnectionState.CLOSED
        self.last_error: ServerError | None = None
        self._handlers = handlers or ClientHandlers()
        self._healing = healing or Healing()
        self._auth = auth
        self._owner: Supervisor | None = None
        self._state_listeners = Listeners[[ConnectionState]]()
        self._tools_listeners = Listeners[[]]()
        self._listing: list[Json] | None = None

    # --- opening and closing -----------------------------------------------------------------------------------------

    async def open(self, *, wait: bool = True) -> None:
        """Start the connection; does nothing if it is open.

        Args:
            wait: Return when the server is ready; close again if the first attempt fails. Otherwise return immediately
                and keep trying; see `settled`.

        Raises:
            ServerUnavailableError: The server cannot be started or reached, or the handshake fails or times out.
        """
        owner = self._owner
        if owner is None or owner.is_stopping:
            if owner is not None:
                await owner.done.wait()
            if self._owner is owner:  # no other task has started it meanwhile
                self._start()
        owner = self._owner
        assert owner is not None
        if not wait:
            return
        await owner.settled()
        if owner.connects == 0:
            error = owner.error or owner.failures.closed("connecting")
            await self._close(owner)
            raise error

    async def aclose(self) -> None:
        """Close the connection, and its child process with all descendants. Idempotent; may be called from any task."""
        if self._owner is not None:
            await self._close(self._owner)

    async def settled(self) -> ConnectionState:
        """Wait until the first attempt since `open` has succeeded or failed; returns the state."""
        if self._owner is not None:
            await self._owner.settled()
        return self.state

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # --- status ------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.config.name

    @property
    def era(self) -> Era | None:
        """Era of the last handshake; None before the first."""
        link = self._last_link
        return link.era if link else None

    @property
    def protocol_version(self) -> str | None:
        """MCP version of the last handshake; None before the first."""
        link = self._last_link
        return link.protocol_version if link else None

    @property
    def server_info(self) -> ServerInfo | None:
        """The server's description of itself in the last handshake; None before the first."""
        link = self._last_link
        return link.info if link else None

    def status(self) -> ConnectionStatus:
        """Current status of the connection."""
        return ConnectionStatus(
            name=self.name,
            state=self.state,
            transport=self._transport_kind(),
            address=self.config.transport.redacted(),
            era=self.era,
            protocol_version=self.protocol_version,
            server_info=self.server_info,
            last_error=self.last_error,
            connects=self._owner.connects if self._owner else 0,
        )

    def on_state(self, listener: Callable[[ConnectionState], None]) -> Callable[[], None]:
        """Register a listener for state changes.

        Args:
            listener: Called in the event loop; its exceptions are logged.

        Returns:
            A function that removes the listener.
        """
        return self._state_listeners.add(listener)

    def on_tools_changed(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Register a listener that is called when the server's tools have, or may have, changed.

        The server may announce it, in either era, or the list may differ after a reconnection.

        Args:
            listener: Called in the event loop; its exceptions are logged.

        Returns:
            A function that removes the listener.
        """
        if self._owner is not None:
            self._owner.want_changes()
        return self._tools_listeners.add(listener)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def list_tools(self) -> ToolListing:
        """List the server's tools, all pages, without caching; tools refused by pins are left out.

        Returns:
            The tools as MCP's ``Tool``, and their TTL.

        Raises:
            ServerError: They cannot be listed.
        """
        from bridge.client.connection.calls import list_tools  # noqa: PLC0415 - imports the SDK

        owner = self._opened("listing tools")
        await owner.usable("listing tools", self.config.connect_wait_seconds)
        await owner.watching(self.config.connect_wait_seconds)
        listing = await list_tools(owner, self.config)
        self._listing = listing.tools
        if (pins := self.config.pins) is None:
            return listing
        tools, refused = pins.admitted(self.name, listing.tools)
        return listing._replace(tools=tools, refused=refused)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        context: InvocationContext | None = None,
        meta: Mapping[str, Any] | None = None,
        repeatable: bool = False,
        timeout_seconds: float | None = None,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        hands_on_questions: bool = False,
    ) -> Json:
        """Call a tool.

        Args:
            name: The tool's name on the server.
            arguments: The arguments, sent unchanged.
            context: Invocation context: receives progress and log messages, limits the time by its deadline, and is
                passed to handlers.
            meta: Value of ``_meta``.
            repeatable: True if the tool is annotated as idempotent or read-only. If the server is trusted, the call is
                repeated after a lost connection.
            timeout_seconds: Maximum seconds without progress; by default those of the configuration.
            input_responses: Answers to the input requests of an earlier round, by key (modern era).
            request_state: The state of that round, unchanged (modern era).
            hands_on_questions: Return a result with ``resultType: "input_required"`` instead of answering it with
                handlers. Has no effect in the handshake era, in which servers send requests during the call.

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
        from bridge.client.connection.calls import CallRound, call_tool  # noqa: PLC0415 - imports the SDK

        return await call_tool(
            self._opened(f"calling {name!r}"),
            self.config,
            self._handlers,
            CallRound(name, arguments, meta, input_responses, request_state),
            context=context,
            is_repeatable=repeatable and self.config.trusted,
            timeout_seconds=timeout_seconds,
            hands_on_questions=hands_on_questions,
        )

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, context: InvocationContext | None = None
    ) -> Json:
        """Send a request that may be repeated, such as a list or a resource.

        Args:
            method: MCP method, such as ``resources/read``.
            params: Parameters.
            context: Invocation context; see `call_tool`.

        Returns:
            The result, unparsed.

        Raises:
            ServerError: As for `call_tool`.
        """
        from bridge.client.connection.calls import request  # noqa: PLC0415 - imports the SDK

        return await request(self._opened(f"requesting {method}"), self.config, method, params or {}, context)

    # --- internals ---------------------------------------------------------------------------------------------------

    @property
    def _last_link(self) -> Session | None:
        return self._owner.last if self._owner else None

    def _opened(self, phase: str) -> Supervisor:
        if self._owner is None or self._owner.is_stopping:
            raise ServerUnavailableError(
                ServerFailure(server=self.name, phase=phase, reason="the connection is not open", hint="open it first")
            )
        return self._owner

    def _start(self) -> None:
        from bridge.client.connection.supervisor import Supervisor  # noqa: PLC0415 - imports the SDK

        self._owner = Supervisor(
            self.config,
            handlers=self._handlers,
            healing=self._healing,
            auth=self._auth,
            changed=self._changed,
            relist=self._relist,
            tools_changed=self._tools_listeners.tell,
            wants_changes=lambda: bool(self._tools_listeners),
        )
        self._changed(ConnectionState.CONNECTING, None)
        start_detached(self._owner.run, f"connection to {self.name}")

    async def _close(self, owner: Supervisor) -> None:
        owner.stop()
        await owner.done.wait()

    async def _relist(self, link: Session) -> None:
        """List the tools after a reconnection, and notify listeners if they differ."""
        if self._listing is None:
            return
        from bridge.client.connection.tool_listing import list_all_pages  # noqa: PLC0415 - already imported

        try:
            listing = (await list_all_pages(link)).tools
        except Exception as error:  # noqa: BLE001 - listeners will list the tools and get the error
            _logger.debug("server %r: the tools cannot be listed again: %r", self.name, error)
            self._tools_listeners.tell()
            return
        if listing != self._listing:
            self._listing = listing
            self._tools_listeners.tell()

    def _changed(self, state: ConnectionState, error: ServerError | None) -> None:
        if state is not ConnectionState.CLOSED:
            self.last_error = error
        if state is not self.state:
            self.state = state
            self._state_listeners.tell(state)

    def _transport_kind(self) -> TransportKind | None:
        if (link := self._last_link) is not None:
            return link.kind
        match self.config.transport:
            case StdioTransport():
                return "stdio"
            case MemoryTransport():
                return "memory"
            case HttpTransport(kind=kind):
                return kind
            case UnusableTransport():
                return None
