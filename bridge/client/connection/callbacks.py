"""Callbacks of the SDK's client: notifications and requests from the server."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from mcp_types import (
    INVALID_PARAMS,
    CreateMessageResultWithTools,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    LoggingMessageNotificationParams,
    RequestParams,
    SamplingCapability,
    ToolListChangedNotification,
)

from bridge.client.connection.handlers import QuestionRefusedError, answer_question
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcp.client import ClientRequestContext, IncomingMessage
    from mcp_types import CreateMessageRequestParams, ElicitRequestParams
    from pydantic import BaseModel

    from bridge.client.connection.call import Call
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.session import Session
    from bridge.types import Json

_logger = logging.getLogger("bridge.client")
_Answer = TypeVar("_Answer", bound="BaseModel")


class Callbacks:
    """Callbacks for one session."""

    def __init__(self, name: str, session: Session, handlers: ClientHandlers) -> None:
        self._name = name
        self._session = session
        self._handlers = handlers

    def options(self) -> Mapping[str, Any]:
        """Arguments for the SDK's ``Client``; a capability is declared only if there is a handler."""
        return {
            "message_handler": self._on_message,
            "logging_callback": self._on_log,
            "elicitation_callback": self._on_elicitation if self._handlers.elicitation else None,
            "sampling_callback": self._on_sampling if self._handlers.sampling else None,
            "list_roots_callback": self._on_roots if self._handlers.roots else None,
            "sampling_capabilities": SamplingCapability.model_validate(
                {feature: {} for feature in self._handlers.sampling_features}
            ),
        }

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._session.tools_changed()
        elif isinstance(message, Exception):
            _logger.debug("server %r: %r", self._name, message)

    async def _on_log(self, params: LoggingMessageNotificationParams) -> None:
        call = self._session.current_call()
        if call is None:
            severity = getattr(logging, params.level.upper(), logging.INFO)
            _logger.log(severity, "server %r: %s", self._name, params.data)
        else:
            await call.on_log(params.level, params.data, params.logger)

    async def _on_elicitation(
        self, _context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        return await self._answered("elicitation/create", params, ElicitResult)

    async def _on_sampling(
        self, _context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResultWithTools | ErrorData:
        return await self._answered("sampling/createMessage", params, CreateMessageResultWithTools)

    async def _on_roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        meta = dict(context.meta or {})  # the SDK exposes no more of the request
        params = RequestParams.model_validate({"_meta": meta}) if meta else None
        return await self._answered("roots/list", params, ListRootsResult)

    async def _answered(self, method: str, params: BaseModel | None, kind: type[_Answer]) -> _Answer | ErrorData:
        wire: Json = {"method": method}
        if params is not None:
            wire["params"] = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        calls = self._session.current_calls()
        answer: Json | ErrorData = ErrorData(
            code=INVALID_PARAMS, message="the call that this request belongs to has ended"
        )
        async with anyio.create_task_group() as tasks:
            if calls:
                tasks.start_soon(_call_after, calls, tasks.cancel_scope.cancel)
            answer = await self._answer_for_calls(calls, wire)
            tasks.cancel_scope.cancel()
        return answer if isinstance(answer, ErrorData) else kind.model_validate(answer)

    async def _answer_for_calls(self, calls: Sequence[Call], wire: Json) -> Json | ErrorData:
        call = self._session.current_call()
        try:
            with ExitStack() as stack:
                for waiting in calls:
                    stack.enter_context(waiting.asking())
                context = InvocationContext() if call is None else call.context
                return await answer_question(self._handlers, wire, context)
        except QuestionRefusedError as error:
            return ErrorData(code=error.code, message=str(error), data=error.data)


async def _call_after(calls: Sequence[Call], then: Callable[[], None]) -> None:
    """Call a function after all these calls have ended: their server requests are cancelled."""
    for call in calls:
        await call.over()
    then()
