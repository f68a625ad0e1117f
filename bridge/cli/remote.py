"""Tools behind a URL or a command, listed and called over one connection of the official SDK's client."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click
from mcp import Client, MCPError, StdioServerParameters

from bridge.cli.failures import CommandError
from bridge.cli.targets import UrlTarget
from bridge.client.redaction import redact_command, redact_url
from bridge.errors import BridgeError, UnknownToolError
from bridge.wire import result_from_wire, tool_from_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bridge.cli.targets import RemoteTarget
    from bridge.tools.model import ToolExecutionResult, ToolSpecification

_T = TypeVar("_T")
_CONNECTION_CLOSED = -32000
_MAX_PAGES = 10_000


def list_tools(target: RemoteTarget, timeout_seconds: float) -> list[ToolSpecification]:
    """The tools of a server, all pages, in its order.

    Args:
        target: The server.
        timeout_seconds: How long connecting and listing may take together.

    Raises:
        CommandError: The server cannot be reached, does not answer in time, or answers something else.
    """
    return _connected(target, timeout_seconds, _listed)


def call_tool(
    target: RemoteTarget,
    name: str,
    arguments_for: Callable[[ToolSpecification], Mapping[str, Any]],
    timeout_seconds: float,
) -> ToolExecutionResult:
    """Call one tool of a server.

    Args:
        target: The server.
        name: The tool's name.
        arguments_for: Gives the arguments, once the tool's schema is known.
        timeout_seconds: How long everything may take together.

    Raises:
        UnknownToolError: The server has no such tool.
        CommandError: As for `list_tools`.
    """

    async def call(client: Client) -> ToolExecutionResult:
        tools = {tool.name: tool for tool in await _listed(client)}
        if name not in tools:
            raise UnknownToolError(name, get_close_matches(name, tools, n=3))
        result = await client.call_tool(name, dict(arguments_for(tools[name])))
        return result_from_wire(_plain(result))

    return _connected(target, timeout_seconds, call)


async def _listed(client: Client) -> list[ToolSpecification]:
    found: list[ToolSpecification] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [tool_from_wire(_plain(tool)) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise CommandError(f"the list of tools does not end within {_MAX_PAGES} pages")


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return plain


def _connected(target: RemoteTarget, timeout_seconds: float, work: Callable[[Client], Awaitable[_T]]) -> _T:
    """Run some work over a connection, and tell in one error what went wrong, however it was wrapped."""

    async def connect() -> _T:
        with anyio.fail_after(timeout_seconds):
            async with Client(_server(target)) as client:
                return await work(client)

    try:
        return anyio.run(connect)
    except TimeoutError as error:
        raise CommandError(f"{_shown(target)} did not answer within {timeout_seconds:g} seconds") from error
    except Exception as error:
        leaves = list(_leaves(error))
        for leaf in leaves:
            if isinstance(leaf, BridgeError | click.ClickException):
                raise leaf from None
        raise CommandError(f"{_shown(target)}: {_reason(leaves[0], target)}") from error


def _server(target: RemoteTarget) -> str | StdioServerParameters:
    if isinstance(target, UrlTarget):
        return target.url
    command, *arguments = target.command
    return StdioServerParameters(command=command, args=arguments, env=dict(os.environ))


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _reason(error: Exception, target: RemoteTarget) -> str:
    if isinstance(error, MCPError):
        if error.code == _CONNECTION_CLOSED and not isinstance(target, UrlTarget):
            return "the server ended before it answered"
        return f"{error.message} ({error.code})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _shown(target: RemoteTarget) -> str:
    return redact_url(target.url).shown if isinstance(target, UrlTarget) else repr(redact_command(target.command).shown)
