"""Inspector: the servers of a page, and what happens between them and the page."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from bridge.inspector.configuration import GivenServer
from bridge.inspector.events import Events
from bridge.inspector.questions import Questions
from bridge.inspector.requests import Requests
from bridge.inspector.servers import InspectedServer, disabled_summary
from bridge.inspector.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from anyio.abc import TaskGroup

    from bridge.inspector.configuration import Configuration
    from bridge.inspector.questions import SamplingModel
    from bridge.types import Json


class Inspector:
    """State of the page. It belongs to the event loop that runs it.

    Args:
        servers: The servers; their names are unique.
        configuration: Reads and saves entries of servers that the page adds and changes.
        model: Chat model that proposes answers to sampling requests; None for answers by hand alone.

    Attributes:
        events: Everything that changes, for open pages.
        questions: Questions of the servers.
        traffic: Messages between this client and the servers.
        servers: The enabled servers by name.
        requests: Requests of the page, while the inspector runs.
    """

    requests: Requests
    _tasks: TaskGroup

    def __init__(
        self, servers: Iterable[GivenServer], *, configuration: Configuration, model: SamplingModel | None = None
    ) -> None:
        self.events = Events()
        self.questions = Questions(self.events.publish, model)
        self._model = model
        self.traffic = Traffic(lambda message: self.events.publish("message", message))
        self._configuration = configuration
        self._changing = anyio.Lock()
        self._given = {server.name: server for server in servers}
        self.servers: dict[str, InspectedServer] = {}
        for given in self._given.values():
            self._add(given)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to the servers during this block; the model is closed with them."""
        async with anyio.create_task_group() as tasks:
            self.requests = Requests(
                tasks, lambda request: self.events.publish("request", request, replaces=request["number"])
            )
            self._tasks = tasks
            for server in self.servers.values():
                tasks.start_soon(server.run)
            try:
                yield
            finally:
                self.events.close()
                tasks.cancel_scope.cancel()
                if self._model is not None:
                    with anyio.CancelScope(shield=True):
                        await self._model.aclose()

    def state(self) -> Json:
        """The whole state as JSON, for a page that is opened."""
        return {
            "servers": [
                self.servers[name].summary() if name in self.servers else disabled_summary(name) for name in self._given
            ],
            "file": self._configuration.path,
            "requests": self.requests.summaries(),
            "questions": self.questions.open_questions(),
            "messages": self.traffic.summaries(),
            "model": None if self._model is None else self._model.name,
        }

    def entries(self) -> dict[str, Json]:
        """Entries of all servers by name, as an ``mcp.json`` has them, with references that are not expanded."""
        return {name: given.entry for name, given in self._given.items()}

    async def put(self, name: str, entry: Json, *, is_saved: bool) -> None:
        """Add a server, or change one, which is started anew.

        Args:
            name: Name of the server.
            entry: Its entry, as in an ``mcp.json``.
            is_saved: Also write it to the file that the page was opened with.

        Raises:
            BridgeError: The entry is invalid, or the file cannot be written; nothing has changed then.
        """
        async with self._changing:
            present = self._given.get(name) or GivenServer(name=name, config=None)
            given, file_name = replace(present, entry=entry), present.saved_name or name
            if is_saved:
                given = replace(given, saved_name=file_name)
            if not present.differs_by_switch(entry):
                given = replace(given, config=None)
            if not given.is_disabled and given.config is None:
                read = partial(self._configuration.read, file_name, entry, is_saved=is_saved)
                config, origin = await to_thread.run_sync(read)
                given = replace(given, config=replace(config, name=name), origin=origin)
            if is_saved:
                await to_thread.run_sync(self._configuration.save, file_name, entry)
            if (running := self.servers.pop(name, None)) is not None:
                await running.stop()
            self._given[name] = given
            if (server := self._add(given)) is not None:
                self._tasks.start_soon(server.run)
            self.events.publish("state", self.state())

    def _add(self, given: GivenServer) -> InspectedServer | None:
        """Create the server; None for a disabled one."""
        if given.is_disabled or given.config is None:
            return None
        server = self.servers[given.name] = InspectedServer(
            given.config,
            given.origin,
            handlers=self.questions.handlers(given.name),
            on_change=self._publish_server,
            on_message=self.traffic.record,
        )
        return server

    def _publish_server(self, server: InspectedServer) -> None:
        if self.servers.get(server.name) is server:  # a stopped one has no place in the page
            self.events.publish("server", server.summary(), replaces=server.name)
