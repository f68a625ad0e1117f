"""``subscriptions/listen`` and notifications of changed lists.

A client of the modern era opens a subscription, a long request whose stream has the notifications. In the handshake era
every session gets them. MCP 2026-07-28, "Subscriptions"; 2025-11-25, "Tools", List Changed Notification.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import anyio

from bridge.server.changes import Change
from bridge.server.methods.method import Method, session_id
from bridge.server.protocol import INVALID_PARAMS, LIMIT_EXCEEDED, MODERN_VERSIONS, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import ListenHandler, ServerEvent
    from mcp_types import SubscriptionFilter, SubscriptionsListenRequestParams, SubscriptionsListenResult

    from bridge.server.auth.access import Access
    from bridge.server.changes import Changes
    from bridge.server.core import ServerCore
    from bridge.server.limits.shares import Shares
    from bridge.server.methods.method import HandlerRequest
    from bridge.server.served import ServedResources
    from bridge.types import Feature

MAX_SUBSCRIPTIONS = 1024
"""Maximum number of open subscriptions, as in the SDK, which callers share."""

_RETRY_SECONDS = 10


class Listen(Method):
    """Subscriptions. Each has its own handler of the SDK, so that each can be ended by its result."""

    name = "subscriptions/listen"

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._bus = ChangesBus(core.changes)
        self._open: set[ListenHandler] = set()

    @cached_property
    def _shares(self) -> Shares:
        from bridge.server.limits.shares import Shares

        return Shares(MAX_SUBSCRIPTIONS)

    def params_type(self) -> type[SubscriptionsListenRequestParams]:
        """Return the type of the parameters: kinds of notifications."""
        from mcp_types import SubscriptionsListenRequestParams

        return SubscriptionsListenRequestParams

    async def handle(
        self, request: HandlerRequest, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve a subscription until its client disconnects, it is ended, or its credential is no longer valid.

        The acknowledgement leaves out what the server does not have, and resources that the caller cannot read.

        Raises:
            ProtocolError: Too many are open, of all callers or of this one, or the parameters are too large.
        """
        from mcp.server.subscriptions import ListenHandler

        from bridge.server.auth.identity import ending_with_credential
        from bridge.server.http.session import MAX_KEPT_BYTES, kept_bytes
        from bridge.server.limits.accounts import account_of

        account = account_of(request.sdk)
        if not self._shares.has_room(account):
            message = (
                f"too many subscriptions: a caller may open as many as stay free of {self._shares.places}; "
                f"try again in {_RETRY_SECONDS} seconds"
            )
            raise ProtocolError(LIMIT_EXCEEDED, message, {"retryAfterSeconds": _RETRY_SECONDS})
        kept = kept_bytes(json.dumps(request.sdk.params).encode())  # which writes lone surrogates, too
        if kept > MAX_KEPT_BYTES:
            raise ProtocolError(INVALID_PARAMS, f"a subscription may take {MAX_KEPT_BYTES} bytes, not {kept}")
        honoured = params.model_copy(update={"notifications": self._honoured(params.notifications, request.access)})
        handler = ListenHandler(self._bus)
        self._open.add(handler)
        try:
            with self._shares.taking(account), ending_with_credential(handler.close):
                return await handler(request.sdk, honoured)
        finally:
            self._open.discard(handler)

    def _honoured(self, wanted: SubscriptionFilter, access: Access) -> SubscriptionFilter:
        """Return what a caller may be notified of; the SDK's handler would acknowledge everything."""
        resources, left_out = self._core.resources, dict[str, Any]()
        if self._core.prompts is None:
            left_out["prompts_list_changed"] = None
        if resources is None:
            left_out |= {"resources_list_changed": None, "resource_subscriptions": None}
        elif wanted.resource_subscriptions:
            left_out["resource_subscriptions"] = [
                uri for uri in wanted.resource_subscriptions if resources.is_readable(uri, access)
            ]
        return wanted.model_copy(update=left_out)

    def close(self) -> None:
        """End all subscriptions, each by its result."""
        for handler in tuple(self._open):
            handler.close()


class ChangesBus:
    """The SDK's ``SubscriptionBus`` over the changes of a server."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def publish(self, event: ServerEvent) -> None:
        """Notify every listener, of both eras."""
        from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated

        if isinstance(event, ResourceUpdated):
            self._changes.notify(Change("resources", event.uri))
        else:
            is_of_resources = isinstance(event, ResourcesListChanged)
            other: Feature = "prompts" if isinstance(event, PromptsListChanged) else "tools"
            self._changes.notify(Change("resources" if is_of_resources else other))

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Call ``listener`` on this event loop after changes; return a function that ends that."""

        def on_change(changes: frozenset[Change]) -> None:
            for change in changes:
                listener(_event_of(change))

        return self._changes.listen(on_change)


def _event_of(change: Change) -> ServerEvent:
    from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged

    if change.uri is not None:
        return ResourceUpdated(change.uri)
    if change.feature == "resources":
        return ResourcesListChanged()
    return PromptsListChanged() if change.feature == "prompts" else ToolsListChanged()


class ChangeNotifier:
    """Middleware that notifies the sessions of the handshake era of changes.

    It notifies a session in the task in which the SDK handles ``notifications/initialized``, which is cancelled with
    the session. A client that does not read delays no other.
    """

    def __init__(self, changes: Changes, resources: ServedResources | None) -> None:
        self._changes = changes
        self._resources = resources
        self._notified: dict[object, ServerSession] = {}

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle a message; after ``notifications/initialized``, notify the session until it ends."""
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized" and ctx.protocol_version not in MODERN_VERSIONS:
            await self._notify(ctx)
        return result

    async def _notify(self, request: ServerRequestContext[Any, Any]) -> None:
        session = session_id(request) or request.session
        if self._is_notified(session, request.session):
            return
        changed, waiting = anyio.Event(), dict[Change, None]()
        resources, client = self._resources, request.session.client_params
        watched = set[str]() if resources is None else resources.watched_by(client)

        def on_change(changes: frozenset[Change]) -> None:
            waiting.update(dict.fromkeys(each for each in changes if each.uri is None or each.uri in watched))
            if waiting:
                changed.set()

        end = self._changes.listen(on_change)
        self._notified[session] = request.session
        try:
            while True:
                await changed.wait()
                changed = anyio.Event()
                while waiting:
                    change = next(iter(waiting))
                    del waiting[change]
                    await _send(request.session, change)
        finally:
            end()
            del self._notified[session]

    def _is_notified(self, session: object, sdk: ServerSession) -> bool:
        """Return True if a session is notified; without an id, by what its client said last of itself."""
        if session is not sdk:
            return session in self._notified
        return any(each.client_params is sdk.client_params for each in self._notified.values())


async def _send(session: ServerSession, change: Change) -> None:
    if change.uri is not None:
        await session.send_resource_updated(change.uri)
    elif change.feature == "resources":
        await session.send_resource_list_changed()
    elif change.feature == "prompts":
        await session.send_prompt_list_changed()
    else:
        await session.send_tool_list_changed()
