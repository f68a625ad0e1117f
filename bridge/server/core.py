"""ServerCore: a server's identity, capabilities, and lists of tools, resources and prompts."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from bridge.protocol.versions import MODERN_VERSIONS
from bridge.server.auth.access import EVERYTHING
from bridge.server.calls import Calls
from bridge.server.changes import Changes
from bridge.server.events.options import EventOptions
from bridge.server.events.publisher import EventPublisher
from bridge.server.features import Features, with_extensions
from bridge.server.lists.listing import CACHE_SCOPE
from bridge.server.lists.lists import Lists
from bridge.server.lists.prompts import ServedPrompts
from bridge.server.lists.resources import ServedResources
from bridge.server.lists.tools import ToolViews, with_kept_results
from bridge.server.middleware import run_around
from bridge.server.options import ServerOptions, check_server_options
from bridge.server.tasks.options import TaskOptions
from bridge.tools.lifespan import Lifespan
from bridge.tools.middleware import ListRequest, checked_middleware, layers_of
from bridge.tools.spill.usage import Savings
from bridge.wire.extension import EVENTS, TASKS, extensions_of
from bridge.wire.skills import SKILLS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from bridge.protocol.session import Session
    from bridge.resources.box import Readable
    from bridge.server.auth.access import Access, Restricted
    from bridge.server.caller_features import CallerView
    from bridge.server.card import ServerCard
    from bridge.server.forwarded import ForwardedTasks
    from bridge.server.limits import Limits
    from bridge.server.lists.search import ServerToolSearch
    from bridge.server.session_states import SessionStates
    from bridge.server.tasks.shared.redis_store import RedisTaskStore
    from bridge.server.tasks.tasks import Tasks
    from bridge.tools.box import Box
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.middleware import Hook, Layer, Middleware
    from bridge.tools.tool import Tool
    from bridge.types import Json
    from bridge.wire.extension import Extension, Extensions


_logger = logging.getLogger("bridge.server")
_SHOWN_NAMES = 5

DISCOVERY_TTL_MS = 60_000
"""Milliseconds for which a client may cache the response to ``server/discover``."""


class ServerCore(Calls, EventPublisher):
    """Published features; `bridge.server.Server` documents the arguments."""

    session_idle_seconds: float | None = 30 * 60.0
    """Seconds after which an unused session is ended; None for never. Set by `http_app`."""
    profile: Restricted | None = None
    """The profile that it serves; None for none. Set by `Server.with_profile`."""

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
        events: EventOptions | None = None,
        lifespan: Lifespan[Any] | Callable[[], Any] | None = None,
        middleware: Iterable[Middleware] = (),
        tool_search: ServerToolSearch | None = None,
        extensions: Extensions = (),
        beside: Calls | None = None,
        card: ServerCard | bool = True,
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
            "events": events,
            "middleware": middleware,
            "tool_search": tool_search,
            "extensions": extensions,
            "card": card,
            "lifespan": own_lifespan,
            "beside": beside,
        }
        """The arguments beside the features."""
        check_server_options(self.options)
        super().__init__(policy=policy, limits=limits, max_calls=max_calls, memory_id_of=memory_id_of, beside=beside)
        features = Features() if features is None else Features.of(features)
        self.features = features = with_extensions(features, extensions) if extensions else features
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
        self._has_warned_of_limits = False
        self._spill = None if policy is None else policy.spill
        self._lists_of: WeakKeyDictionary[CallerView, Lists] = WeakKeyDictionary()
        self.task_options = tasks or TaskOptions()
        self.event_options = events or EventOptions()
        self._serve(features)
        # After the lists, which forget their pages before clients are notified.
        self.changes = Changes(self.announced)
        self._users: list[Callable[[], None]] = []
        self.on_session_change: Callable[[Session, Json], Awaitable[None]] | None = None
        """Called with a session of the handshake era and a change of its state, which replicas have to know."""
        self.savings = Savings()
        """The tokens that tool search and code mode have saved."""

    def serve_instead(self, features: Features) -> None:
        """Serve features in other boxes from now on."""
        others = [each.views for each in (self.resources, self.prompts) if each is not None]
        for views in (self.views, *others):
            views.close()
        if self.kept is not None:
            self._spill = self.kept.spill
        self._lists_of.clear()
        self._serve(features)
        self.changes.follow(self.announced)
        for use in self._users:
            use()

    def _serve(self, features: Features) -> None:
        page_size = self.options["page_size"]
        self.features = features
        self.take_events()
        self.kept, served = with_kept_results(features, self._spill, self._find_resource)
        if self.kept is None:
            features.tools.on_change(self._warn_of_limits)
        self.tools = features.tools
        self.views = ToolViews(served.tools, page_size, self.kept, self.options["tool_search"], self._left_tools)
        self.catalog = self.views.whole.listed
        self.resources = None if served.resources is None else ServedResources(served.resources, page_size, self.kept)
        """The resources; None if the server has none."""
        self.prompts = None if features.prompts is None else ServedPrompts(features.prompts, page_size)
        """The prompts; None if the server has none."""
        self.lists = Lists(self.views, self.resources, self.prompts)
        """The lists of callers who see everything that all see."""

    def _warn_of_limits(self) -> None:
        """Warn once if a tool that was added has a limit, although no large results are kept."""
        limited = [tool.name for tool in self.tools if tool.policy.spill_chars is not None]
        if limited and self.kept is None and not self._has_warned_of_limits:
            self._has_warned_of_limits = True
            _logger.warning(
                "the limit of the results of %s does not apply: the server was started without any; restart it, or "
                "start it with --spill-chars or --spill-mode measure",
                ", ".join(map(repr, limited[:_SHOWN_NAMES])),
            )

    def on_features(self, use: Callable[[], None]) -> Callable[[], None]:
        """Call a function when the boxes of `features` are replaced. Returns a function that ends that."""
        self._users.append(use)
        return lambda: self._users.remove(use)

    def layers_of(self, hook: Hook) -> tuple[Layer, ...]:
        """Return the methods of the middleware for one kind of request; empty if none is for it."""
        return layers_of(self.middleware, hook)

    def surrounds_part(self, hook: Hook) -> bool:
        """Return True if a mounted server has middleware around its part of a list."""
        parts = self.features.parts()
        return bool(parts) and any(part.surroundings.surrounds_list(hook) for part in parts)

    async def left_by_middleware(
        self, hook: Hook, method: str, items: Sequence[Any], revision: object, context: InvocationContext
    ) -> Sequence[Any]:
        """Return the items of a list that the middleware leaves.

        Args:
            hook: Its method for the list.
            method: Method of the protocol for the list.
            items: The items.
            revision: Changes with the items.
            context: The context of the request, prepared.

        Raises:
            ProtocolError: The middleware refused the request, or it failed with a message for the client.
        """

        async def last(request: ListRequest, context: InvocationContext) -> Sequence[Any]:
            parts = self.features.parts()
            if not parts:
                return items
            from bridge.server.composition.surrounded import listed_by  # noqa: PLC0415 - only where servers are composed

            return await listed_by(parts, hook, request, items, context)

        request = ListRequest(method, revision=revision)
        found: Sequence[Any] = await run_around(self.layers_of(hook), request, context, last)
        return found

    async def _left_tools(self, tools: Sequence[Tool], context: InvocationContext) -> Sequence[Tool]:
        """Return the tools that the middleware of their list leaves."""
        if not self.layers_of("list_tools") and not self.surrounds_part("list_tools"):
            return tools
        return await self.left_by_middleware("list_tools", "tools/list", tools, object(), self.prepared(context))

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
        """Capabilities of the server in the handshake era, for callers who see everything."""
        return self.capabilities_for(EVERYTHING, modern=False)

    def capabilities_for(self, access: Access, *, modern: bool, has_session: bool = True) -> Json:
        """Return what a caller may use of the server (MCP's ``ServerCapabilities``).

        Args:
            access: Permissions of the caller. Resources, prompts and extensions of which it sees nothing are left out.
            modern: True for a client of version 2026-07-28.
            has_session: False for one of an earlier version without a session, and so with neither notifications nor a
                level of log messages.
        """
        changes = {"listChanged": has_session}
        capabilities: Json = {"logging": {}} if has_session else {}
        capabilities["tools"] = changes
        if self.resources is not None and self._is_of_use(self.resources.box, access):
            capabilities["resources"] = {"subscribe": has_session, **changes}
        if self.prompts is not None and self._is_of_use(self.prompts.box, access):
            capabilities["prompts"] = changes
        if not capabilities.keys().isdisjoint({"resources", "prompts"}):
            capabilities["completions"] = {}
        if self.offers(EVENTS, access):
            capabilities["events"] = {}  # as drafts of the extension had it, which clients still read
        if extensions := self.extensions_for(access, modern=modern):
            capabilities["extensions"] = {each.id: each.settings for each in extensions}
        return capabilities

    def extensions_for(self, access: Access, *, modern: bool) -> tuple[Extension, ...]:
        """Return the extensions that a caller may use; the arguments are those of `capabilities_for`.

        An extension of another server is used with what that server has, so that a caller who sees nothing of it has no
        use for it.
        """
        found: dict[str, Extension] = {}
        own = [each for each in (TASKS, SKILLS, EVENTS) if self.offers(each, access)]
        for each in (*extensions_of(self.features.extensions), *own):
            if (modern or not each.is_modern) and (each.server is None or self._shows_some_of(each.server, access)):
                found.setdefault(each.id, each)
        return tuple(found.values())

    def offers(self, extension: Extension, access: Access = EVERYTHING) -> bool:
        """Return True if a caller may use an extension that is built in, such as skills of which it sees some."""
        if extension is TASKS:
            return self.has_tasks
        source = self.features.skills if extension is SKILLS else self.features.events
        if source is None or not source.are_offered:
            return False
        return access.sees_all or self._may_be_more or source.may_show(access.shows)

    def _shows_some_of(self, server: str, access: Access) -> bool:
        if access.sees_all or self._may_be_more:
            return True
        return any(item.server == server and access.shows(item) for box in self.features.boxes.values() for item in box)

    def _is_of_use(self, box: Box[Any], access: Access) -> bool:
        """True if a caller sees everything, also what is added later, or something of a box, or what few see."""
        return access.sees_all or self._may_be_more or any(map(access.shows, box))

    @property
    def is_starting(self) -> bool:
        """True while the lists are not complete, because servers behind this one start."""
        return (start := self.features.start) is not None and not start.is_over

    @property
    def _may_be_more(self) -> bool:
        return self.is_starting or ((found := self.features.caller_features) is not None and found.may_be_more)

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
    def completes(self) -> bool:
        """True if the server has anything with arguments that could be completed."""
        return self.resources is not None or self.prompts is not None

    def instructions_for(self, access: Access) -> str | None:
        """Return instructions about the server for the model, with what the features tell a caller now."""
        return "\n\n".join(filter(None, (self.own_instructions, self.features.notice(access)))) or None

    def lists_for(self, caller: Caller | None, *, current: bool = False) -> Lists | None:
        """Return the lists that a caller sees; None if they have to be loaded, see `CallerFeatures.of`."""
        caller_features = self.features.caller_features
        if caller_features is None:
            return self.lists
        view = caller_features.of(caller, current=current)
        return None if view is None else self._lists_in(view)

    async def load_lists(self, context: InvocationContext) -> Lists:
        """Load the lists that the caller of a request sees."""
        caller_features = self.features.caller_features
        return self.lists if caller_features is None else self._lists_in(await caller_features.load(context))

    def _lists_in(self, view: CallerView) -> Lists:
        if view.tools is self.tools:
            return self.lists
        lists = self._lists_of.get(view)
        if lists is None:
            page_size = self.options["page_size"]
            tools = view.tools if self.kept is None else self.kept.with_reader(view.tools)
            lists = self._lists_of[view] = Lists(
                ToolViews(tools, page_size, self.kept, self.options["tool_search"], self._left_tools),
                None if view.resources is None else ServedResources(view.resources, page_size, self.kept),
                None if view.prompts is None else ServedPrompts(view.prompts, page_size),
            )
        return lists

    def discovery(self, access: Access = EVERYTHING) -> Json:
        """Return the result of ``server/discover`` for a caller (MCP's ``DiscoverResult``)."""
        result = {
            "resultType": "complete",
            "supportedVersions": sorted(MODERN_VERSIONS),
            "capabilities": self.capabilities_for(access, modern=True),
            "ttlMs": DISCOVERY_TTL_MS,
            "cacheScope": CACHE_SCOPE,
        }
        instructions = self.instructions_for(access)
        return result if instructions is None else result | {"instructions": instructions}

    def _find_resource(self, uri: str) -> Readable | None:
        return None if self.resources is None else self.resources.box.find(uri)
