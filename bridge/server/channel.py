"""Channels: progress, log messages and questions from a running tool to its client, through the SDK.

In the handshake era a question is a request to the client, and the call waits for the answer. In the modern era the
call ends with a result that contains the questions, and is run again with the answers.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from math import isfinite
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mcp import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CreateMessageRequest,
    ElicitRequest,
    ListRootsRequest,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from bridge.errors import ToolError, WireError
from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import INVALID_PARAMS, MISSING_CAPABILITY
from bridge.server.http.requests import is_message
from bridge.telemetry import switch
from bridge.telemetry.instruments import Peer
from bridge.tools.channel import LOG_LEVELS
from bridge.tools.questions import Elicitation, InputRequired, Resumption, Sampling, UrlElicitation
from bridge.wire.questions import answer_from_wire, question_to_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.server import ServerRequestContext

    from bridge.server.running_calls import RunningCalls
    from bridge.tools.channel import LogLevel
    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

    Request = ServerRequestContext[Any, Any]

_REQUESTS: dict[str, type[ElicitRequest | CreateMessageRequest | ListRootsRequest]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}


class RemoteChannel:
    """Progress and log messages, for both eras, on the call's own stream.

    A value that cannot be written as JSON, such as a file name with a lone surrogate, fails here, in the call. In the
    SDK it would end the response or the session.
    """

    def __init__(
        self, request: ServerRequestContext[Any, Any], capabilities: Mapping[str, Any], log_level: LogLevel | None
    ) -> None:
        self._request = request
        self.capabilities = capabilities
        """Capabilities that the client declared."""
        self.peer: object | None = None
        """Token that identifies the client across calls; None if there is none."""
        self.round = 0
        """Number of earlier rounds of the call."""
        self.resumption: Resumption | None = None
        """State that an earlier round saved for this one."""
        self.wants_logs = log_level is not None
        """True if the client wants log messages of any severity."""
        self._log_from = len(LOG_LEVELS) if log_level is None else LOG_LEVELS.index(log_level)
        self._progress = float("-inf")
        self._is_open = True

    def close(self) -> None:
        """Drop further messages, because the call has ended."""
        self._is_open = False

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress, if the client asked for it; values that do not increase are dropped (the protocol's rule)."""
        if self._is_open and isfinite(progress) and progress > self._progress:
            self._progress = progress
            total = total if total is None or isfinite(total) else None
            to_json(message)
            await self._request.session.report_progress(progress, total, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a log message, if the client wants messages of its severity."""
        if self._is_open and LOG_LEVELS.index(level) >= self._log_from:
            to_json([data, logger])
            params = LoggingMessageNotificationParams(level=level, data=data, logger=logger)
            await self._request.session.send_notification(
                LoggingMessageNotification(params=params), related_request_id=self._request.request_id
            )


class HandshakeChannel(RemoteChannel):
    """Channel of a client of the handshake era: questions are requests to the client, which ``running`` counts.

    Args:
        request: The request.
        capabilities: The client's capabilities.
        log_level: Minimum severity of log messages; None for none.
        running: Counts the questions.
        peer: Identifies the client on the fast path as well; None if only the SDK knows it.
        end_stream: Closes the stream of the call; None if it cannot be resumed.
    """

    def __init__(
        self,
        request: ServerRequestContext[Any, Any],
        capabilities: Mapping[str, Any],
        log_level: LogLevel | None,
        running: RunningCalls,
        peer: object | None = None,
        end_stream: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(request, capabilities, log_level)
        self._end_stream = end_stream
        self._running = running
        client = request.session.client_params  # lives as long as the client is connected
        self.peer = None if client is None else peer or client
        self._answers: dict[str, Answer] = {}

    async def close_stream(self) -> None:
        """Close the stream of the call, if its client can resume it."""
        if self._is_open and self._end_stream is not None:
            await self._end_stream()

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Ask questions one after another, each key once, and wait for the answers.

        Raises:
            ToolError: The client lacks the capability, did not answer, or its answer is invalid.
        """
        for key, question in questions.items():
            if key not in self._answers:
                self._answers[key] = await self._ask(question)
        return {key: self._answers[key] for key in questions}

    async def _ask(self, question: Question) -> Answer:
        if self.peer is None:
            raise ToolError("this server has no sessions with clients of this protocol version, and cannot ask them")
        if (required := missing_capability(question, self.capabilities)) is not None:
            raise ToolError(f"this call needs a client with the capability {_spelled(required)}")
        if not self._is_open:
            raise ToolError("the call has ended, and its client cannot be asked any more")
        wire = question_to_wire(question)
        if isinstance(question, UrlElicitation):  # required in this era only
            wire["params"].setdefault("elicitationId", uuid4().hex)
        to_json(wire)
        request = _REQUESTS[wire["method"]].model_validate(wire, by_name=False)
        metadata = ServerMessageMetadata(related_request_id=self._request.request_id)
        observer = switch.observer()  # the SDK writes the current trace into the question
        asking = nullcontext() if observer is None else observer.asking(wire["method"], None, client_of(self._request))
        try:
            with self._running.asking(), asking:
                answer = await self._request.session.send_request(request, _Anything, metadata=metadata)
            return answer_from_wire(question, answer.model_dump())
        except MCPError as error:
            raise ToolError(f"the client did not answer {wire['method']!r}: {error.message}") from error
        except (ValidationError, WireError) as error:
            raise ToolError(f"the client's answer to {wire['method']!r} is invalid") from error


class ModernChannel(RemoteChannel):
    """Channel of a client of version 2026-07-28: questions end the call, and the next round brings the answers.

    The ``requestState`` of the request has been decrypted.
    """

    def __init__(
        self, request: ServerRequestContext[Any, Any], capabilities: Mapping[str, Any], log_level: LogLevel | None
    ) -> None:
        super().__init__(request, capabilities, log_level)
        params = request.params or {}
        given = params.get("inputResponses") or {}
        sealed = params.get("requestState")
        # A client may answer before it was asked (SEP-2322): keep its answers for questions of this round.
        state: Json = json.loads(sealed) if sealed else {"round": -1, "asked": list(given), "answers": {}}
        self.round = state["round"] + 1
        # Otherwise, only answers to questions of the last round count.
        self._answers: Json = state["answers"] | {key: given[key] for key in state["asked"] if key in given}
        if "state" in state:  # the code that saved it handles the answers, and may ask the same questions again
            self.resumption = Resumption(state["state"], self._answers)
            self._answers = {}

    @property
    def answers(self) -> Mapping[str, Json]:
        """The client's answers so far, by key, in MCP's JSON."""
        return self._answers

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Return the client's answers.

        Raises:
            InputRequired: Answers are missing.
            CallRefused: An answer does not fit its question.
        """
        missing = {key: question for key, question in questions.items() if key not in self._answers}
        if missing:
            raise InputRequired(missing)
        try:
            return {key: answer_from_wire(question, self._answers[key]) for key, question in questions.items()}
        except WireError as error:
            raise CallRefused(
                ProtocolError(INVALID_PARAMS, f"a malformed answer in inputResponses: {error}")
            ) from error

    def input_required(self, asked: InputRequired) -> Json:
        """Return a result with questions (MCP 2026-07-28, ``InputRequiredResult``); its state is not encrypted yet.

        Raises:
            ProtocolError: The client did not declare the capability that a question needs.
        """
        for question in asked.questions.values():
            if (required := missing_capability(question, self.capabilities)) is not None:
                raise ProtocolError(
                    MISSING_CAPABILITY,
                    f"this call needs a client with the capability {_spelled(required)}",
                    {"requiredCapabilities": required},
                )
        state: Json = {"round": self.round, "asked": list(asked.questions), "answers": self._answers}
        if asked.state is not None:
            state["state"] = asked.state
        return {
            "resultType": "input_required",
            "inputRequests": {key: question_to_wire(question) for key, question in asked.questions.items()},
            "requestState": json.dumps(state),
        }


class _Anything(BaseModel):
    """An answer without validation, which `answer_from_wire` does."""

    model_config = ConfigDict(extra="allow")


def missing_capability(question: Question, capabilities: Mapping[str, Any]) -> Json | None:
    """Return the capability that a question needs and the client did not declare; None if it did."""
    match question:
        case Elicitation():
            declared = capabilities.get("elicitation")
            # Before there were modes, an empty declaration meant forms.
            has = declared is not None and ("form" in declared or "url" not in declared)
            return None if has else {"elicitation": {"form": {}}}
        case UrlElicitation():
            return None if "url" in (capabilities.get("elicitation") or {}) else {"elicitation": {"url": {}}}
        case Sampling():
            declared = capabilities.get("sampling")
            if declared is not None and (question.tools or question.tool_choice) and "tools" not in declared:
                return {"sampling": {"tools": {}}}
            return None if declared is not None else {"sampling": {}}
        case _:
            return None if capabilities.get("roots") is not None else {"roots": {}}


def _spelled(capability: Json) -> str:
    ((name, modes),) = capability.items()
    return ".".join([name, *modes])


def client_of(ctx: Request) -> Peer:
    """Return the peer of a message, for telemetry."""
    transport = "stdio" if ctx.request is None else "sse" if is_message(ctx.request.scope) else "http"
    return Peer(transport, ctx.protocol_version or "")
