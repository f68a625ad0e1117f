"""A trial: one fault over one route, with calls before, during and after it, and the check of their results."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio

from bridge.client import HttpTransport, McpToolProvider, ReconnectPolicy, ServerConfig, StdioTransport
from tests.client import reports as reporting
from tests.client.conftest import RemoteServer
from tests.client.http_client import sent_by
from tests.faults.holdings import Holdings, leaked_processes
from tests.faults.network import Network
from tests.faults.table import Outcome
from tests.faults.traffic import Traffic
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bridge.client.config.servers import ProtocolPin
    from tests.client.reports import Reports

SERVED = "tests/faults/served.py:TOOLS"
CROOKED = ("-m", "tests.faults.crooked")
RECOVERY_SECONDS = 60
TRIAL_SECONDS = 240
RECONNECT = ReconnectPolicy(
    first_delay_seconds=0.05, max_delay_seconds=0.5, health_check_seconds=1, health_timeout_seconds=3
)


class Route(Enum):
    """A route to the server: the transport, and the protocol version."""

    STDIO = ("stdio", "2026-07-28")
    STDIO_HANDSHAKE = ("stdio (handshake)", "legacy")
    HTTP = ("HTTP", "2026-07-28")
    HTTP_HANDSHAKE = ("HTTP (handshake)", "legacy")
    SSE = ("SSE", "legacy")

    def __str__(self) -> str:
        return self.value[0]

    @property
    def pin(self) -> ProtocolPin:
        """The protocol version."""
        return self.value[1]


STDIO = (Route.STDIO, Route.STDIO_HANDSHAKE)
NETWORK = (Route.HTTP, Route.HTTP_HANDSHAKE, Route.SSE)
ROUTES = STDIO + NETWORK


@dataclass(slots=True, kw_only=True)
class Stage:
    """The server, the network and the provider of a trial."""

    provider: McpToolProvider
    traffic: Traffic
    reports: Reports
    route: Route
    remote: RemoteServer | None = None
    network: Network | None = None

    async def ask(self, tool: str, **arguments: Any) -> Any:
        """Call a tool outside of the traffic; it must succeed."""
        result = await self.provider.call(tool, arguments)
        assert not result.is_error, result.text
        return result.structured_content and result.structured_content["result"]

    async def kill(self) -> None:
        """Kill the server by SIGKILL; unless it is a child, it has to be started again."""
        if self.remote is not None:
            self.remote.kill()
        else:
            os.kill(await self.ask("pid"), signal.SIGKILL)

    async def restart(self) -> None:
        """Start a killed server again, at the same port; a child is started by its owner."""
        if self.remote is not None:
            await self.remote.start()


class Trials:
    """Runs trials, and keeps their results.

    Args:
        folder: Folder for the journals.
        by_client: Send requests over streamable HTTP by the general HTTP client.
    """

    def __init__(self, folder: Path, *, by_client: bool) -> None:
        self.outcomes: list[Outcome] = []
        self._folder = folder
        self._by_client = by_client

    @asynccontextmanager
    async def trying(self, fault: str, route: Route, **options: Any) -> AsyncIterator[Stage]:
        """Start a fault and end it, in this block; calls continue meanwhile.

        Args:
            fault: Name of the fault in the table.
            route: Route to the server.
            options: See `_staged`.
        """
        marker = f"faults-{uuid4()}"
        before = Holdings.now()
        journal = self._folder / f"{marker}.journal"
        with anyio.fail_after(TRIAL_SECONDS):
            async with _staged(route, journal, marker, by_client=self._by_client, **options) as stage:
                traffic = stage.traffic
                assert await traffic.until_answered(RECOVERY_SECONDS), traffic.failed
                assert not traffic.failed
                async with traffic.going_on():
                    await traffic.more()
                    yield stage
                survived = await traffic.until_answered(RECOVERY_SECONDS)
            processes = await leaked_processes(marker)
            tasks, sockets = await before.leaked_tasks(), await before.leaked_sockets()
        self.outcomes.append(
            Outcome(
                fault=fault,
                route=str(route),
                survived=int(survived),
                calls=len(traffic.endings),
                answered=len(traffic.answered),
                failed=len(traffic.failed),
                lost=len(traffic.lost),
                run_twice=len(traffic.run_twice),
                untrue=len(traffic.untrue()),
                leaked_processes=len(processes),
                leaked_tasks=len(tasks),
                leaked_sockets=len(sockets),
            )
        )
        assert survived, f"no answer afterwards: {list(traffic.failed.values())[-3:]}"
        assert (traffic.lost, traffic.run_twice, traffic.untrue()) == ([], [], []), traffic.failed
        assert (processes, tasks, sockets) == ([], [], [])


@asynccontextmanager
async def _staged(
    route: Route,
    journal: Path,
    marker: str,
    *,
    by_client: bool,
    child: tuple[str, ...] = (),
    auth: Any = None,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """Start a server, a proxy in front of it unless it is a child, a provider of its tools, and callers.

    Args:
        route: Route to the server.
        journal: File to which the server writes each run.
        marker: Text in the environment of a child and of all its descendants.
        by_client: As for `Trials`.
        child: Arguments of Python for a child other than bridge's server.
        auth: Signs HTTP requests.
        settings: Settings of the server's configuration.
    """
    settings |= {"name": "server", "protocol": route.pin}
    async with reporting.listening() as reports:
        if route in STDIO:
            words = child or ("-m", "bridge", "serve", SERVED)
            transport = StdioTransport(sys.executable, args=words, cwd=str(ROOT), env={"FAULTS": marker})
            config = ServerConfig(transport=transport, **settings)
            async with McpToolProvider(config, reconnect=RECONNECT) as provider:
                traffic = Traffic(provider, journal)
                yield Stage(provider=provider, traffic=traffic, reports=reports, route=route)
            return
        remote = RemoteServer(SERVED)
        await remote.start()
        try:
            network = Network(remote.port)
            async with network.running():
                kind = "sse" if route is Route.SSE else "http"
                path = "sse" if route is Route.SSE else "mcp"
                address = HttpTransport(f"http://127.0.0.1:{network.port}/{path}", kind=kind)  # type: ignore[arg-type]  # one of the two
                config = ServerConfig(transport=address, **settings)
                if by_client and route is not Route.SSE:
                    config = sent_by(config, own=False)
                async with McpToolProvider(config, reconnect=RECONNECT, auth=auth and (lambda _: auth)) as provider:
                    traffic = Traffic(provider, journal)
                    yield Stage(
                        provider=provider,
                        traffic=traffic,
                        reports=reports,
                        route=route,
                        remote=remote,
                        network=network,
                    )
        finally:
            remote.kill()
