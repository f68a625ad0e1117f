"""Passing: a remote tool served again. Arguments go as they came, results come as they are, questions reach the caller.

A server of the modern era ends a call with its questions: they are passed on, its state inside ours. A server of the
handshake era asks while the call runs: the call is attended by the caller's request, and held between two of them
(`bridge.gateway.suspended_calls`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio

from bridge.client.connection.handlers import ClientHandlers
from bridge.client.connection.requests import GIVEN_UP_SECONDS
from bridge.errors import ServerError, ServerRefusedError, ToolError, WireError
from bridge.server.channel import missing_capability
from bridge.server.protocol import (
    INVALID_PARAMS,
    SERVER_INFO_KEY,
    URL_ELICITATION_REQUIRED,
    CallRefused,
    ProtocolError,
)
from bridge.text import with_count
from bridge.tools.questions import InputRequired
from bridge.wire.questions import answer_from_wire, answer_to_wire, question_from_wire
from bridge.wire.tools import result_from_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.connection.connection import Connection
    from bridge.client.remote_tool import RemoteExecutor
    from bridge.gateway.suspended_calls import PendingQuestions, SuspendedCall, SuspendedCalls
    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Answer, Question
    from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
    from bridge.types import Json

MAX_ROUNDS = 10
"""How often a server may ask within one request, as in the SDKs."""

_STATE_ONLY_SECONDS = 0.1
_QUESTIONS = frozenset({"elicitation", "sampling", "roots"})
_UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class ProxyExecutor:
    """Runs a remote tool for somebody else's caller."""

    remote: RemoteExecutor
    """The tool where it lives."""
    connection: Connection = field(compare=False)
    """The connection to its server, which knows the server's era."""
    holding: SuspendedCalls = field(compare=False)
    """Where calls wait for answers."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request.

        Raises:
            ToolError: The server is not there, refused, or answered what is no result; it names server and tool.
            InputRequired: The server asked, and only the caller's next request can answer.
            CallRefused: An answer is not what its question asks for, or the server wants pages visited first.
        """
        assert not isinstance(request.arguments, str)
        try:
            wire = await self._call(request.arguments, context)
            result = result_from_wire(wire)
        except ServerRefusedError as error:
            if error.code != URL_ELICITATION_REQUIRED:
                raise ToolError(error.brief) from error
            # It is an error of the protocol that a client acts upon: pages to visit before the call can be made.
            message = self.connection.config.transport.scrub(error.message)
            raise CallRefused(ProtocolError(error.code, message, error.data)) from error
        except ServerError as error:
            raise ToolError(error.brief) from error
        except WireError as error:
            raise ToolError(f"{self._shown} answered what is no result: {error}") from error
        if SERVER_INFO_KEY in result.metadata:  # which server made it is for this side to say
            kept = {key: value for key, value in result.metadata.items() if key != SERVER_INFO_KEY}
            return replace(result, metadata=kept)
        return result

    @property
    def _shown(self) -> str:
        return f"the tool {self.remote.tool!r} of the server {self.remote.server.name!r}"

    async def _call(self, arguments: Mapping[str, Any], context: InvocationContext) -> Json:
        state = context.resumption.state if context.resumption is not None else {}
        if "held" in state:
            return await self._attend(self._resumed(state, context), context)
        may_be_asked = not _QUESTIONS.isdisjoint(context.client_capabilities)
        if _UPSTREAM in state or self.connection.era == "modern" or not may_be_asked:
            return await self._call_in_rounds(arguments, context)
        held = self.holding.begin(lambda inner: self.remote.call(arguments, inner), context)
        return await self._attend(held, context)

    # --- a server that ends a call in order to ask -------------------------------------------------------------------

    async def _call_in_rounds(self, arguments: Mapping[str, Any], context: InvocationContext) -> Json:
        responses: Json | None = None
        request_state: str | None = None
        if context.resumption is not None and _UPSTREAM in context.resumption.state:
            state, answers = context.resumption.state, context.resumption.answers
            responses = {key: answers[key] for key in state["asked"] if key in answers}
            request_state = state[_UPSTREAM]
        for number in range(MAX_ROUNDS):
            wire = await self.remote.call(
                arguments,
                context,
                input_responses=responses,
                request_state=request_state,
                hands_on_questions=True,
            )
            if wire.get("resultType") != "input_required":
                return wire
            request_state = wire.get("requestState")
            responses = await self._answers(wire.get("inputRequests"), request_state, context, number)
        raise ToolError(f"{self._shown} asks more than {MAX_ROUNDS} times")

    async def _answers(
        self, asked: Any, request_state: str | None, context: InvocationContext, number: int
    ) -> Json | None:
        """The caller's answers to one round of questions, as MCP writes them.

        Raises:
            InputRequired: They come with the caller's next request.
        """
        if not asked:
            await anyio.sleep(_STATE_ONLY_SECONDS)
            return None
        try:
            questions = {key: question_from_wire(wire) for key, wire in asked.items()}
        except WireError as error:
            raise ToolError(f"{self._shown} asks what is not known here: {error}") from error
        # A caller that answers in place is asked again where the server uses a key again.
        named = {key: key if number == 0 else f"{key}-{number}" for key in questions}
        try:
            answers = await context.ask({named[key]: question for key, question in questions.items()})
        except InputRequired as waiting:
            unanswered = {key: questions[key] for key in questions if named[key] in waiting.questions}
            raise InputRequired(unanswered, {_UPSTREAM: request_state, "asked": list(questions)}) from None
        return {key: answer_to_wire(answers[named[key]]) for key in questions}

    # --- a server that asks while the call runs ----------------------------------------------------------------------

    def _resumed(self, state: Mapping[str, Any], context: InvocationContext) -> SuspendedCall:
        try:
            return self.holding.resume(state, context)
        except ToolError as error:
            raise ToolError(f"{self._shown}: {error}") from None

    async def _attend(self, held: SuspendedCall, context: InvocationContext) -> Json:
        """Bring the questions of a call to its caller until it has ended."""
        try:
            given = context.resumption.answers if context.resumption is not None else {}
            while (asked := await held.next_question()) is not None:
                if not _answered(asked, given):
                    await self._put(asked, held, context)
            return held.collect()
        except InputRequired:
            raise
        except CallRefused:
            self.holding.keep(held, beyond_limit=True)  # the caller may give a better answer
            raise
        except BaseException:
            held.cancel()
            raise

    async def _put(self, asked: PendingQuestions, held: SuspendedCall, context: InvocationContext) -> None:
        """Put one question to the caller.

        Raises:
            InputRequired: It is answered with the caller's next request.
        """
        if any(missing_capability(question, context.client_capabilities) for question in asked.questions.values()):
            asked.refuse("the client behind this gateway cannot be asked that")
            return
        try:
            with asked.asking():
                asked.answer(await context.ask(asked.questions))
        except ToolError as error:
            asked.refuse(str(error))
        except InputRequired as waiting:
            try:
                state = self.holding.keep(held)
            except ToolError as error:
                asked.refuse(str(error))
            else:
                raise InputRequired(waiting.questions, state) from None


def _answered(asked: PendingQuestions, given: Mapping[str, Any]) -> bool:
    """Whether the caller's request brought the answers.

    Raises:
        CallRefused: One is not what its question asks for.
    """
    if not asked.questions.keys() <= given.keys():
        return False
    try:
        asked.answer({key: answer_from_wire(question, given[key]) for key, question in asked.questions.items()})
    except WireError as error:
        raise CallRefused(ProtocolError(INVALID_PARAMS, f"a malformed answer in inputResponses: {error}")) from error
    return True


class _PassingHandlers(ClientHandlers):
    """Puts every question as it is to the caller of the call within which a server asks."""

    __slots__ = ()

    async def answer(self, question: Question, context: InvocationContext) -> Answer:
        if not context.has_listener:
            raise ToolError(
                "calls of several callers are under way, or were given up within the last "
                f"{with_count(GIVEN_UP_SECONDS, 'second')} and may go on, and this server does not tell which of them "
                "asks: nobody was asked; call again in a moment, when it is idle"
            )
        key = uuid4().hex
        try:
            return (await context.ask({key: question}))[key]
        except InputRequired:  # the server has another era than a moment ago
            raise ToolError("the caller cannot be asked while the call runs") from None


def proxy_handlers() -> ClientHandlers:
    """Handlers that put what a server asks to the caller of the call within which it asks."""

    async def unused(*_: object) -> Any:
        raise AssertionError("questions are passed on whole")

    return _PassingHandlers(elicitation=unused, sampling=unused, sampling_features=("tools", "context"), roots=unused)
