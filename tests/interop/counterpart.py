"""The official SDK's own client, ``bridge serve`` as a process, and the routes between them."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
    ToolListChangedNotification,
)

from tests import forks, processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from mcp.client import ClientRequestContext, IncomingMessage
    from mcp_types import CreateMessageRequestParams, ElicitRequestParams

TOOLS = f"{Path(__file__).with_name('tools.py')}:TOOLS"
MODERN = "2026-07-28"
DEADLINE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Route:
    """A transport, and the client's way to negotiate over it."""

    transport: str
    mode: str

    @property
    def is_modern(self) -> bool:
        """Era of the route: SSE exists only in the handshake era."""
        return self.mode != "legacy" and not self.is_sse

    @property
    def is_sse(self) -> bool:
        """True for a stream of the first protocol version."""
        return self.transport.endswith("sse")

    def __str__(self) -> str:
        return f"{self.transport}-{self.mode}"


ROUTES = [Route(transport, mode) for transport in ("stdio", "http") for mode in ("auto", "legacy", MODERN)]
ROUTES += [Route("sse", "auto"), Route("sse", "legacy")]
TRIO_ROUTES = [*(Route("trio", mode) for mode in ("auto", "legacy", MODERN)), Route("trio-sse", "legacy")]
"""Routes to an app in a server that runs on trio."""


@dataclass(slots=True)
class Counterpart:
    """A connected client, and a record of the server's messages."""

    route: Route
    client: Client = field(init=False)
    asked: list[str] = field(default_factory=list)
    """Methods and parameters of the server's requests since the test began."""
    answers_with: str = "accept"
    """Answers to forms."""
    logged: list[LoggingMessageNotificationParams] = field(default_factory=list)
    """Log messages of the server since the test began."""
    was_told: anyio.Event = field(default_factory=anyio.Event)
    """Set at each log message."""
    list_changed: anyio.Event = field(default_factory=anyio.Event)
    """Set when the server announces a changed list."""

    def forget(self) -> None:
        """Forget everything, for the next test."""
        self.asked.clear()
        self.answers_with = "accept"
        self.logged.clear()
        self.was_told = anyio.Event()
        self.list_changed = anyio.Event()

    async def on_log(self, params: LoggingMessageNotificationParams) -> None:
        self.logged.append(params)
        self.was_told.set()

    async def on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.list_changed.set()

    async def on_elicitation(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(f"elicitation: {params.message}")
        if self.answers_with != "accept":
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"dish": "soup", "portions": 2})

    async def on_sampling(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult:
        content = params.messages[0].content
        assert isinstance(content, TextContent)
        self.asked.append(f"sampling: {content.text} {params.max_tokens} {params.system_prompt}")
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text="42"), model="deep", stop_reason="endTurn"
        )

    async def on_roots(self, context: ClientRequestContext) -> ListRootsResult:
        self.asked.append("roots")
        return ListRootsResult(roots=[Root(uri="file:///home/ada"), Root(uri="file:///tmp", name="scratch")])  # type: ignore[arg-type]  # pydantic reads text as a URL


@contextmanager
def serving(*options: str, target: str = TOOLS) -> Iterator[str]:
    """Serve over HTTP in a process; yields the origin."""
    with processes.serving("-m", "bridge", "serve", "--transport", "http", "--port", "0", *options, target) as server:
        yield server.origin


@asynccontextmanager
async def connected(route: Route, origin: str, *options: str, target: str = TOOLS) -> AsyncIterator[Counterpart]:
    """Connect the official client by a route; over stdio it starts a server of its own with the options."""
    counterpart = Counterpart(route)
    with TemporaryFile("w") as log:
        match route.transport:
            case "stdio":
                program, *arguments = forks.command("-m", "bridge", "serve", *options, target)
                server: Any = stdio_client(
                    StdioServerParameters(command=program, args=arguments, cwd=processes.ROOT), errlog=log
                )
            case "sse" | "trio-sse":
                server = sse_client(f"{origin}/sse")
            case _:
                server = f"{origin}/mcp"
        client = Client(
            server,
            mode=route.mode,
            read_timeout_seconds=DEADLINE_SECONDS,
            log_level="info",
            logging_callback=counterpart.on_log,
            message_handler=counterpart.on_message,
            elicitation_callback=counterpart.on_elicitation,
            sampling_callback=counterpart.on_sampling,
            list_roots_callback=counterpart.on_roots,
        )
        try:
            async with client:
                counterpart.client = client
                yield counterpart
        except* anyio.BrokenResourceError:
            # The SDK's client over SSE raises that where a message comes while it closes.
            assert route.is_sse
