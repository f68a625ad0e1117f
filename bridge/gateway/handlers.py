"""Questions of servers to a gateway's callers: capabilities, forwarding in the handshake era, answers in the modern."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.client.connection.cancelled_calls import GIVEN_UP_SECONDS
from bridge.client.connection.handlers import ClientHandlers, QuestionRefusedError
from bridge.errors import ToolError, WireError
from bridge.gateway.suspended_calls import TooManySuspendedError
from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import INVALID_PARAMS, LIMIT_EXCEEDED, MODERN_VERSIONS
from bridge.text import with_count
from bridge.tools.forms import MisfitError
from bridge.tools.questions import InputRequired, asked_again, fitting
from bridge.wire.extension import APPS, NOTIFICATION_PREFIX, TASKS
from bridge.wire.questions import answer_from_wire, question_from_wire

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bridge.gateway.suspended_calls import PendingQuestions
    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

_logger = logging.getLogger("bridge.gateway")

QUESTIONS = frozenset({"elicitation", "sampling", "roots"})
"""Capabilities of a client that can be asked."""


def capabilities_of(context: InvocationContext, configured: Collection[str]) -> Json | None:
    """Return what a server may use of the caller's capabilities; None for a local caller. See `passed_on`."""
    if not context.protocol_version:
        return None
    return passed_on(context.client_capabilities, configured, modern=context.protocol_version in MODERN_VERSIONS)


def passed_on(given: Mapping[str, Any], configured: Collection[str], *, modern: bool) -> Json:
    """Return what a server may use of a caller's capabilities: to be asked, apps, tasks, and configured extensions.

    The handshake era has no tasks: for its callers, the gateway waits for the tasks of servers.

    Args:
        given: The capabilities that the caller declares.
        configured: Extensions of the server's configuration.
        modern: True for a caller of version 2026-07-28.
    """
    capabilities = {name: given[name] for name in QUESTIONS if name in given}
    declared = given.get("extensions")
    extensions = (
        {key: declared[key] for key in declared if key == APPS.id or key in configured}
        if isinstance(declared, dict)
        else {}
    )
    if not modern or TASKS.declared_in(given) is not None:
        extensions[TASKS.id] = {}
    return capabilities | ({"extensions": extensions} if extensions else {})


class _ForwardingHandlers(ClientHandlers):
    """Forwards each question to the caller of the call during which the server asks."""

    __slots__ = ()

    async def notified(self, method: str, params: Json, context: InvocationContext) -> None:
        if context.has_listener and method.startswith(NOTIFICATION_PREFIX):
            await context.notify(method, params)
        else:
            _logger.debug("dropped a notification %r of a server: it belongs to no call", method)

    async def answer(self, question: Question, context: InvocationContext) -> Answer:
        if not context.has_listener:
            raise ToolError(
                "calls of several callers are running, or were abandoned within the last "
                f"{with_count(GIVEN_UP_SECONDS, 'second')} and may still run, and this server does not tell which of "
                "them asks: the question was refused; call again in a moment, when the server is idle"
            )
        key = uuid4().hex
        try:
            return (await context.ask({key: question}))[key]
        except TooManySuspendedError as error:
            data = {"retryAfterSeconds": error.retry_after_seconds}
            raise QuestionRefusedError(str(error), LIMIT_EXCEEDED, data) from error
        except InputRequired:  # the caller's protocol version cannot answer during the call
            raise ToolError("the caller cannot be asked while the call runs") from None


def proxy_handlers() -> ClientHandlers:
    """Create handlers that forward a server's questions to the caller of the call during which it asks."""

    async def never(*_: object) -> Any:
        raise AssertionError("questions are forwarded by answer()")

    return _ForwardingHandlers(
        elicitation=never, sampling=never, sampling_features=("tools", "context"), roots=never, extensions=(APPS,)
    )


def responses_of(state: Mapping[str, Any], answers: Mapping[str, Json]) -> Json:
    """Return the caller's answers to a round of questions for the server.

    A form that does not fit its schema is asked once more, and then counts as declined.

    Raises:
        InputRequired: A form is asked again.
        CallRefused: An answer does not match its question.
    """
    responses: Json = {**state.get("kept", {}), **{key: answers[key] for key in state["asked"] if key in answers}}
    again: dict[str, Question] = {}
    for key, wire in state.get("forms", {}).items():
        if key in responses:
            question = question_from_wire(wire)
            try:
                fitting(question, answer_from_wire(question, responses[key]))
            except MisfitError as error:
                again[key], responses[key] = asked_again(question, error), {"action": "decline"}
            except WireError as error:
                raise malformed(error) from error
    if again and "kept" not in state:
        kept = {key: answer for key, answer in responses.items() if key not in again}
        raise InputRequired(again, {**state, "asked": list(again), "kept": kept})
    return responses


def malformed(error: WireError) -> CallRefused:
    """Return the refusal of a request with an answer that does not match its question."""
    return CallRefused(ProtocolError(INVALID_PARAMS, f"a malformed answer in inputResponses: {error}"))


def answer_from(pending: PendingQuestions, answers: Mapping[str, Any]) -> bool:
    """Answer the questions if the caller's request contains all answers; return True if it does.

    Raises:
        CallRefused: An answer does not match its question.
    """
    if not pending.questions.keys() <= answers.keys():
        return False
    try:
        pending.settle({key: answer_from_wire(question, answers[key]) for key, question in pending.questions.items()})
    except WireError as error:
        raise malformed(error) from error
    return True
