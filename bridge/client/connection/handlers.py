"""Handlers of server requests, in both eras, and the SDK's callbacks that call them.

A handler gets the request and the context of the call that it belongs to, and returns the answer. A capability is
declared to servers only if it has a handler (MCP, Client Features).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio
from mcp_types import (
    INVALID_PARAMS,
    CreateMessageResultWithTools,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    LoggingMessageNotificationParams,
    PromptListChangedNotification,
    RequestParams,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SamplingCapability,
    ToolListChangedNotification,
)

from bridge.errors import ToolError, WireError
from bridge.tools.context import InvocationContext
from bridge.tools.questions import Elicitation, ElicitationAnswer, Root, Roots, Sampling, SamplingAnswer, UrlElicitation
from bridge.wire.questions import answer_to_wire, question_from_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.client import ClientRequestContext, IncomingMessage
    from pydantic import BaseModel

    from bridge.client.connection.call import Call
    from bridge.client.connection.session import Session
    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

ElicitationHandler = Callable[[Elicitation | UrlElicitation, InvocationContext], Awaitable[ElicitationAnswer]]
SamplingHandler = Callable[[Sampling, InvocationContext], Awaitable[SamplingAnswer]]
RootsHandler = Callable[[InvocationContext], Awaitable[Sequence[Root]]]

_logger = logging.getLogger("bridge.client")
_Answer = TypeVar("_Answer", bound="BaseModel")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHandlers:
    """Handlers of server requests; capabilities without a handler are not declared.

    The context is that of the call that the request belongs to, if it is known. In the modern era and over streamable
    HTTP it always is; elsewhere only while all running and recently cancelled calls are of the same remote client.
    Otherwise the context is empty.
    """

    elicitation: ElicitationHandler | None = None
    """Asks the user: a form to fill in, or a page to visit."""
    sampling: SamplingHandler | None = None
    """Requests a completion from the model."""
    sampling_features: Collection[Literal["tools", "context"]] = ()
    """Supported features of sampling: tools in the request, context of servers. They are declared as well."""
    roots: RootsHandler | None = None
    """Returns the root folders."""
    extensions: Mapping[str, Json] = field(default_factory=dict)
    """Extensions that are declared to servers, with their settings; what uses this connection implements them."""

    async def answer(self, question: Question, context: InvocationContext) -> Answer:
        """Answer one server request.

        Raises:
            ToolError: There is no handler for it, or the handler refuses.
        """
        match question:
            case Elicitation() | UrlElicitation() if self.elicitation is not None:
                return await self.elicitation(question, context)
            case Sampling() if self.sampling is not None:
                if (question.tools or question.tool_choice) and "tools" not in self.sampling_features:
                    raise ToolError("the model of this client does not support tools")
                return await self.sampling(question, context)
            case Roots() if self.roots is not None:
                return tuple(await self.roots(context))
            case _:
                raise ToolError(f"this client does not support requests of the kind {type(question).__name__}")


class QuestionRefusedError(Exception):
    """A server request cannot be answered; the message may be sent to the server.

    Attributes:
        code: Code of the JSON-RPC error.
        data: Data of the JSON-RPC error.
    """

    def __init__(self, message: str, code: int = INVALID_PARAMS, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


async def answer_question(handlers: ClientHandlers, wire: Mapping[str, Any], context: InvocationContext) -> Json:
    """Answer a server request in MCP's form, ``{"method": …, "params": …}``; returns its result.

    Raises:
        QuestionRefusedError: The request is malformed or unsupported, or the handler failed, which is logged.
    """
    try:
        return answer_to_wire(await handlers.answer(question_from_wire(wire), context))
    except QuestionRefusedError:
        raise
    except (WireError, ToolError) as error:
        raise QuestionRefusedError(str(error)) from error
    except Exception as error:
        _logger.exception("the handler of %r failed", wire.get("method"))
        raise QuestionRefusedError("the handler of the request failed") from error


class Callbacks:
    """Callbacks for one session."""

    def __init__(self, name: str, session: Session, handlers: ClientHandlers) -> None:
        self._name = name
        self._session = session
        self._handlers = handlers

    def options(self) -> Mapping[str, Any]:
        """Arguments for the SDK's ``Client``; a capability is declared only if there is a handler."""
        handlers = self._handlers
        on_elicitation = partial(self._answered, "elicitation/create", ElicitResult)
        on_sampling = partial(self._answered, "sampling/createMessage", CreateMessageResultWithTools)
        features: Json = {feature: {} for feature in handlers.sampling_features}
        return {
            "message_handler": self._on_message,
            "logging_callback": self._on_log,
            "elicitation_callback": on_elicitation if handlers.elicitation else None,
            "sampling_callback": on_sampling if handlers.sampling else None,
            "list_roots_callback": self._on_roots if handlers.roots else None,
            "sampling_capabilities": SamplingCapability.model_validate(features),
        }

    async def _on_message(self, message: IncomingMessage) -> None:
        events = self._session.events
        match message:
            case ToolListChangedNotification():
                events.list_listeners["tools"].notify()
            case ResourceListChangedNotification():
                events.list_listeners["resources"].notify()
            case PromptListChangedNotification():
                events.list_listeners["prompts"].notify()
            case ResourceUpdatedNotification() if self._session.era == "handshake":  # else of a subscription
                events.update_listeners.notify(str(message.params.uri))
            case Exception():
                _logger.debug("server %r: %r", self._name, message)

    async def _on_log(self, params: LoggingMessageNotificationParams) -> None:
        call = self._session.current_call()
        if call is None:
            severity = getattr(logging, params.level.upper(), logging.INFO)
            _logger.log(severity, "server %r: %s", self._name, params.data)
        else:
            await call.on_log(params.level, params.data, params.logger)

    async def _on_roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        meta = dict(context.meta or {})  # the SDK exposes no more of the request
        params = RequestParams.model_validate({"_meta": meta}) if meta else None
        return await self._answered("roots/list", ListRootsResult, context, params)

    async def _answered(
        self, method: str, kind: type[_Answer], _context: ClientRequestContext, params: BaseModel | None
    ) -> _Answer | ErrorData:
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
