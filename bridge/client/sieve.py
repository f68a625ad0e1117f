"""Sieve: what the SDK's client reads from a server, with lists of tools taken out.

The SDK validates a page of a list as a whole, on the event loop: a page of 22 MB would stop every caller for seconds,
and one malformed tool would cost all the others. So the tools of a page go around it, and are validated in parts, by
the SDK's own rules; see `bridge.client.connection.tool_listing`. The stream also sees the answers that nobody waits for
any more, and those to the greeting.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from bridge.client.connection.requests import GreetingWriter
from bridge.text import short_repr

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from bridge.client.connection.session import Link
    from bridge.types import Json

LARGE_KEY = "io.github.mcp-toolbridge/large"
"""The key of a short answer under which a long result is found in `Link.large`."""
TAKEN_KEY = "io.github.mcp-toolbridge/taken"
"""The key of a page under which its tools are found in `Link.taken_tools`."""


class SiftedStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The stream that the SDK reads a server's messages from.

    Args:
        messages: The transport's own, with whatever it offers beside the messages.
        link: The connection; tools are taken out while its ``takes_tools`` is set.
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
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            if LARGE_KEY in item.message.result:
                attempt = self._link.large.pop(str(item.message.result[LARGE_KEY]), None)
                if attempt is not None and attempt.large_result is not None:
                    item.message.result, attempt.large_result = attempt.large_result, None
            if self._link.takes_tools:
                _take_tools(item.message.result, self._link)
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


def _take_tools(page: Json, link: Link) -> None:
    page.pop(TAKEN_KEY, None)  # a server has no say in that
    tools = page.get("tools")
    if isinstance(tools, list) and "content" not in page:
        key = len(link.taken_tools)
        link.taken_tools[key] = tools
        page["tools"], page[TAKEN_KEY] = [], key


def sift(page: Json, tools: list[Any], protocol_version: str) -> tuple[list[Any], list[str]]:
    """Tell the tools among some from what is none.

    Args:
        page: The page that lists them, without them.
        tools: Some of its tools.
        protocol_version: By whose rules.

    Returns:
        The tools, and for each of the others a sentence that names it and the reason.
    """
    if _problem(page, tools, protocol_version) is None:
        return tools, []
    kept: list[Any] = []
    malformed: list[str] = []
    for tool in tools:
        problem = _problem(page, [tool], protocol_version)
        if problem is None:
            kept.append(tool)
        else:
            malformed.append(f"{_shown(tool)} is malformed: {problem}")
    return kept, malformed


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
    return f"the tool {name!r}" if isinstance(name, str) and name else f"the tool {short_repr(tool)}"
