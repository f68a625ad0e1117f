"""``subscriptions/listen``: a long request of the modern era, whose stream has notifications of changes.

MCP 2026-07-28, "Subscriptions". In the handshake era, `bridge.server.notifications` notifies every session.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING

from bridge.protocol.messages import ProtocolError
from bridge.protocol.subscriptions import Filter, Subscription
from bridge.protocol.versions import INVALID_PARAMS, LIMIT_EXCEEDED
from bridge.server.auth.identity import current_access, ending_with_credential
from bridge.server.channel import context_of
from bridge.server.limits.memory import kept_bytes
from bridge.server.limits.shares import Shares
from bridge.server.methods.method import MODERN, Method
from bridge.server.methods.tasks import fitted_task
from bridge.server.notifications import Pending, may_be_told
from bridge.wire.extension import TASKS
from bridge.wire.tasks import supports_tasks, task_notification_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.server.auth.access import Access
    from bridge.server.changes import Change
    from bridge.server.core import ServerCore
    from bridge.server.exchange import ServedExchange
    from bridge.server.lists.resources import ServedResources
    from bridge.tools.context import InvocationContext
    from bridge.tools.task import Task

MAX_SUBSCRIPTIONS = 1024
"""Maximum number of open subscriptions, which callers share."""
MAX_KEPT_BYTES = 256 * 1024
"""Maximum memory of the parameters of one, which are kept while it is open, as `kept_bytes` estimates it."""

_RETRY_SECONDS = 10


class Listen(Method):
    """Subscriptions, each of which can be ended by its result."""

    name = "subscriptions/listen"
    eras = MODERN
    waits_for_start = False

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._open: set[Pending] = set()

    @cached_property
    def _shares(self) -> Shares:
        return Shares(MAX_SUBSCRIPTIONS)

    def plan(self, exchange: ServedExchange) -> None:
        """Read what the client wants to hear of.

        Raises:
            ProtocolError: Too many are open, of all callers or of this one, the parameters are malformed or too large,
                or the client subscribes to tasks, and does not support them.
        """
        if not self._shares.has_room(exchange.origin.account):
            message = (
                f"too many subscriptions: a caller may open as many as stay free of {self._shares.places}; "
                f"try again in {_RETRY_SECONDS} seconds"
            )
            raise ProtocolError(LIMIT_EXCEEDED, message, {"retryAfterSeconds": _RETRY_SECONDS})
        kept = kept_bytes(json.dumps(exchange.params).encode())  # which writes lone surrogates, too
        if kept > MAX_KEPT_BYTES:
            raise ProtocolError(INVALID_PARAMS, f"a subscription may take {MAX_KEPT_BYTES} bytes, not {kept}")
        wanted = Filter.read(exchange.params)
        if wanted.task_ids and self._core.has_tasks and not supports_tasks(exchange.capabilities):
            raise TASKS.missing("a subscription with 'taskIds'")
        exchange.found = wanted

    async def run(self, exchange: ServedExchange) -> bytes:
        """Serve a subscription until its client disconnects, it is ended, or its credential is no longer valid.

        The acknowledgement leaves out what the server does not have, and what the caller cannot read.
        """
        pending, subscription = Pending(), Subscription(exchange.id)
        context = context_of(exchange)
        self._open.add(pending)
        try:
            with (
                self._shares.taking(exchange.origin.account),
                ending_with_credential(pending.close, self._core.profile),
                current_access(self._core.profile) as access,
            ):
                resources = (await self._core.lists_of(context)).resources
                honoured = await self._honoured(exchange, context, resources)
                if not honoured.uris or resources is None:
                    await self._serve(exchange, subscription, honoured, context, pending, access)
                else:
                    async with resources.watching(honoured.uris, context) as uris:
                        honoured = honoured._replace(uris=tuple(uris))
                        await self._serve(exchange, subscription, honoured, context, pending, access)
        finally:
            self._open.discard(pending)
        return exchange.write({"resultType": "complete", "_meta": subscription.meta})

    async def _honoured(
        self, exchange: ServedExchange, context: InvocationContext, resources: ServedResources | None
    ) -> Filter:
        """Return what a caller may be notified of."""
        wanted: Filter = exchange.found
        core = self._core
        lists = {"tools"} | ({"prompts"} if core.prompts else set()) | ({"resources"} if resources else set())
        uris = [uri for uri in wanted.uris if resources is not None and resources.is_readable(uri, exchange.access)]
        tasks = wanted.task_ids if core.has_tasks else ()
        found = [each for each in tasks if await self._task_of(each, context) is not None]
        return Filter(wanted.lists & lists, tuple(uris), tuple(found))

    async def _task_of(self, task_id: str, context: InvocationContext) -> Task | None:
        try:
            if (forwarded := self._core.forwarded(task_id)) is not None:
                return await forwarded.get(task_id, context)
            return await self._core.tasks.get(task_id, context.caller)
        except ProtocolError:
            return None

    def _follow(
        self, context: InvocationContext, task_ids: tuple[str, ...], listener: Callable[[str], None]
    ) -> list[Callable[[], None]]:
        """Call a function after each change of tasks; return functions that end that."""
        own = [each for each in task_ids if self._core.forwarded(each) is None]
        ends = [self._core.tasks.listeners.add(own, listener)] if own else []
        forwarded = self._core.features.tasks
        if forwarded is not None and len(own) < len(task_ids):
            ends.append(forwarded.watch([each for each in task_ids if each not in own], context, listener))
        return ends

    async def _serve(
        self,
        exchange: ServedExchange,
        subscription: Subscription,
        honoured: Filter,
        context: InvocationContext,
        pending: Pending,
        access: Callable[[], Access | None],
    ) -> None:
        """Send the acknowledgement, then notifications."""

        def on_change(changes: frozenset[Change]) -> None:
            now, lists = access(), self._core.lists_for(context.caller) or self._core.lists
            wanted = (each for each in changes if honoured.has(each.feature, each.uri) and each.is_for(context.caller))
            pending.put(each for each in wanted if may_be_told(each, lists, now))

        ends = [self._core.changes.listen(on_change), *self._follow(context, honoured.task_ids, pending.put_one)]
        try:
            await exchange.send(subscription.acknowledged(honoured))
            for each in honoured.task_ids:
                task = await self._task_of(each, context)
                if task is not None and task.status != "working":  # it has changed before it was subscribed to
                    pending.put_one(each)
            async for change in pending:
                if not isinstance(change, str):
                    await exchange.send(subscription.changed(change.feature, change.uri))
                elif (task := await self._task_of(change, context)) is not None:
                    if (forwarded := self._core.forwarded(change)) is not None:
                        task = await fitted_task(self._core, task, forwarded.tool_of(change, context), context)
                    wire = task_notification_to_wire(task)
                    await exchange.send(subscription.notification("notifications/tasks", wire))
        finally:
            for end in ends:
                end()

    def close(self) -> None:
        """End all subscriptions, each by its result."""
        for pending in tuple(self._open):
            pending.close()
