"""Messages that a server sends of itself: its notifications, and its requests to the client (handshake era)."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from bridge.client.connection.backlog import memory_of
from bridge.client.connection.handlers import QuestionRefusedError, answer_question
from bridge.protocol.messages import ProtocolError, answer
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from bridge.tools.channel import LOG_LEVELS
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.running_call import Call
    from bridge.client.connection.session import Session
    from bridge.protocol.peer import PendingRequest
    from bridge.types import Feature, Json

_QUESTIONS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
CHANGED_LISTS: dict[str, Feature] = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
"""Features whose lists have changed, by notification."""
_logger = logging.getLogger("bridge.client")


class ServerMessages:
    """Handles the messages of one session's server.

    Args:
        name: The server's name.
        session: The session.
        handlers: Handlers of its requests.
        has_extensions: True if the client declares extensions, whose notifications the handlers receive.
    """

    def __init__(self, name: str, session: Session, handlers: ClientHandlers, *, has_extensions: bool) -> None:
        self._name = name
        self._session = session
        self._handlers = handlers
        self._has_extensions = has_extensions
        self._answering: dict[Any, anyio.CancelScope] = {}

    # --- notifications ------------------------------------------------------------------------------------------------

    def on_notification(self, message: Json, of: PendingRequest | None) -> None:
        """Handle a notification; one that is malformed or unknown is dropped."""
        method, params, events = message["method"], message.get("params") or {}, self._session.events
        match method:
            case "notifications/message":
                self._on_log(params, of)
            case "notifications/cancelled":
                id_ = params.get("requestId")
                if type(id_) in {int, str} and (scope := self._answering.get(id_)) is not None:
                    scope.cancel()
            case "notifications/resources/updated":
                # In the modern era, it is of a subscription.
                if self._session.era == "handshake" and isinstance(uri := params.get("uri"), str):
                    events.update_listeners.notify(uri)
            case "notifications/elicitation/complete":
                if isinstance(elicitation_id := params.get("elicitationId"), str):
                    events.completion_listeners.notify(elicitation_id)
            case _ if method in CHANGED_LISTS:
                events.list_listeners[CHANGED_LISTS[method]].notify()
            case _ if self._has_extensions:
                self._on_other(method, params, of)

    def _on_other(self, method: str, params: Json, of: PendingRequest | None) -> None:
        """Deliver a notification of an extension, in the task of the call that it belongs to, if that is known."""
        session = self._session
        if (call := session.current_call(of)) is not None:
            call.on_notification(self._handlers.notified, method, params)
            return
        direct = session.direct_calls.only if of is None and not session.calls else None
        request = of if direct is None else direct.request
        if request is not None and request.owner is None and request.on_progress is not None:
            request.defer(partial(self._deliver_later, request, method, params))  # a task takes the call over
        elif not session.backlog.is_full:
            size_bytes = memory_of(params)
            session.backlog.begin(size_bytes)
            session.start_soon(session.backlog.deliver, size_bytes, self._deliver, method, params, InvocationContext())

    async def _deliver_later(self, request: PendingRequest, method: str, params: Json) -> None:
        context = InvocationContext() if request.owner is None else request.owner.context
        await self._deliver(method, params, context)

    async def _deliver(self, method: str, params: Json, context: InvocationContext) -> None:
        try:
            await self._handlers.notified(method, params, context)
        except Exception:
            _logger.exception("server %r: the handler of %r failed", self._name, method)

    def _on_log(self, params: Json, of: PendingRequest | None) -> None:
        level, data, logger = params.get("level"), params.get("data"), params.get("logger")
        if level not in LOG_LEVELS or "data" not in params:
            self.on_malformed({"method": "notifications/message"})
            return
        call = self._session.current_call(of)
        if call is None:
            severity = getattr(logging, level.upper(), logging.INFO)
            _logger.log(severity, "server %r: %s", self._name, data)
        else:
            call.on_log(level, data, logger if isinstance(logger, str) else None)

    def on_malformed(self, message: Json) -> None:
        """Log a notification that lacks what its method needs."""
        _logger.debug("server %r: dropped a malformed notification: %s", self._name, message["method"])

    # --- requests -----------------------------------------------------------------------------------------------------

    def on_request(self, message: Json, of: PendingRequest | None) -> None:
        """Answer a request in the background, or refuse it if too many are being answered."""
        session = self._session
        call = session.current_call(of)
        backlog = session.backlog if call is None else call.backlog
        if backlog.is_full and (of is not None or backlog.drops):
            busy = ProtocolError(INTERNAL_ERROR, "too many requests of this server wait for their answers")
            session.post_soon(answer(message["id"], busy))
            return
        size_bytes = memory_of(message.get("params"))
        backlog.begin(size_bytes)
        session.start_soon(backlog.deliver, size_bytes, self._answer, message, of)

    async def _answer(self, message: Json, of: PendingRequest | None) -> None:
        outcome: Json | ProtocolError = {}
        method = message["method"]
        is_known = self._session.era == "handshake" and (method == "ping" or method in _QUESTIONS)
        if not is_known:
            outcome = ProtocolError(METHOD_NOT_FOUND, "Method not found", method)
        elif method != "ping":
            with anyio.CancelScope() as scope:
                self._answering[message["id"]] = scope
                try:
                    outcome = await self._answered({"method": method, "params": message.get("params") or {}}, of)
                finally:
                    if self._answering.get(message["id"]) is scope:  # else of a later request with its id
                        del self._answering[message["id"]]
            if scope.cancel_called:
                return  # a cancelled request has no response
        await self._session.post(answer(message["id"], outcome))

    async def _answered(self, wire: Json, of: PendingRequest | None) -> Json | ProtocolError:
        """Answer a question until all calls that it may belong to have ended."""
        calls = self._session.current_calls(of)
        outcome: Json | ProtocolError = ProtocolError(INVALID_PARAMS, "the call that this request belongs to has ended")
        async with anyio.create_task_group() as tasks:
            if calls:
                tasks.start_soon(_call_after, calls, tasks.cancel_scope.cancel)
            outcome = await self._answer_for_calls(calls, wire, of)
            tasks.cancel_scope.cancel()
        return outcome

    async def _answer_for_calls(
        self, calls: Sequence[Call], wire: Json, of: PendingRequest | None
    ) -> Json | ProtocolError:
        call = self._session.current_call(of)
        try:
            with ExitStack() as stack:
                for waiting in calls:
                    stack.enter_context(waiting.asking())
                context = InvocationContext() if call is None else call.context
                return await answer_question(self._handlers, wire, context)
        except QuestionRefusedError as error:
            return ProtocolError(error.code, str(error), error.data)


async def _call_after(calls: Sequence[Call], then: Callable[[], None]) -> None:
    """Call a function after all these calls have ended: their server requests are cancelled."""
    for call in calls:
        await call.over()
    then()
