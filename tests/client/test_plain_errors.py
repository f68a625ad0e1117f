"""A failure to open servers is one plain error, never a group, with all details."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest

import bridge
from bridge.client import Connection, HttpTransport, McpToolProvider, ServerConfig, StdioTransport
from bridge.errors import ServerUnavailableError
from bridge.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

DEAD = "http://127.0.0.1:9/mcp"
LAST_WORDS = "import sys; print('no key', file=sys.stderr); sys.exit(3)"

SERVERS: dict[str, Any] = {
    "http": HttpTransport(DEAD, kind="http"),
    "sse": HttpTransport(DEAD, kind="sse"),
    "guessed": HttpTransport(DEAD),
    "no program": StdioTransport("no-such-program"),
    "a child that ends": StdioTransport(sys.executable, args=("-c", LAST_WORDS)),
}
PROTOCOLS = pytest.mark.parametrize("protocol", ["auto", "legacy", "2026-07-28"])


def config(kind: str, protocol: Any = "auto", name: str = "dead") -> ServerConfig:
    is_sse = kind == "sse"
    return ServerConfig(name=name, transport=SERVERS[kind], required=True, protocol="legacy" if is_sse else protocol)


def told(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and its traceback as text."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def check(error: ServerUnavailableError) -> None:
    assert not [each for each in told(error) if isinstance(each, BaseExceptionGroup)]
    assert str(error).startswith("server 'dead")


@PROTOCOLS
@pytest.mark.parametrize("kind", SERVERS)
async def test_of_a_connection(kind: str, protocol: str) -> None:
    with pytest.raises(ServerUnavailableError) as caught:
        await Connection(config(kind, protocol)).open()
    check(caught.value)


@pytest.mark.parametrize("kind", SERVERS)
async def test_of_a_provider_and_a_gateway_whose_servers_all_fail_at_once(kind: str) -> None:
    servers = [config(kind), *(config(kind, name=f"dead too {number}") for number in range(3))]
    for whole in (McpToolProvider(servers), Gateway(servers)):
        with pytest.raises(ServerUnavailableError) as caught:
            await whole.open()
        check(caught.value)


@pytest.mark.parametrize("kind", SERVERS)
async def test_of_a_program_without_an_event_loop(kind: str) -> None:
    def program() -> None:
        with bridge.connect(config(kind)):
            raise AssertionError

    with pytest.raises(ServerUnavailableError) as caught:
        await anyio.to_thread.run_sync(program)
    check(caught.value)


async def test_a_child_is_told_with_its_command_its_last_words_and_its_exit_code() -> None:
    with pytest.raises(ServerUnavailableError) as caught:
        await Connection(config("a child that ends")).open()
    failure = caught.value.failure
    assert (failure.server, failure.phase, failure.exit_code) == ("dead", "starting", 3)
    assert failure.last_words == ("no key",)
    assert failure.address
    assert failure.address in str(caught.value)
