"""Requests of the handshake, as recorded by an observer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge.client import Connection, ReconnectPolicy, StdioTransport
from bridge.errors import OutcomeUnknownError, ServerUnavailableError
from bridge.telemetry.conventions import CLIENT_OPERATION_DURATION
from bridge.telemetry.current import enabled
from bridge.telemetry.observer import Observer
from tests.client.clock import Clock
from tests.client.conftest import opened, python_config
from tests.client.connection.test_connection import config_of
from tests.client.endpoint import MODERN, endpoint, error_of
from tests.client.scripted import scripted_config
from tests.telemetry.measured import Measured

if TYPE_CHECKING:
    from starlette.responses import Response

    from bridge.types import Json
    from tests.client.conftest import RemoteServer

pytestmark = pytest.mark.anyio

DISCOVER, INITIALIZE = "server/discover", "initialize"


def asked(measured: Measured) -> list[tuple[str, str | None, int]]:
    """Return the requests of the handshake, with the types of their errors, and their numbers."""
    counts = measured.counts(CLIENT_OPERATION_DURATION)
    return sorted(((labels["mcp.method.name"], labels.get("error.type"), count) for labels, count in counts), key=repr)


@pytest.mark.parametrize(
    ("route", "pin", "method"),
    [
        ("http", "auto", DISCOVER),
        ("http", "2026-07-28", DISCOVER),
        ("http", "legacy", INITIALIZE),
        ("stdio", "auto", DISCOVER),
        ("stdio", "2026-07-28", DISCOVER),
        ("stdio", "legacy", INITIALIZE),
        ("sse", "auto", INITIALIZE),
    ],
)
async def test_what_greets_a_server_is_counted_once(route: str, pin: Any, method: str, steady: RemoteServer) -> None:
    measured = Measured()
    with enabled(Observer(measured.instruments)):
        async with opened(config_of(route, steady, protocol=pin)) as connection:
            await connection.call_tool("add", {"a": 1, "b": 2})
    assert asked(measured) == sorted([(method, None, 1), ("tools/call", None, 1)])
    by_method = {labels["mcp.method.name"]: labels for labels, _ in measured.counts(CLIENT_OPERATION_DURATION)}
    greeting, call = by_method[method], by_method["tools/call"]
    where = {"bridge.upstream", "network.transport", "network.protocol.name", "server.address", "server.port"}
    assert {key: greeting[key] for key in where & greeting.keys()} == {key: call[key] for key in where & call.keys()}


async def test_a_server_of_the_older_era_is_asked_twice_and_fails_once() -> None:
    measured = Measured()
    with enabled(Observer(measured.instruments)):
        async with opened(scripted_config([])):
            pass
    assert asked(measured) == [(INITIALIZE, None, 1), (DISCOVER, "-32601", 1)]


async def test_a_server_of_the_older_era_that_comes_back_is_not_asked_for_the_newer_again() -> None:
    config, measured = scripted_config([]), Measured()
    assert isinstance(config.transport, StdioTransport)
    ending = '    if method == "tools/call":\n        sys.exit()\n'
    code = config.transport.args[-1].replace("    if method ==", f"{ending}    if method ==")
    with enabled(Observer(measured.instruments)):
        async with opened(python_config(code)) as connection:
            with pytest.raises(OutcomeUnknownError):
                await connection.call_tool("any", {})
            await connection.list_tools()
            assert connection.status().connects == 2
    assert [each for each in asked(measured) if each[0] in {DISCOVER, INITIALIZE}] == [
        (INITIALIZE, None, 2),
        (DISCOVER, "-32601", 1),
    ]


async def test_a_server_that_refuses_to_be_greeted_is_a_failure_with_its_code() -> None:
    async def refuse(message: Json) -> Response:
        return error_of(message["id"], -32000, "not today")

    measured = Measured()
    with (
        enabled(Observer(measured.instruments)),
        endpoint("legacy", initialize=refuse) as server,
        pytest.raises(ServerUnavailableError),
    ):
        await Connection(server.config()).open()
    assert asked(measured) == [(INITIALIZE, "-32000", 1)]


async def test_a_server_that_ends_instead_of_answering_is_a_failure() -> None:
    measured = Measured()
    config = python_config("import sys; sys.stdin.readline()", protocol="legacy")
    with enabled(Observer(measured.instruments)), pytest.raises(ServerUnavailableError):
        await Connection(config).open()
    ((method, error_type, count),) = asked(measured)
    assert (method, count) == (INITIALIZE, 1)
    assert error_type is not None


@pytest.mark.parametrize(("era", "method"), [("legacy", "ping"), (MODERN, DISCOVER)])
async def test_an_idle_server_that_is_asked_whether_it_is_there_is_counted(era: str, method: str) -> None:
    clock, measured = Clock(), Measured()
    reconnect = ReconnectPolicy(wait=clock.wait)
    with enabled(Observer(measured.instruments)), endpoint(era) as server:
        async with Connection(server.config(), reconnect=reconnect):
            before = dict.fromkeys([INITIALIZE if era == "legacy" else DISCOVER], 1)
            await clock.elapse(reconnect.health_check_seconds)
            await clock.sleeping(reconnect.health_check_seconds)
            counts: dict[str, int] = {}
            for name, error_type, count in asked(measured):
                assert error_type is None
                counts[name] = counts.get(name, 0) + count
    assert counts == before | {method: before.get(method, 0) + 1}
