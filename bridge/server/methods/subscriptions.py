"""``subscriptions/listen`` and notifications of changed lists, resources and tasks.

A client of the modern era opens a subscription, a long request whose stream has the notifications. In the handshake era
every session gets them. MCP 2026-07-28, "Subscriptions"; 2025-11-25, "Tools", List Changed Notification.
"""

from __future__ import annotations

import json
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import anyio

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import CAPABILITIES_KEY, INVALID_PARAMS, LIMIT_EXCEEDED, MODERN_VERSIONS
from bridge.server.auth.access import EVERYTHING
from bridge.server.changes import Change
from bridge.server.methods.method import Method, session_id
from bridge.wire.tasks import missing_tasks_extension, supports_tasks, task_notification_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import ServerEvent
    from mcp_types import SubscriptionFilter, SubscriptionsListenRequestParams, SubscriptionsListenResult
    from pydantic import BaseModel

    from bridge.server.auth.access import Access
    from bridge.server.changes import Changes
    from bridge.server.core import ServerCore
    from bridge.server.limits.shares import Shares
    from bridge.server.methods.method import HandlerRequest
    from bridge.server.served.resources import ServedResources
    from bridge.tools.context import InvocationContext
    from bridge.tools.task import Task
    from bridge.types import Json

MAX_SUBSCRIPTIONS = 1024
"""Maximum number of open subscriptions, as in the SDK, which callers share."""

_RETRY_SECONDS = 10
_TASK_IDS = "taskIds"


class Listen(Method):
    """Subscriptions, each of which can be ended by its result."""

    name = "subscriptions/listen"

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._open: set[_Waiting] = set()

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

        The acknowledgement leaves out what the server does not have, and what the caller cannot read.

        Raises:
            ProtocolError: Too many are open, of all callers or of this one, the parameters are too large, or the client
                subscribes to tasks, and does not support them.
        """
        from bridge.server.auth.identity import current_access, ending_with_credential
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
        waiting = _Waiting()
        self._open.add(waiting)
        try:
            with self._shares.taking(account), ending_with_credential(waiting.close), current_access() as access:
                honoured = self._honoured(params.notifications, request.access)
                task_ids = await self._task_ids(request.sdk)
                if not honoured.resource_subscriptions or self._core.resources is None:
                    return await self._serve(request.sdk, honoured, task_ids, waiting, access)
                async with self._core.resources.watching(honoured.resource_subscriptions) as uris:
                    honoured = honoured.model_copy(update={"resource_subscriptions": uris or None})
                    return await self._serve(request.sdk, honoured, task_ids, waiting, access)
        finally:
            self._open.discard(waiting)

    def _honoured(self, wanted: SubscriptionFilter, access: Access) -> SubscriptionFilter:
        """Return what a caller may be notified of."""
        resources = self._core.resources
        uris = [] if resources is None else wanted.resource_subscriptions or []
        return type(wanted)(
            tools_list_changed=wanted.tools_list_changed or None,
            prompts_list_changed=(self._core.prompts is not None and wanted.prompts_list_changed) or None,
            resources_list_changed=(resources is not None and wanted.resources_list_changed) or None,
            resource_subscriptions=[uri for uri in uris if resources and resources.is_readable(uri, access)] or None,
        )

    async def _task_ids(self, sdk: ServerRequestContext[Any, Any]) -> list[str]:
        """Return the tasks of the caller of which a request wants to be notified.

        Raises:
            ProtocolError: The client does not support tasks.
        """
        params = sdk.params or {}
        wanted = params["notifications"].get(_TASK_IDS)
        if not (isinstance(wanted, list) and wanted and self._core.has_tasks):
            return []

        if not supports_tasks((params.get("_meta") or {}).get(CAPABILITIES_KEY)):
            raise missing_tasks_extension(f"a subscription with {_TASK_IDS!r}")
        ids = dict.fromkeys(each for each in wanted if isinstance(each, str))
        return [each for each in ids if await self._task_of(sdk, each) is not None]

    async def _task_of(self, sdk: ServerRequestContext[Any, Any], task_id: str) -> Task | None:
        context = _context_of(sdk)
        try:
            if (forwarded := self._core.forwarded(task_id)) is not None:
                return await forwarded.get(task_id, context)
            return await self._core.tasks.get(task_id, context.caller)
        except ProtocolError:
            return None

    def _follow(
        self, sdk: ServerRequestContext[Any, Any], task_ids: list[str], listener: Callable[[str], None]
    ) -> list[Callable[[], None]]:
        """Call a function after each change of tasks; return functions that end that."""
        own = [each for each in task_ids if self._core.forwarded(each) is None]
        ends = [self._core.tasks.listeners.add(own, listener)] if own else []
        forwarded = self._core.features.tasks
        if forwarded is not None and len(own) < len(task_ids):
            ids = [each for each in task_ids if each not in own]
            ends.append(forwarded.watch(ids, _context_of(sdk), listener))
        return ends

    async def _serve(
        self,
        sdk: ServerRequestContext[Any, Any],
        honoured: SubscriptionFilter,
        task_ids: list[str],
        waiting: _Waiting,
        access: Callable[[], Access | None],
    ) -> SubscriptionsListenResult:
        """Send the acknowledgement, then notifications."""
        from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
        from mcp.shared.subscriptions import event_matches, event_to_notification
        from mcp_types import SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenResult

        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: sdk.request_id}
        uris = frozenset(honoured.resource_subscriptions or ())

        def on_change(changes: frozenset[Change]) -> None:
            now = access()
            told = (each for each in changes if _may_be_told(each, self._core.resources, now))
            waiting.put(*(change for change in told if event_matches(honoured, uris, _event_of(change))))

        async def send(method: str, params: Json) -> None:
            await _send_on(sdk, method, {**params, "_meta": meta})

        acknowledged = honoured.model_copy(update={_TASK_IDS: task_ids} if task_ids else {})
        ends = [self._core.changes.listen(on_change)]
        if task_ids:
            ends += self._follow(sdk, task_ids, waiting.put)
        try:
            params = SubscriptionsAcknowledgedNotificationParams(notifications=acknowledged, _meta=meta)
            await send("notifications/subscriptions/acknowledged", params.model_dump(by_alias=True, exclude_none=True))
            for each in task_ids:
                task = await self._task_of(sdk, each)
                if task is not None and task.status != "working":  # it has changed before it was subscribed to
                    waiting.put(each)
            async for change in waiting.changes():
                if isinstance(change, str):
                    if (task := await self._task_of(sdk, change)) is not None:
                        await send("notifications/tasks", task_notification_to_wire(task))
                else:
                    event = event_to_notification(_event_of(change), meta)
                    await sdk.session.send_notification(event, related_request_id=sdk.request_id)
        finally:
            for end in ends:
                end()
        return SubscriptionsListenResult(_meta=meta)

    def close(self) -> None:
        """End all subscriptions, each by its result."""
        for waiting in tuple(self._open):
            waiting.close()


def _context_of(sdk: ServerRequestContext[Any, Any]) -> InvocationContext:
    """Return the context of a subscription to tasks."""
    from bridge.server.auth.identity import caller_of_request
    from bridge.tools.context import InvocationContext

    headers = {} if sdk.request is None else sdk.request.headers
    return InvocationContext(caller=caller_of_request(), headers=headers)


class _Waiting:
    """Changes, and ids of changed tasks, that are to be sent on one subscription, each once."""

    def __init__(self) -> None:
        self._changes: dict[Change | str, None] = {}
        self._is_closed = False
        self._event = anyio.Event()

    def put(self, *changes: Change | str) -> None:
        """Add changes, if they do not wait already."""
        self._changes.update(dict.fromkeys(changes))
        self._event.set()

    def close(self) -> None:
        """End `changes` after those that wait."""
        self._is_closed = True
        self._event.set()

    async def changes(self) -> AsyncIterator[Change | str]:
        """Yield the changes as they come."""
        while True:
            while self._changes:
                change = next(iter(self._changes))
                del self._changes[change]
                yield change
            if self._is_closed:
                return
            await self._event.wait()
            self._event = anyio.Event()


async def _send_on(sdk: ServerRequestContext[Any, Any], method: str, params: Json) -> None:
    """Send a notification on the stream of a request."""
    sent: Any = _notification_type()(method=method, params=params)
    await sdk.session.send_notification(sent, related_request_id=sdk.request_id)


@cache
def _notification_type() -> type[BaseModel]:
    """Return the type of notifications that the SDK does not have."""
    from pydantic import create_model

    return create_model("_Notification", method=(str, ...), params=(dict[str, Any], ...))


def _may_be_told(change: Change, resources: ServedResources | None, access: Access | None) -> bool:
    """Return True if a caller may be notified of a change: its permissions may have shrunk since it asked."""
    if access is None or access == EVERYTHING or change.uri is None:
        return access is not None
    return resources is not None and resources.is_readable(change.uri, access)


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
        from bridge.server.auth.identity import current_access

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
            with current_access() as access:
                while True:
                    await changed.wait()
                    changed = anyio.Event()
                    while waiting:
                        change = next(iter(waiting))
                        del waiting[change]
                        if _may_be_told(change, resources, access()):
                            await _send(request.session, change)
        finally:
            end()
            del self._notified[session]
            if resources is not None:
                resources.end_watches(client)

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
