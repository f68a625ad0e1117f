"""Sieve: a server's lists of tools without what is no tool.

The SDK judges a page of a list as a whole, and one malformed tool would cost all the others. So a sieve stands in the
stream that the SDK reads from. It is closed to nothing until a page has been refused; from then on it looks at each
page of that server, tool by tool, with the SDK's own rules. It sees, too, the answers that nobody waits for any more,
and those to the greeting.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from bridge.client.greeting import GreetingWriter
from bridge.tools.json_reading import abridged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from bridge.client.link import Link
    from bridge.tools.json_reading import Json

MALFORMED_KEY = "io.github.mcp-toolbridge/malformed"
"""Where a page that went through a sieve has what was left out of it: sentences that name the tools and the reasons."""


class SiftedStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The stream that the SDK reads a server's messages from.

    Args:
        messages: The transport's own, with whatever it offers beside the messages.
        link: The connection; its ``sifts_tools`` switches the sieve on.
    """

    def __init__(self, messages: Any, link: Link) -> None:
        self._messages = messages
        self._link = link

    @property
    def last_context(self) -> Any:
        """The context that the last message was sent in, where the transport keeps it."""
        return getattr(self._messages, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        item = await self._messages.receive()
        if self._link.greeting is not None and isinstance(item, SessionMessage):
            self._link.greeting.received(item.message)
        if self._link.abandoned is not None and isinstance(item, SessionMessage):
            message = item.message
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._link.abandoned.answered(message.id)
        if self._link.sifts_tools and isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            _sift(item.message.result, self._link.protocol_version)
        return item  # type: ignore[no-any-return]  # it is what the transport gives

    async def aclose(self) -> None:
        """Read no more."""
        self._link.is_deaf = True
        await self._messages.aclose()


@asynccontextmanager
async def sifted(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], link: Link
) -> AsyncIterator[tuple[SiftedStream, Any]]:
    """A transport of the SDK with a sieve before what it reads."""
    async with transport as (messages, writer):
        yield SiftedStream(messages, link), writer if link.greeting is None else GreetingWriter(writer, link)


def _sift(page: Json, protocol_version: str) -> None:
    page.pop(MALFORMED_KEY, None)  # nobody else has a say in that
    tools = page.get("tools")
    if not isinstance(tools, list) or _problem(page, [], protocol_version) is not None:
        return  # no list of tools, or one that is wrong in itself
    kept: list[Any] = []
    malformed: list[str] = []
    for tool in tools:
        problem = _problem(page, [tool], protocol_version)
        if problem is None:
            kept.append(tool)
        else:
            malformed.append(f"{_shown(tool)} is malformed: {problem}")
    if malformed:
        page["tools"], page[MALFORMED_KEY] = kept, malformed


def _problem(page: Json, tools: list[Any], protocol_version: str) -> str | None:
    """Why a page with these tools is none; None where it is one."""
    try:
        validate_server_result("tools/list", protocol_version, {**page, "tools": tools})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"][2:]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    return None


def _shown(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return f"the tool {name!r}" if isinstance(name, str) and name else f"the tool {abridged(tool)}"
