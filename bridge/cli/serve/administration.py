"""Administration of ``bridge serve``: the state, the actions and the page of the admin port."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import bridge
from bridge.admin.actions import AdminActions
from bridge.admin.app import admin_app
from bridge.admin.processes import AdminProcesses
from bridge.admin.state import AdminState
from bridge.server.http.host_origin import AllowedHosts
from bridge.telemetry.activity import Activity

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from bridge.cli.serve.options import ServeOptions
    from bridge.cli.targets.serving import Serving
    from bridge.hosting.child_process import InheritedSockets, WorkerChannel
    from bridge.server.auth import Auth
    from bridge.server.http.app import BridgeApp
    from bridge.server.http.probes import HealthState
    from bridge.server.server import Server


class Administration:
    """Administration of one process.

    Args:
        operators: Verifies the keys of operators.
        options: The options of the command.
    """

    def __init__(self, operators: Auth, options: ServeOptions) -> None:
        self._operators, self._options = operators, options
        self._processes: AdminProcesses | None = None
        self.activity = Activity()
        """Activity of the server; for `bridge.cli.serve.telemetry_options.telemetry_enabled`."""

    def app(
        self,
        name: str,
        app: BridgeApp,
        server: Server,
        serving: Serving,
        operations: HealthState,
        auth: Auth | None,
        inheritance: InheritedSockets | None,
        worker: WorkerChannel | None,
    ) -> ASGIApp:
        """Return the application of the admin port.

        Args:
            name: Name of the server.
            app: The application that is served.
            server: Its server.
            serving: What it serves.
            operations: Its readiness.
            auth: Authentication of its callers; None for none.
            inheritance: Sockets from a parent process; None in the first one.
            worker: Channel to the other workers; None if there are none.
        """
        state = AdminState(
            name=name,
            version=bridge.__version__,
            app=app,
            server=server,
            operations=operations,
            activity=self.activity,
            auth=auth,
        )
        actions = AdminActions(
            app=app,
            server=server,
            activity=self.activity,
            operations=operations,
            restart=serving.restart or _restart_nothing,
            drain_pid=os.getpid() if inheritance is None else os.getppid(),
        )
        self._processes = AdminProcesses(state, actions, worker)
        chosen = self._options.operations
        hosts = AllowedHosts(chosen.admin_host, self._options.allowed_hosts, self._options.allowed_origins)
        return admin_app(self._processes, self._operators, hosts)

    def opened(self) -> None:
        """Answer other workers from now on; called in the event loop once requests are served."""
        if self._processes is not None:
            self._processes.opened()


async def _restart_nothing(_: str) -> bool:
    return False
