"""Inspector: the servers of a page, and what happens between them and the page."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from bridge.inspector.events import Events
from bridge.inspector.questions import Questions
from bridge.inspector.requests import Requests
from bridge.inspector.servers import InspectedServer
from bridge.inspector.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.inspector.questions import SamplingModel
    from bridge.inspector.snippets import Origin
    from bridge.types import Json


class Inspector:
    """State of the page. It belongs to the event loop that runs it.

    Args:
        servers: The servers and the targets that they come from; their names are unique.
        model: Chat model that proposes answers to sampling requests; None for answers by hand alone.

    Attributes:
        events: Everything that changes, for open pages.
        questions: Questions of the servers.
        traffic: Messages between this client and the servers.
        servers: The servers by name.
        requests: Requests of the page, while the inspector runs.
    """

    requests: Requests

    def __init__(self, servers: Iterable[tuple[ServerConfig, Origin]], *, model: SamplingModel | None = None) -> None:
        self.events = Events()
        self.questions = Questions(self.events.publish, model)
        self._model = model
        self.traffic = Traffic(lambda message: self.events.publish("message", message))
        self.servers: Mapping[str, InspectedServer] = {
            config.name: InspectedServer(
                config,
                origin,
                handlers=self.questions.handlers(config.name),
                on_change=lambda server: self.events.publish("server", server.summary(), replaces=server.name),
                on_message=self.traffic.record,
            )
            for config, origin in servers
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to the servers during this block; the model is closed with them."""
        async with anyio.create_task_group() as tasks:
            self.requests = Requests(
                tasks, lambda request: self.events.publish("request", request, replaces=request["number"])
            )
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
            "servers": [server.summary() for server in self.servers.values()],
            "requests": self.requests.summaries(),
            "questions": self.questions.open_questions(),
            "messages": self.traffic.summaries(),
            "model": None if self._model is None else self._model.name,
        }
