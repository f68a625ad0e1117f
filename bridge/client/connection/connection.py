"""Connection: one remote server, reached and kept, for a program that calls its tools for weeks.

    Connection ── what a program uses, from any task
        ╰── Owner ── the one task that opens, closes and heals (`bridge.client.connection.supervisor`)
              ╰── Link ── one client of the SDK, from greeting to break (`bridge.client.connection.session`)

A call that finds the server down has an attempt made at once and waits a little. A call whose connection breaks is
made again only where it provably never ran, or where it may be repeated; otherwise it ends at once.
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
    """A connection to one server. It belongs to the event loop in which it is opened.

    Args:
        config: The server: how to reach it, and how to treat it.
        handlers: Who answers what the server asks; None for nobody.
        healing: How soon a lost server is tried again, and how an idle one is watched.
        auth: Signs HTTP requests, and renews what it signs with; None for what the configuration says.
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
        """Start the connection; nothing happens where it is open already.

        Args:
            wait: Return when the server is ready, and close again where the first attempt fails. Otherwise return at
                once and keep trying; see `settled`.

        Raises:
            ServerUnavailableError: The server cannot be started, reached or greeted in time.
        """
        owner = self._owner
        if owner is None or owner.is_stopping:
            if owner is not None:
                await owner.done.wait()
            if self._owner is owner:  # nobody else was quicker
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
        """End the connection, and the child with all that it started. From any task, any number of times."""
        if self._owner is not None:
            await self._close(self._owner)

    async def settled(self) -> ConnectionState:
        """Wait until the first attempt since `open` has ended, well or not; returns the state."""
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

    # --- how it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What the configuration calls the server."""
        return self.config.name

    @property
    def era(self) -> Era | None:
        """Which era the server speaks, as it was last greeted; None before that."""
        link = self._last_link
        return link.era if link else None

    @property
    def protocol_version(self) -> str | None:
        """MCP's version that is spoken, as the server was last greeted; None before that."""
        link = self._last_link
        return link.protocol_version if link else None

    @property
    def server_info(self) -> ServerInfo | None:
        """What the server said of itself when it was last greeted; None before that."""
        link = self._last_link
        return link.info if link else None

    def status(self) -> ConnectionStatus:
        """How the connection is now."""
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
        """Have each new state told.

        Args:
            listener: Called in the event loop; what it raises is logged.

        Returns:
            A function that ends it.
        """
        return self._state_listeners.add(listener)

    def on_tools_changed(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have it told when the server's tools have, or may have, changed: list them again.

        That is when the server says so, in either era, and when the list is another after a reconnection.

        Args:
            listener: Called in the event loop; what it raises is logged.

        Returns:
            A function that ends it.
        """
        if self._owner is not None:
            self._owner.want_changes()
        return self._tools_listeners.add(listener)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def list_tools(self) -> ToolListing:
        """The server's tools, all pages, asked of the server each time; without those that its pins refuse.

        Returns:
            The tools as MCP's ``Tool``, and how long they stay as they are.

        Raises:
            ServerError: They cannot be listed; it says why.
        """
        from bridge.client.connection.calls import list_tools  # noqa: PLC0415 - loads the SDK

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
            arguments: Its arguments, sent as given.
            context: What surrounds the call: it hears progress and log messages, its deadline counts, and handlers of
                questions get it.
            meta: What goes with the call in ``_meta``.
            repeatable: The tool says that it is idempotent, or only reads. Where the server is trusted, the call is
                made again if the connection breaks.
            timeout_seconds: How long the call may go without progress; by default what the configuration says.
            input_responses: Answers to the questions of an earlier round, by key (modern era).
            request_state: The state of that round, as it came (modern era).
            hands_on_questions: Return a result with ``resultType: "input_required"`` as it came, instead of having
                handlers answer it and going on. Without effect in the handshake era, whose questions come while the
                call runs.

        Returns:
            MCP's ``CallToolResult`` as it came; a tool that failed says so in ``isError``.

        Raises:
            ServerUnavailableError: The server is not there, or was lost before the call could run: it never ran.
            OutcomeUnknownError: The connection broke, or time ran out, while the call may have been running.
            ServerRefusedError: The server answered with an error: the tool is unknown, say.
            ServerAnswerError: Its answer is not what the protocol says.
            ArgumentsError: The arguments are no JSON data.
        """
        from bridge.client.connection.calls import CallRound, call_tool  # noqa: PLC0415 - loads the SDK

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
        """Ask the server what can be asked twice without harm: a list, a resource.

        Args:
            method: MCP's method, such as ``resources/read``.
            params: Its parameters.
            context: What surrounds the request; see `call_tool`.

        Returns:
            The result as it came.

        Raises:
            ServerError: As for `call_tool`.
        """
        from bridge.client.connection.calls import request  # noqa: PLC0415 - loads the SDK

        return await request(self._opened(f"asking for {method}"), self.config, method, params or {}, context)

    # --- underneath --------------------------------------------------------------------------------------------------

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
        from bridge.client.connection.supervisor import Supervisor  # noqa: PLC0415 - loads the SDK

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
        """After a reconnection: the tools may be others than before."""
        if self._listing is None:
            return
        from bridge.client.connection.tool_listing import list_all_pages  # noqa: PLC0415 - loaded already

        try:
            listing = (await list_all_pages(link)).tools
        except Exception as error:  # noqa: BLE001 - whoever lists the tools will be told
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
