"""Server: a ToolBox as an MCP server, for both eras of the protocol and every transport."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from bridge.errors import DefinitionError
from bridge.exports import public
from bridge.protocol.messages import MalformedMessageError, malformed_message_error, read_message
from bridge.server.auth.identity import access_of_request, caller_of_request
from bridge.server.connection import StreamConnection
from bridge.server.core import ServerCore
from bridge.server.exchange import LocalOrigin
from bridge.server.features import Features, FeatureSource, namespaced
from bridge.server.lifespans import lifespans_open
from bridge.server.observed import dispatch_of
from bridge.text import nearest, short_repr

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from starlette.applications import Starlette

    from bridge.protocol.messages import MessageId
    from bridge.server.composition.own_boxes import OwnBoxes
    from bridge.server.dispatch import Dispatch
    from bridge.server.http.routes import OwnRoute
    from bridge.server.options import HttpOptions, ServerOptions
    from bridge.server.profiles import Profile
    from bridge.tools.caller import Caller

_Endpoint = TypeVar("_Endpoint", bound="Callable[..., Any]")


class Server(ServerCore, FeatureSource):
    """An MCP server of a ToolBox.

    Args:
        features: A ToolBox, whose changes are announced to clients, or anything that a ToolBox takes. None for none, if
            it mounts others.
        name: Name of the server.
        version: Version of the server; empty for none.
        title: Display name.
        instructions: Instructions about the server for the model.
        page_size: Maximum number of tools on a page of the list; None for one page, because many clients read only the
            first.
        policy: Policy for calls and their failures. In any case, texts of unexpected exceptions are not sent to
            clients, and an unknown tool is a JSON-RPC error.
        state_keys: Secrets of at least 32 bytes that encrypt the state that a client carries between the rounds of one
            call: the first encrypts, all decrypt. Replicas need the same keys; None for a random key of this process.
        memory_id_of: Returns the memory id of a call, given its context. By default it is the authenticated caller's
            name, else the session's id, else None.
        limits: Limits of each caller; None for none. Those of requests apply over HTTP.
        max_calls: Maximum number of calls of all callers that run or wait; None for no maximum.
        tasks: Options for tasks, which calls of tools with ``task=True`` become; None for the defaults.
        events: Options for events, see `bridge.events.event`; None for the defaults.
        lifespan: Lifespan of the server: a `bridge.tools.Lifespan`, or a function for one. Its value is
            ``InvocationContext.lifespan`` in functions of modules without a lifespan.
        middleware: Middleware around everything that is served, the outermost first; see `bridge.Middleware`.
        tool_search: Lets clients search for tools instead of listing all of them; None to list all.
        extensions: Extensions of the protocol, as `bridge.server.Extension`, or the settings that are announced by
            identifier.
        beside: A server of the same process, with whose calls those of this one are counted; None for none.
        card: What everybody can read about the server over HTTP, as `bridge.server.ServerCard`: True for its name,
            title and version; False for no card.

    Raises:
        NameClashError: A tool has the name of a tool of the search.
        DefinitionError: ``features`` contains no tool, or an invalid one, or ``lifespan`` or ``middleware`` is none, or
            an extension has a method of the protocol, or another option has a value of the wrong type, or the name is
            empty.
        ValueError: The page size or the maximum number of calls is not positive, or a key is too short.
    """

    _are_routes_final = False
    _boxes: OwnBoxes | None = None
    """Boxes of its own, if it is composed of servers, or part of one."""
    is_mounted = False
    """True once another server has mounted it."""

    @cached_property
    def _mounted(self) -> list[Server]:
        """The servers whose routes it serves as well."""
        return []

    @property
    def offered(self) -> Features:
        """The features for servers that have this one as a source: with its lifespan, and within its middleware.

        They follow the features of this server, also those that it mounts later.
        """
        return self._own().features.offered_with(self.lifespan, self.middleware)

    def mount(self, source: object, *, prefix: str | None = None) -> None:
        """Serve the tools, resources, templates and prompts of another server as well, now and after its changes.

        Its lifespan is opened with that of this server. Clients are notified if this server runs; lifespans are then
        not opened any more.

        Args:
            source: A server, or any other source of one.
            prefix: Text that the names begin with, followed by ``_``, and the URIs, as by `bridge.server.namespaced`;
                None to leave them unchanged.

        Raises:
            DefinitionError: The source has nothing to offer, or is this server, or one that mounts it, or the prefix is
                none.
            NameClashError: A name or URI is taken; nothing is mounted.
        """
        if source is self:
            raise DefinitionError(f"the server {self.name!r} cannot be mounted on itself")
        had_tasks = self.features.tasks is not None
        features = Features.of(source).offered if prefix is None else namespaced(source, prefix)
        if self._own().are_in(features):
            other = repr(source.name) if isinstance(source, Server) else short_repr(source)
            raise DefinitionError(f"{other} cannot be mounted on the server {self.name!r}, which it has mounted itself")
        self._own().add(features)
        self.features = self._own().features
        self.take_events()
        if self.features.tasks is not None and not had_tasks:
            self.features.tasks.bind(self.name, self.state_keys)
        if isinstance(source, Server):
            source.is_mounted = True
            self._mounted.append(source)

    def emit(
        self,
        name: str,
        data: object,
        *,
        event_id: str | None = None,
        timestamp: datetime | None = None,
        caller: Caller | None = None,
    ) -> str:
        """Emit an event of a type of this process; from any thread.

        It reaches the subscribers of every server of this process that has the type, such as those of profiles.

        Args:
            name: Name of its type on this server.
            data: What happened: a mapping, or a dataclass or pydantic model of the payload.
            event_id: Identifier of the event, if the system where it occurred has one; None for a new one.
            timestamp: Time at which it occurred, with a time zone; None for now.
            caller: The only caller who may see it; None for all.

        Returns:
            The identifier.

        Raises:
            WireError: The data does not match the schema, or is too large.
            DefinitionError: There is no such type of this process, or another argument is invalid.
        """
        types = {each.name: each for each in self.features.events.local()} if self.features.events else {}
        if (type_ := types.get(name)) is None:
            near = nearest(name, types)
            hint = f"; did you mean {near[0]!r}?" if near else "; make a function its type with @event(…)"
            raise DefinitionError(f"the server {self.name!r} has no event {name!r}{hint}")
        return type_.emit(data, event_id=event_id, timestamp=timestamp, caller=caller)

    def enable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Show tools, resources and prompts, and notify the clients; see `bridge.ToolBox.enable`.

        Args:
            names: Names; of resources, URIs as well.
            tags: Tags, also of what is added later.

        Raises:
            DefinitionError: A name does not exist; nothing was changed.
        """
        self._own().switch(names, tags, to=True)

    def disable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Hide tools, resources and prompts, and notify the clients; the arguments and errors are those of `enable`."""
        self._own().switch(names, tags, to=False)

    def _own(self) -> OwnBoxes:
        """Return boxes that belong to this server alone, which it serves from now on."""
        if self._boxes is None:
            from bridge.server.composition.own_boxes import OwnBoxes  # noqa: PLC0415 - only where servers are composed

            self._boxes = OwnBoxes(self.features)
            self.serve_instead(self._boxes.features)
        return self._boxes

    def http_app(self, **options: Unpack[HttpOptions]) -> Starlette:
        """Return an ASGI app of the server: `bridge.http_app` with its options."""
        app: Starlette = public("http_app")(self, **options)
        return app

    def run(
        self, transport: Literal["stdio", "http"] = "stdio", *, port: int | None = None, **options: Unpack[HttpOptions]
    ) -> None:
        """Serve until a signal: `bridge.run` with its options."""
        public("run")(self, transport=transport, port=port, **options)

    def with_options(self, features: Features | None = None, **options: Unpack[ServerOptions]) -> Server:
        """Return a server with other options.

        Args:
            features: Its features; None for those of this server.
            options: Arguments of the constructor that differ.
        """
        changed = Server(features or self.features, **(self.options | options))
        changed.routes.extend(self.final_routes())
        return changed

    def with_profile(self, profile: Profile) -> Server:
        """Return a server of what a profile has of this one, whose calls are counted together.

        Its name is that of this server, a slash and the name of the profile, so that tasks, sessions and the state of
        calls are not those of another profile. It has no routes.

        Raises:
            DefinitionError: Two items would have the same name, or tasks are kept in a store of another kind.
        """
        # Boxes of its own, so that `enable` and `disable` hold for the profile, too.
        features = self.features if self.features.caller_features is not None else self._own().features
        # The features have the extensions already.
        options: Any = {**self.options, **profile.options_of(self.options), "extensions": (), "beside": self}
        server = Server(profile.features_of(features), **options)
        server.profile = profile
        return server

    @cached_property
    def _dispatch(self) -> Dispatch:
        return dispatch_of(self)

    def route(
        self,
        path: str,
        methods: Collection[str] | None = None,
        name: str | None = None,
        include_in_schema: bool = True,
        *,
        auth: bool = True,
    ) -> Callable[[_Endpoint], _Endpoint]:
        """Serve a function at a path of its own, beside the protocol over HTTP: ``@server.route("/webhook")``.

        It is Starlette's: the function takes a `starlette.requests.Request` and returns a response, and may be async;
        a path may have parameters. The limits of the app apply, such as allowed hosts and the length of a body. Over
        stdio, no route is served.

        Args:
            path: Path, such as ``/webhook`` or ``/notes/{id:int}``.
            methods: HTTP methods; None for GET.
            name: Name of the route, for URLs of it; by default that of the function.
            include_in_schema: As in Starlette.
            auth: True to require the credential of the app, if it requires one; a key for some of the tools is not
                enough. False to admit everyone, such as a webhook that verifies a signature.

        Raises:
            DefinitionError: The path does not begin with a slash, or an app of the server was made before.
        """
        if not path.startswith("/"):
            raise DefinitionError(f"the path of a route begins with a slash: not {path!r}")
        if self._are_routes_final:
            raise DefinitionError(f"the route {path!r} comes too late: write it before http_app or mount makes the app")
        from bridge.server.http.routes import OwnRoute  # noqa: PLC0415 - most servers have none

        def add(function: _Endpoint) -> _Endpoint:
            self.routes.append(
                OwnRoute(path, function, methods=methods, name=name, include_in_schema=include_in_schema, auth=auth)
            )
            return function

        return add

    def final_routes(self) -> Sequence[OwnRoute]:
        """Return the routes for an app, with those of mounted servers; no more can be added afterwards."""
        self._are_routes_final = True
        return (*self.routes, *(route for each in self._mounted for route in each.final_routes()))

    @cached_property
    def routes(self) -> list[OwnRoute]:
        """Routes of the server's own beside the protocol."""
        return []

    @asynccontextmanager
    async def connected(
        self, write: Callable[[bytes, MessageId | None], None], drained: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[Callable[[bytes], None]]:
        """Serve a client in this process; yields a function that receives its messages.

        A message is handled with the context variables of its sender, such as the authenticated caller.

        Args:
            write: Receives each message of the server, and the id of the request to which it is related; None for none.
            drained: Waits while the client receives no further notifications and questions.
        """

        def write_unrelated(message: bytes) -> None:
            write(message, None)

        def receive(text: bytes) -> None:
            try:
                message = read_message(text)
            except MalformedMessageError as error:
                write_unrelated(malformed_message_error(error))
                return
            if message is not None:
                connection.receive(message, LocalOrigin(access_of_request(), caller_of_request()))

        origin = LocalOrigin(access_of_request(), caller_of_request())
        connection = StreamConnection(self, self._dispatch, origin, write_unrelated, drained, write_related=write)
        async with lifespans_open(self.features, self.lifespan), connection.running():
            yield receive
