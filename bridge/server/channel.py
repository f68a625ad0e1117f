"""Channel of a served exchange: progress, log messages and questions from a running function to its client.

In the handshake era a question is a request to the client, and the call waits for the answer. In the modern era the
call ends with a result that contains the questions, and is run again with the answers.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio

from bridge.errors import ToolError, WireError
from bridge.protocol.envelope import ENVELOPE_KEYS
from bridge.protocol.messages import CallRefused, ProtocolError, notification, write_json
from bridge.protocol.rounds import FIRST_ROUND
from bridge.protocol.versions import INVALID_PARAMS, MISSING_CAPABILITY
from bridge.telemetry import current
from bridge.telemetry.instruments import Peer
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext
from bridge.tools.questions import Elicitation, InputRequired, Resumption, Sampling, UrlElicitation
from bridge.types import REQUEST_ID_META_KEY
from bridge.wire.questions import answer_from_wire, question_to_wire
from bridge.wire.tasks import without_tasks
from bridge.wire.tools import forwarded_meta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.protocol.session import Session
    from bridge.server.exchange import ServedExchange
    from bridge.tools.channel import ContentsStream
    from bridge.tools.questions import Answer, Question
    from bridge.tools.session import SessionState
    from bridge.types import Json, LogLevel

_WITHDRAW_SECONDS = 1.0


class ExchangeChannel(Channel):
    """Channel of one exchange.

    A value that cannot be written as JSON, such as a file name with a lone surrogate, fails here, in the call.
    """

    def __init__(self, exchange: ServedExchange) -> None:
        self._exchange = exchange
        self._answered: dict[str, Answer] = {}

    @property
    def peer(self) -> object | None:
        """The session, which identifies the client; None without one."""
        return self._exchange.session

    @property
    def wants_logs(self) -> bool:
        """True if the client wants log messages of any severity."""
        return self._exchange.log_level is not None

    @property
    def contents_stream(self) -> ContentsStream | None:
        """Way of large contents to the client; None if the result has to be whole."""
        exchange = self._exchange
        if exchange.contents is not None and exchange.stream is None and not exchange.is_over:
            exchange.stream = exchange.contents(exchange)
            exchange.opened_outlet().stream_contents(exchange.stream)
        return exchange.stream

    @property
    def answers(self) -> Mapping[str, Json]:
        """Answers that the client has sent with its request."""
        return self._exchange.round.answers

    @property
    def session(self) -> SessionState | None:
        """State of the client's session; None if it has none."""
        return self._exchange.responder.session_state(self._exchange)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress, if the client asked for it; values that do not increase are dropped (the protocol's rule)."""
        if (operation := self._exchange.operation) is not None:
            operation.progress = progress, total
        written = self._exchange.progress(progress, total, message)
        if written is not None:
            await self._exchange.send(written)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a log message, if the client wants messages of its severity."""
        written = self._exchange.log(level, data, logger)
        if written is not None:
            await self._exchange.send(written)

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification of an extension."""
        await self._exchange.send(notification(method, params or None))

    async def close_stream(self) -> None:
        """Close the stream of the call, if its client can resume it."""
        if not self._exchange.is_over:
            await self._exchange.opened_outlet().close_stream()

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Ask questions.

        Raises:
            InputRequired: Answers are missing, in the modern era.
            CallRefused: An answer does not fit its question, in the modern era.
            ToolError: The call has ended; or in the handshake era, the client lacks the capability, did not answer, or
                its answer is invalid.
        """
        if not self._exchange.modern:
            for key, question in questions.items():
                if key not in self._answered:
                    self._answered[key] = await self._ask(question)
            return {key: self._answered[key] for key in questions}
        given = self._exchange.round.answers
        missing = {key: question for key, question in questions.items() if key not in given}
        if missing:
            self._check_open()
            write_json([question_to_wire(question) for question in missing.values()])  # may fail, as the class says
            raise InputRequired(missing)
        try:
            return {key: answer_from_wire(question, given[key]) for key, question in questions.items()}
        except WireError as error:
            raise CallRefused(
                ProtocolError(INVALID_PARAMS, f"a malformed answer in inputResponses: {error}")
            ) from error

    def _check_open(self) -> None:
        if self._exchange.is_over:
            raise ToolError("the call has ended, and its client cannot be asked any more")

    async def _ask(self, question: Question) -> Answer:
        """Send a question of the handshake era, and wait for its answer."""
        exchange, session = self._exchange, self._exchange.session
        if session is None:
            raise ToolError("this server has no sessions with clients of this protocol version, and cannot ask them")
        if (required := missing_capability(question, session.capabilities)) is not None:
            raise ToolError(f"this call needs a client with the capability {_spelled(required)}")
        self._check_open()
        wire = question_to_wire(question)
        if isinstance(question, UrlElicitation):  # required in this era only
            wire["params"].setdefault("elicitationId", uuid4().hex)
        observer = current.observer()
        peer = Peer(exchange.origin.transport, exchange.version)
        try:
            with nullcontext() if observer is None else observer.asking(wire["method"], None, peer):
                if observer is not None and observer.tracer is not None:
                    params = wire.setdefault("params", {})
                    params["_meta"] = {**params.get("_meta", {})}
                    observer.tracer.carry(params["_meta"])
                answer = await self._answer(session, wire)
        except ProtocolError as error:
            raise ToolError(f"the client did not answer {wire['method']!r}: {error.message}") from error
        try:
            return answer_from_wire(question, answer)
        except WireError as error:
            raise ToolError(f"the client's answer to {wire['method']!r} is invalid") from error

    async def _answer(self, session: Session, wire: Json) -> Json:
        """Send a request to the client, and return its result.

        Raises:
            ProtocolError: The client answered with an error.
        """
        answered, outcome = anyio.Event(), list[Any]()

        def on_answer(received: Json | ProtocolError) -> None:
            outcome.append(received)
            answered.set()

        question = session.ask(wire["method"], wire.get("params"), on_answer)
        with self._exchange.running.asking():
            try:
                await self._exchange.send(question.text, is_notification=False)
                await answered.wait()
            except anyio.get_cancelled_exc_class():
                question.withdraw()
                params: Json = {"requestId": question.id, "reason": "caller cancelled"}
                with anyio.move_on_after(_WITHDRAW_SECONDS, shield=True):
                    await self._exchange.send(notification("notifications/cancelled", params))
                raise
            finally:
                question.withdraw()
        if isinstance(outcome[0], ProtocolError):
            raise outcome[0]
        result: Json = outcome[0]
        return result


def context_of(exchange: ServedExchange) -> InvocationContext:
    """Return the context of an exchange's code, which is made once, and connected to the client."""
    if exchange.context is not None:
        return exchange.context
    origin, meta, session = exchange.origin, exchange.meta, exchange.session
    caller = origin.caller
    context = exchange.context = InvocationContext(
        memory_id=(session and session.id) if caller is None else caller.name,
        caller=caller,
        headers=origin.texts,
        client_capabilities=without_tasks(exchange.capabilities) if session is not None else exchange.capabilities,
        protocol_version=exchange.version,
        channel=ExchangeChannel(exchange),
        account=origin.account,
    )
    if exchange.round is not FIRST_ROUND:
        found = exchange.round
        context.round = found.number
        context.resumption = None if found.saved is None else Resumption(found.saved, found.saved_answers)
    if meta and not meta.keys() <= ENVELOPE_KEYS:
        given = forwarded_meta(meta)
        given.pop(REQUEST_ID_META_KEY, None)  # the client's own id, which is not that of this server
        context.meta = given
    exchange.identify_context()
    return context


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


def input_required(exchange: ServedExchange, asked: InputRequired) -> tuple[Json, Json]:
    """Return the result that asks the client (MCP 2026-07-28, ``InputRequiredResult``), and the state for the answers.

    Raises:
        ProtocolError: The client did not declare the capability that a question needs.
    """
    for question in asked.questions.values():
        if (required := missing_capability(question, exchange.capabilities)) is not None:
            raise ProtocolError(
                MISSING_CAPABILITY,
                f"this call needs a client with the capability {_spelled(required)}",
                {"requiredCapabilities": required},
            )
    requests = {key: question_to_wire(question) for key, question in asked.questions.items()}
    return (
        {"resultType": "input_required", "inputRequests": requests},
        exchange.round.next_state(asked.questions, asked.state),
    )


def _spelled(capability: Json) -> str:
    ((name, modes),) = capability.items()
    return ".".join([name, *modes])
