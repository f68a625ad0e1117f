"""A gateway in this process, a server behind it, and a caller in front of it that sees every round of a call."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from bridge.client import CallOptions, ClientHandlers, Connection, MemoryTransport, ServerConfig
from bridge.gateway import Gateway
from bridge.server import Server
from bridge.tools.questions import ElicitationAnswer
from bridge.tools.toolbox import ToolBox
from tests.server.tools import NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from bridge.tools.context import InvocationContext
    from bridge.types import Json

STATE_KEYS = [b"a key that two gateways share, with enough bytes"]
DEADLINE_SECONDS = 60
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}


@dataclass
class Journal:
    """Events of the server's tool, in order."""

    entries: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    cancelled: anyio.Event = field(default_factory=anyio.Event)

    def greeter(self) -> Any:
        """A tool that starts, asks a question, and ends."""

        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
            self.entries.append("began")
            try:
                answer = await context.elicit("Who are you?", NAME_FORM, key="who")
            except anyio.get_cancelled_exc_class():
                self.entries.append("cancelled")
                self.cancelled.set()
                raise
            except Exception as error:
                self.entries.append(f"refused: {error}")
                self.errors.append(error)
                raise
            self.entries.append("ended")
            return f"Hello {answer.content and answer.content['name']}"

        return made("greet", body)


def server_config(*tools: object, era: str = "legacy", name: str = "upstream", **settings: Any) -> ServerConfig:
    """Return the configuration of a server in this process, of that era."""
    server = Server(ToolBox(*tools), name=name)
    pin: Any = era
    return ServerConfig(name=name, transport=MemoryTransport(server), protocol=pin, **settings)


async def _accept(question: Any, context: InvocationContext) -> ElicitationAnswer:
    return ElicitationAnswer("accept", ACCEPTED["content"])  # type: ignore[arg-type]  # it is a mapping


@asynccontextmanager
async def caller(
    gateway: Gateway,
    *,
    era: str = "2026-07-28",
    can_be_asked: bool = True,
    handlers: ClientHandlers | None = None,
    state_keys: Sequence[bytes] = STATE_KEYS,
) -> AsyncIterator[Connection]:
    """Return a caller of a gateway, of that era."""
    server = Server(gateway.features, name="gateway", state_keys=state_keys)
    pin: Any = era
    config = ServerConfig(name="gateway", transport=MemoryTransport(server), protocol=pin)
    handlers = (handlers or ClientHandlers(elicitation=_accept)) if can_be_asked else None
    async with Connection(config, handlers=handlers) as connection:
        yield connection


@asynccontextmanager
async def between(
    *servers: ServerConfig,
    era: str = "2026-07-28",
    can_be_asked: bool = True,
    state_keys: Sequence[bytes] = STATE_KEYS,
    **options: Any,
) -> AsyncIterator[tuple[Gateway, Connection]]:
    """Open a gateway to the servers, and a caller of it; the block has a deadline."""
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(DEADLINE_SECONDS))
        gateway = await stack.enter_async_context(Gateway(servers, **options))
        connected = caller(gateway, era=era, can_be_asked=can_be_asked, state_keys=state_keys)
        yield gateway, await stack.enter_async_context(connected)


async def first_round(connection: Connection, name: str = "greet") -> Json:
    """Call, until the question arrives."""
    asked = await connection.call_tool(name, {}, options=CallOptions(hands_on_questions=True))
    assert asked["resultType"] == "input_required", asked
    return asked


async def next_round(connection: Connection, asked: Json, answer: Any = ACCEPTED, name: str = "greet") -> Json:
    """Return a handler that gives this answer to every question."""
    return await connection.call_tool(
        name,
        {},
        options=CallOptions(
            hands_on_questions=True,
            input_responses=dict.fromkeys(asked["inputRequests"], answer),
            request_state=asked["requestState"],
        ),
    )


def text_of(result: Json) -> str:
    """Return the text of a result."""
    (block,) = result["content"]
    return str(block["text"])
