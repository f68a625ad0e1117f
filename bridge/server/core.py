"""ServerCore: a server's identity, capabilities, and lists of tools, resources and prompts."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from bridge.protocol.versions import MODERN_VERSIONS
from bridge.server.calls import Calls
from bridge.server.changes import Changes
from bridge.server.features import Features
from bridge.server.lists.listing import CACHE_SCOPE
from bridge.server.lists.prompts import ServedPrompts
from bridge.server.lists.resources import ServedResources
from bridge.server.lists.tools import ToolViews, with_kept_results
from bridge.server.options import ServerOptions, check_server_options
from bridge.server.tasks.options import TaskOptions
from bridge.tools.lifespan import Lifespan
from bridge.tools.middleware import checked_middleware, layers_of
from bridge.wire.tasks import TASKS_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from bridge.protocol.session import Session
    from bridge.resources.box import Readable
    from bridge.server.limits import Limits
    from bridge.server.lists.search import ServerToolSearch
    from bridge.server.session_states import SessionStates
    from bridge.server.tasks.forwarded import ForwardedTasks
    from bridge.server.tasks.shared.redis_store import RedisTaskStore
    from bridge.server.tasks.tasks import Tasks
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.middleware import Hook, Layer, Middleware
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Json


DISCOVERY_TTL_MS = 60_000
"""Milliseconds for which a client may cache the response to ``server/discover``."""


class ServerCore(Calls):
    """Published features; `bridge.server.Server` documents the arguments."""

    session_idle_seconds: float | None = 30 * 60.0
    """Seconds after which an unused session is ended; None for never. Set by `http_app`."""

    def __init__(
        self,
        features: object = None,
        *,
        name: str,
        version: str = "",
        title: str | None = None,
        instructions: str | None = None,
        page_size: int | None = None,
        policy: ExecutionPolicy | None = None,
        state_keys: Sequence[bytes] | None = None,
        memory_id_of: Callable[[InvocationContext], Any] | None = None,
        limits: Limits | None = None,
        max_calls: int | None = None,
        tasks: TaskOptions | None = None,
        lifespan: Lifespan[Any] | Callable[[], Any] | None = None,
        middleware: Iterable[Middleware] = (),
        tool_search: ServerToolSearch | None = None,
    ) -> None:
        middleware = checked_middleware(middleware)
        own_lifespan = None if lifespan is None else Lifespan.of(lifespan)
        self.options: ServerOptions = {
            "name": name,
            "version": version,
            "title": title,
            "instructions": instructions,
            "page_size": page_size,
            "policy": policy,
            "state_keys": state_keys,
            "memory_id_of": memory_id_of,
            "limits": limits,
            "max_calls": max_calls,
            "tasks": tasks,
            "middleware": middleware,
            "tool_search": tool_search,
            "lifespan": own_lifespan,
        }
        """The arguments beside the features."""
        check_server_options(self.options)
        super().__init__(policy=policy, limits=limits, max_calls=max_calls, memory_id_of=memory_id_of)
        self.features = features = Features() if features is None else Features.of(features)
        """The tools, resources and prompts, with those of mounted servers."""
        self.middleware = (*middleware, *features.middleware)
        """The middleware, the outermost first."""
        self._around_calls = self.layers_of("call_tool")
        self.lifespan: Lifespan[Any] | None = own_lifespan or features.lifespan
        """The lifespan whose value functions of modules without one get."""
        self.name = name
        self.version = version
        self.title = title
        self.own_instructions = instructions
        self.state_keys = state_keys
        if features.tasks is not None:
            features.tasks.bind(name, state_keys)
        self._spill = None if policy is None else policy.spill
        self._caller_views: WeakKeyDictionary[ToolBox, ToolViews] = WeakKeyDictionary()
        self._serve(features)
        # After the lists, which forget their pages before clients are notified.
        self.changes = Changes(self.announced)
        self._users: list[Callable[[], None]] = []
        self.on_session_change: Callable[[Session, Json], Awaitable[None]] | None = None
        """Called with a session of the handshake era and a change of its state, which replicas have to know."""
        self.task_options = tasks or TaskOptions()

    def serve_instead(self, features: Features) -> None:
        """Serve features in other boxes from now on."""
        others = [each.views for each in (self.resources, self.prompts) if each is not None]
        for views in (self.views, *others):
            views.close()
        if self.kept is not None:
            self._spill = self.kept.spill
        self._caller_views.clear()
        self._serve(features)
        self.changes.follow(self.announced)
        for use in self._users:
            use()

    def _serve(self, features: Features) -> None:
        page_size = self.options["page_size"]
        self.features = features
        self.kept, served = with_kept_results(features, self._spill, self._find_resource)
        self.tools = features.tools
        self.views = ToolViews(served.tools, page_size, self.kept, self.options["tool_search"])
        self.catalog = self.views.whole.listed
        self.resources = (
            None if served.resources is None else ServedResources(served.resources, self, page_size, self.kept)
        )
        """The resources; None if the server has none."""
        self.prompts = None if features.prompts is None else ServedPrompts(features.prompts, self, page_size)
        """The prompts; None if the server has none."""

    def on_features(self, use: Callable[[], None]) -> Callable[[], None]:
        """Call a function when the boxes of `features` are replaced. Returns a function that ends that."""
        self._users.append(use)
        return lambda: self._users.remove(use)

    def layers_of(self, hook: Hook) -> tuple[Layer, ...]:
        """Return the methods of the middleware for one kind of request; empty if none is for it."""
        return layers_of(self.middleware, hook)

    @property
    def announced(self) -> Features:
        """The features whose changes clients are notified of."""
        return replace(self.features, tools=self.views.announced)

    @property
    def implementation(self) -> Json:
        """Name, version and title of the server (MCP's ``Implementation``)."""
        named = {"name": self.name, "version": self.version}
        return named if self.title is None else named | {"title": self.title}

    @property
    def capabilities(self) -> Json:
        """Capabilities of the server in the handshake era (MCP's ``ServerCapabilities``)."""
        capabilities: Json = {"logging": {}, "tools": {"listChanged": True}}
        if self.resources is not None:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts is not None:
            capabilities["prompts"] = {"listChanged": True}
        if self.completes:
            capabilities["completions"] = {}
        return _with_extensions(capabilities, self.features.extensions)

    @property
    def stateless_capabilities(self) -> Json:
        """The same where clients have no sessions, and so neither notifications nor a level of log messages."""
        capabilities = {name: dict(each) for name, each in self.capabilities.items() if name != "logging"}
        for name in ("tools", "resources", "prompts"):
            if name in capabilities:
                capabilities[name] |= {"listChanged": False}
        if "resources" in capabilities:
            capabilities["resources"]["subscribe"] = False
        return capabilities

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks."""
        store = self.task_options.store
        if store is not None and store.is_shared:
            from bridge.server.tasks.shared.shared_tasks import SharedTasks  # noqa: PLC0415 - only with Redis

            return SharedTasks(self, self.task_options, cast("RedisTaskStore", store))
        from bridge.server.tasks.tasks import Tasks  # noqa: PLC0415 - only with tasks

        return Tasks(self, self.task_options)

    @cached_property
    def session_states(self) -> SessionStates:
        """State of the sessions of its clients."""
        from bridge.server.session_states import SessionStates  # noqa: PLC0415 - only for functions that use it

        return SessionStates(lambda: self.session_idle_seconds)

    def drain_tasks(self) -> None:
        """Begin no task that another process can run."""
        if "tasks" in vars(self):
            self.tasks.drain()

    @property
    def has_tasks(self) -> bool:
        """True if a call can become a task, or earlier tasks are kept."""
        return self.features.tasks is not None or self.task_options.apply_to(self.tools)

    def forwarded(self, task_id: str) -> ForwardedTasks | None:
        """Return the tasks of other servers if one of them may have an ID; None for an ID of this server."""
        forwarded = self.features.tasks
        return forwarded if forwarded is not None and forwarded.has(task_id) else None

    @property
    def extensions(self) -> Json:
        """Extensions of the protocol that the server has, in the modern era."""
        return {**self.features.extensions, **({TASKS_EXTENSION: {}} if self.has_tasks else {})}

    @property
    def completes(self) -> bool:
        """True if the server has anything with arguments that could be completed."""
        return self.resources is not None or self.prompts is not None

    @property
    def instructions(self) -> str | None:
        """Instructions about the server for the model, with what the features tell now."""
        return "\n\n".join(filter(None, (self.own_instructions, self.features.notice()))) or None

    def views_for(self, caller: Caller | None, *, current: bool = False) -> ToolViews | None:
        """Return the tools that a caller sees, by access; None if they have to be loaded, see `CallerTools.of`."""
        caller_tools = self.features.caller_tools
        if caller_tools is None:
            return self.views
        box = caller_tools.of(caller, current=current)
        return None if box is None else self._views_of(box)

    async def load_views(self, context: InvocationContext) -> ToolViews:
        """Return the tools that the caller of a request sees, by access."""
        caller_tools = self.features.caller_tools
        return self.views if caller_tools is None else self._views_of(await caller_tools.load(context))

    def _views_of(self, box: ToolBox) -> ToolViews:
        if box is self.tools:
            return self.views
        views = self._caller_views.get(box)
        if views is None:
            served = box if self.kept is None else self.kept.with_reader(box)
            options = self.options
            views = ToolViews(served, options["page_size"], self.kept, options["tool_search"])
            self._caller_views[box] = views
        return views

    @property
    def discovery(self) -> Json:
        """Result of ``server/discover`` (MCP's ``DiscoverResult``)."""
        result = {
            "resultType": "complete",
            "supportedVersions": sorted(MODERN_VERSIONS),
            "capabilities": _with_extensions(self.capabilities, self.extensions),
            "ttlMs": DISCOVERY_TTL_MS,
            "cacheScope": CACHE_SCOPE,
        }
        return result if self.instructions is None else result | {"instructions": self.instructions}

    def _find_resource(self, uri: str) -> Readable | None:
        return None if self.resources is None else self.resources.box.find(uri)


def _with_extensions(capabilities: Json, extensions: Mapping[str, Json]) -> Json:
    return {**capabilities, "extensions": dict(extensions)} if extensions else capabilities
