"""One server of the inspector: its state, and its tools, resources, prompts and skills."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import to_json

from bridge.client.connection.connection import Connection
from bridge.client.connection.list_methods import EVENTS, PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS
from bridge.client.connection.status import ConnectionState
from bridge.client.transports.http import HttpTransport
from bridge.errors import ServerError, WireError
from bridge.inspector.snippets import HttpAddress
from bridge.service.memory.chat_memory import estimate_tokens
from bridge.service.messages import SystemMessage
from bridge.types import FEATURES
from bridge.wire.prompts import completion_from_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.list_methods import ListMethod
    from bridge.client.connection.status import MessageDirection
    from bridge.inspector.snippets import Origin
    from bridge.types import Feature, Json

MAX_WATCHED = 100
"""Maximum resources of a server that the page is subscribed to."""
MAX_CHANGES = 100
"""Maximum announced changes of a server that are kept."""

_DEFINITION_KEYS = ("name", "description", "inputSchema")


@dataclass(slots=True, kw_only=True)
class Offers:
    """Everything that a server lists, each item as MCP's JSON."""

    tools: list[Json] = field(default_factory=list)
    resources: list[Json] = field(default_factory=list)
    templates: list[Json] = field(default_factory=list)
    prompts: list[Json] = field(default_factory=list)
    skills: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Lists that failed, and items that are malformed or refused by pins, each as a sentence."""


class InspectedServer:
    """A server, its connection, and its lists.

    Args:
        config: The server.
        origin: The target that it comes from.
        handlers: Handlers of its questions.
        on_change: Called when its state or its lists have changed.
        on_message: Called with each JSON-RPC message.
    """

    def __init__(
        self,
        config: ServerConfig,
        origin: Origin,
        *,
        handlers: ClientHandlers,
        on_change: Callable[[InspectedServer], None],
        on_message: Callable[[str, MessageDirection, str], None],
    ) -> None:
        self.config = config
        self.name = config.name
        self.origin = origin
        self.offers = Offers()
        self.connection = Connection(config, handlers=handlers)
        self._awaited: str | None = None
        self._watched: dict[str, int] = {}
        self._changes: deque[Json] = deque(maxlen=MAX_CHANGES)
        self._on_change = on_change
        self._stopped = anyio.Event()
        self._ended = anyio.Event()
        self._wanted = anyio.Event()
        self.connection.on_message(lambda direction, text: on_message(config.name, direction, text))
        self.connection.on_state(self._state_changed)
        self.connection.on_updated(self._updated)
        for feature in FEATURES:
            self.connection.on_list_changed(feature, partial(self._list_changed, feature))

    async def run(self) -> None:
        """Connect, and list whenever the lists may have changed; closes the connection when it is cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow)
                await self._stopped.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.connection.aclose()
            self._ended.set()

    async def _follow(self) -> None:
        await self.connection.open(wait=False)
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            if self.connection.state is ConnectionState.READY:
                self.offers = await self._listed()
                self._on_change(self)

    async def stop(self) -> None:
        """End `run`, and wait until the connection is closed."""
        self._stopped.set()
        await self._ended.wait()

    def refresh(self) -> None:
        """Request new lists."""
        self._wanted.set()

    async def restart(self) -> None:
        """Close the connection, and open it again; a process is started anew."""
        await self.connection.aclose()
        await self.connection.open(wait=False)

    async def watch(self, uri: str) -> None:
        """Subscribe to a resource; its updates are in the summary.

        Raises:
            ServerError: The server is unavailable, or refuses.
        """
        if uri not in self._watched and len(self._watched) >= MAX_WATCHED:
            raise WireError(f"{MAX_WATCHED} resources are watched already; end one of them")
        await self.connection.watch(uri)
        self._watched.setdefault(uri, 0)
        self._on_change(self)

    def unwatch(self, uri: str) -> None:
        """End a subscription."""
        if self._watched.pop(uri, None) is not None:
            self.connection.unwatch(uri)
            self._on_change(self)

    def _updated(self, uri: str) -> None:
        if uri in self._watched:
            self._watched[uri] += 1
            self._note("resource updated", uri)

    def _list_changed(self, feature: Feature) -> None:
        self._note("list changed", feature)
        self.refresh()

    def _note(self, what: str, subject: str) -> None:
        self._changes.append({"at": time(), "what": what, "subject": subject})
        self._on_change(self)

    def tool(self, name: object) -> Json | None:
        """A listed tool; None if there is none of that name."""
        return next((tool for tool in self.offers.tools if tool["name"] == name), None)

    def resource(self, uri: object) -> Json | None:
        """A listed resource; None if there is none of that URI."""
        return next((resource for resource in self.offers.resources if resource["uri"] == uri), None)

    @property
    def address(self) -> HttpAddress | None:
        """The address of the server over streamable HTTP; None for another transport."""
        transport = self.config.transport
        if not isinstance(transport, HttpTransport) or self.connection.status().transport != "http":
            return None
        return HttpAddress(transport.redacted(), tuple(transport.headers))

    async def completed(self, params: Json) -> list[str]:
        """Values that the server offers for an argument of a prompt or a variable of a template.

        Args:
            params: Those of ``completion/complete``.
        """
        info = self.connection.server_info
        if info is None or "completions" not in info.capabilities:
            return []
        try:
            completion = completion_from_wire(await self.connection.request("completion/complete", params))
        except (ServerError, WireError):
            return []  # the form works without, and the traffic has the answer
        return list(completion.values)

    def summary(self) -> Json:
        """State and lists as JSON for the page."""
        status = self.connection.status()
        info, error = status.server_info, status.last_error
        return {
            "name": self.name,
            "state": status.state.value,
            "transport": status.transport,
            "address": status.address,
            "era": status.era,
            "protocolVersion": status.protocol_version,
            "info": None
            if info is None
            else {
                "name": info.name,
                "title": info.title,
                "version": info.version,
                "instructions": info.instructions,
                "capabilities": dict(info.capabilities),
            },
            "error": None if error is None else str(error),
            "problems": self.offers.problems,
            "awaited": self._awaited,
            "watched": self._watched,
            "changes": list(self._changes),
            "tools": [{**tool, "tokens": definition_tokens(tool)} for tool in self.offers.tools],
            "resources": self.offers.resources,
            "templates": self.offers.templates,
            "prompts": self.offers.prompts,
            "skills": self.offers.skills,
            "events": self.offers.events,
        }

    def _state_changed(self, state: ConnectionState) -> None:
        if state is ConnectionState.READY:
            self.refresh()
        self._on_change(self)

    async def _listed(self) -> Offers:
        offers, info = Offers(), self.connection.server_info
        capabilities = {} if info is None else info.capabilities
        if "tools" in capabilities:
            await self._list_tools(offers)
        if "resources" in capabilities:
            offers.resources = await self._items(RESOURCES, offers)
            offers.templates = await self._items(TEMPLATES, offers)
            entries = await self._items(SKILLS, offers)
            offers.skills = [{**each, "description": each["frontmatter"].get("description")} for each in entries]
        if "prompts" in capabilities:
            offers.prompts = await self._items(PROMPTS, offers)
        offers.events = await self._items(EVENTS, offers)
        return offers

    async def _list_tools(self, offers: Offers) -> None:
        try:
            with self._awaiting(TOOLS):
                listing = await self.connection.list_tools()
        except ServerError as error:
            offers.problems.append(str(error))
            return
        offers.tools = [tool for tool in listing.tools if self.config.admits(tool["name"])]
        offers.problems += [*listing.malformed, *listing.refused]

    async def _items(self, method: ListMethod, offers: Offers) -> list[Json]:
        """List items other than tools."""
        try:
            with self._awaiting(method):
                listed = await self.connection.list_items(method)
        except ServerError as error:
            offers.problems.append(str(error))
            return []
        offers.problems += [*listed.malformed, *listed.refused.values()]
        admits = self.config.admits_prompt if method is PROMPTS else self.config.admits_resource
        return [item for item in listed.items if admits(item[method.key])]

    @contextmanager
    def _awaiting(self, method: ListMethod) -> Iterator[None]:
        """Name the list in the summary: a server whose answer cannot be read seems to have nothing otherwise."""
        self._awaited = method.method
        self._on_change(self)
        try:
            yield
        finally:
            self._awaited = None


def disabled_summary(name: str) -> Json:
    """Summary of a server that is disabled."""
    unknown = ("transport", "address", "era", "protocolVersion", "info", "error", "awaited")
    return {
        "name": name,
        "state": "disabled",
        **dict.fromkeys(unknown),
        "watched": {},
        "changes": [],
        **asdict(Offers()),
    }


def definition_tokens(tool: Json) -> int:
    """Estimated tokens of a tool's definition, as a model reads it."""
    return estimated_tokens({key: tool[key] for key in _DEFINITION_KEYS if key in tool})


def estimated_tokens(value: Any) -> int:
    """Estimated tokens of JSON data."""
    return estimate_tokens(SystemMessage(to_json(value).decode()))
