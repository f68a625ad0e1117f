"""Progress, log and questions from a running tool to its client.

The way from a running tool back to a remote client, over the SDK, in both eras of the protocol.

In the handshake era a question is a request that the server sends and waits for. In the modern era nothing may wait:
the call ends in a result that asks, and is run again with the answers.

What a tool asks its client, as an observer hears of it.
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
from bridge.server.http.requests import is_message
from bridge.server.protocol import INVALID_PARAMS, MISSING_CAPABILITY, CallRefused, ProtocolError
from bridge.telemetry import switch
from bridge.telemetry.instruments import Peer
from bridge.tools.context import LOG_LEVELS
from bridge.tools.questions import Elicitation, InputRequired, Resumption, Sampling, UrlElicitation
from bridge.wire.questions import answer_from_wire, question_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from mcp.server import ServerRequestContext

    from bridge.server.running_calls import RunningCalls
    from bridge.tools.context import LogLevel
    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

_REQUESTS: dict[str, type[ElicitRequest | CreateMessageRequest | ListRootsRequest]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}

if TYPE_CHECKING:
    Request = ServerRequestContext[Any, Any]


class RemoteChannel:
    """What both eras have in common: progress and log messages, which ride on the call's own stream.

    What is no JSON, such as a lone surrogate out of the name of a file, fails here, in the call: beyond, the SDK would
    end the answer, or the whole session, because of it.

    Args:
        request: The SDK's context of the call.
        capabilities: What the client declared, in MCP's JSON.
        log_level: From which severity on the client wants log messages; None for none.
    """

    def __init__(
        self, request: ServerRequestContext[Any, Any], capabilities: Mapping[str, Any], log_level: LogLevel | None
    ) -> None:
        self._request = request
        self.capabilities = capabilities
        """What the client declared."""
        self.peer: object | None = None
        """What stands for whoever would be asked, where further calls may be of the same."""
        self.round = 0
        """How many times the call has been run before."""
        self.resumption: Resumption | None = None
        """What an earlier round left for this one."""
        self._log_from = len(LOG_LEVELS) if log_level is None else LOG_LEVELS.index(log_level)
        self._progress = float("-inf")
        self._is_open = True

    def close(self) -> None:
        """Let nothing more through: the call has ended."""
        self._is_open = False

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Say how far the call is; dropped where nobody asked, and where it does not grow (the protocol's rule)."""
        if self._is_open and isfinite(progress) and progress > self._progress:
            self._progress = progress
            total = total if total is None or isfinite(total) else None
            to_json(message)
            await self._request.session.report_progress(progress, total, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a log message; dropped where the client wants none of that severity."""
        if self._is_open and LOG_LEVELS.index(level) >= self._log_from:
            to_json([data, logger])
            params = LoggingMessageNotificationParams(level=level, data=data, logger=logger)
            await self._request.session.send_notification(
                LoggingMessageNotification(params=params), related_request_id=self._request.request_id
            )


class HandshakeChannel(RemoteChannel):
    """The channel of a client that opened with a handshake: questions are requests to it.

    Args:
        request: As above.
        capabilities: As above.
        log_level: As above.
        running: Is told while an answer is waited for.
    """

    def __init__(
        self,
        request: ServerRequestContext[Any, Any],
        capabilities: Mapping[str, Any],
        log_level: LogLevel | None,
        running: RunningCalls,
    ) -> None:
        super().__init__(request, capabilities, log_level)
        self._running = running
        self.peer = request.session.client_params  # lives as long as the client is connected
        self._answers: dict[str, Answer] = {}

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Ask one after another, each key once, and wait.

        Raises:
            ToolError: The client cannot be asked that, would not answer, or its answer cannot be read.
        """
        for key, question in questions.items():
            if key not in self._answers:
                self._answers[key] = await self._ask(question)
        return {key: self._answers[key] for key in questions}

    async def _ask(self, question: Question) -> Answer:
        if self.peer is None:
            raise ToolError("this server keeps no sessions with clients of this era, and so cannot ask them")
        if (required := missing_capability(question, self.capabilities)) is not None:
            raise ToolError(f"this tool needs a client with the capability {_spelled(required)}")
        if not self._is_open:
            raise ToolError("the call has ended, and its caller cannot be asked any more")
        wire = question_to_wire(question)
        if isinstance(question, UrlElicitation):  # this era wants one, which questions of the modern one do not have
            wire["params"].setdefault("elicitationId", uuid4().hex)
        to_json(wire)
        request = _REQUESTS[wire["method"]].model_validate(wire, by_name=False)
        metadata = ServerMessageMetadata(related_request_id=self._request.request_id)
        try:
            with self._running.asking(), observed_question(wire["method"], self._request):
                answer = await self._request.session.send_request(request, _Anything, metadata=metadata)
            return answer_from_wire(question, answer.model_dump())
        except MCPError as error:
            raise ToolError(f"the client did not answer {wire['method']!r}: {error.message}") from error
        except (ValidationError, WireError) as error:
            raise ToolError(f"the client's answer to {wire['method']!r} cannot be read") from error


class ModernChannel(RemoteChannel):
    """The channel of a client of the 2026-07-28 revision: questions end the call, and answers come with the next.

    Args:
        request: As for `RemoteChannel`; its ``requestState`` has been opened.
        capabilities: As for `RemoteChannel`.
        log_level: As for `RemoteChannel`.
    """

    def __init__(
        self, request: ServerRequestContext[Any, Any], capabilities: Mapping[str, Any], log_level: LogLevel | None
    ) -> None:
        super().__init__(request, capabilities, log_level)
        params = request.params or {}
        given = params.get("inputResponses") or {}
        sealed = params.get("requestState")
        # A client that answers before it was asked (SEP-2322 lets it) is heard, as one that will be asked soon.
        state: Json = json.loads(sealed) if sealed else {"round": -1, "asked": list(given), "answers": {}}
        self.round = state["round"] + 1
        # Otherwise an answer counts only where its question was asked.
        self._answers: Json = state["answers"] | {key: given[key] for key in state["asked"] if key in given}
        if "state" in state:  # whoever left it knows what the answers are for, and may ask the same again
            self.resumption = Resumption(state["state"], self._answers)
            self._answers = {}

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Return the answers where the client has given them all; else ask for those that are missing.

        Raises:
            InputRequired: Answers are missing.
            CallRefused: An answer is not what its question asks for.
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
        """The result that asks (MCP 2026-07-28, ``InputRequiredResult``); its state is not sealed yet.

        Raises:
            ProtocolError: The client did not declare that it can be asked that.
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
    """An answer as it came; `answer_from_wire` judges it."""

    model_config = ConfigDict(extra="allow")


def missing_capability(question: Question, capabilities: Mapping[str, Any]) -> Json | None:
    """What a client would have to declare to be asked something; None where it does.

    Args:
        question: What is to be asked.
        capabilities: What the client declared, in MCP's JSON.
    """
    match question:
        case Elicitation():
            declared = capabilities.get("elicitation")
            # An empty declaration is older than the modes, and means forms.
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
    """Who sent a message, as telemetry tells of it."""
    return Peer(_transport_of(ctx), ctx.protocol_version or "")


def _transport_of(ctx: Request) -> str:
    if ctx.request is None:
        return "stdio"
    return "sse" if is_message(ctx.request.scope) else "http"


def observed_question(method: str, request: ServerRequestContext[Any, Any]) -> AbstractContextManager[object]:
    """A block in which a request is sent to a client, and its answer awaited.

    Its trace needs nothing more: the SDK writes the current one into what it sends.

    Args:
        method: MCP's method.
        request: The client's request, while which it is asked.
    """
    observer = switch.observer()
    return nullcontext() if observer is None else observer.asking(method, None, client_of(request))
