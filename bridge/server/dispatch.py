"""Dispatch: from a message to its method, and from the method's result to the answer.

    message ─> Dispatch ─┬─> bytes             the whole answer
                         ╰─> ServedExchange    to be started or run by its transport ─> answer

An answer that is an error is an `ErrorAnswer`, whose code the transport may need.
It has no I/O, and is shared by all transports. Clauses: MCP 2025-11-25 and 2026-07-28, "Basic protocol"; JSON-RPC 2.0.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pydantic_core import to_json

from bridge.protocol.envelope import ModernEnvelopes, check_meta
from bridge.protocol.messages import ErrorAnswer, ProtocolError, answer, result_message
from bridge.protocol.rounds import StateSeal
from bridge.protocol.versions import (
    CAPABILITIES_KEY,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PROTOCOL_VERSION_KEY,
)
from bridge.server.channel import input_required
from bridge.server.exchange import ServedExchange
from bridge.server.methods.extensions import ExtensionRequests
from bridge.server.methods.registry import methods_of
from bridge.tools.questions import InputRequired
from bridge.wire.received import SERVER_INFO_KEY, Received, write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.protocol.session import Session
    from bridge.server.core import ServerCore
    from bridge.server.exchange import Origin
    from bridge.server.forwarded import ForwardedCall
    from bridge.server.lists.search import SearchedTools
    from bridge.server.methods.method import Era, Method
    from bridge.server.start import Start
    from bridge.tools.session import SessionState
    from bridge.types import Json, Step

_logger = logging.getLogger("bridge.server")
_EMPTY: Json = {}
_OF_TRANSPORT = frozenset({"notifications/initialized", "notifications/cancelled", "notifications/progress"})
"""Notifications that no extension has."""


class Dispatch:
    """Dispatches the requests of one server.

    Args:
        core: The server.
        responder: Makes the responder of a method; by default, `Responder`.
        has_sessions: False if clients of the handshake era have no sessions.
    """

    def __init__(
        self,
        core: ServerCore,
        responder: Callable[[Method, StateSeal], Responder] | None = None,
        *,
        has_sessions: bool = True,
    ) -> None:
        self.methods = methods = methods_of(core)
        """The methods by name."""
        self.targets: Mapping[str, str] = {
            name: param
            for name, method in methods.items()
            if (param := method.target_param or method.header_param) is not None
        }
        """The parameter that HTTP repeats in ``Mcp-Name``, by method."""
        seal = StateSeal(core.state_keys, core.name)
        make = responder or Responder
        responders: dict[Method, Planner] = {method: make(method, seal) for method in methods.values()}
        if core.views.search is not None:
            call = methods["tools/call"]
            responders[call] = _CallsOfFoundTools(core, core.views.search, responders[call])

        self._others = ExtensionRequests(core, methods)
        other = make(self._others, seal)

        def now(method: Method, responder: Planner) -> Planner:
            start = core.features.start
            if start is None or start.is_over or not method.waits_for_start:
                return responder
            return _DuringStart(start, method, responder)

        def of(era: Era) -> dict[str, Planner]:
            return {
                method.name: now(method, each)
                for method, each in responders.items()
                if era in method.eras and (has_sessions or not method.needs_session) and method.is_served
            }

        def serve() -> None:
            self._handshake, self._modern = of("handshake"), of("modern")
            self._other = now(self._others, other)

        serve()
        core.on_features(serve)
        if core.features.start is not None:
            core.features.start.on_end(serve)
        self._running = core.running
        self._envelopes = ModernEnvelopes()
        self._stamp: Json = {SERVER_INFO_KEY: core.implementation}
        self._write_stamped = self._stamped  # bound once
        self._ending = b',"resultType":"complete","_meta":%b' % to_json(self._stamp)

    def handshake(self, message: Json, session: Session | None, origin: Origin, version: str) -> bytes | ServedExchange:
        """Dispatch a request of the handshake era.

        Args:
            message: A request, as `bridge.protocol.messages.read_message` returns it.
            session: The session; None without one.
            origin: Where it comes from.
            version: Protocol version; empty before it is negotiated.
        """
        method, params = message["method"], message.get("params") or _EMPTY
        responder = self._handshake.get(method, self._other)
        exchange = ServedExchange(
            message["id"],
            method,
            params,
            version,
            False,
            _EMPTY if session is None else session.capabilities,
            session,
            origin,
            self._running,
            write_result,
        )
        try:
            check_meta(params.get("_meta"))
            # Clients of other eras try their methods before the handshake.
            if session is not None and (responder is not self._other or self._others.serves(exchange)):
                _check_session(session, exchange)
        except ProtocolError as error:
            return responder.refuse(exchange, error)
        return responder.plan(exchange)

    def modern(self, message: Json, origin: Origin, *, is_checked: bool = False) -> bytes | ServedExchange:
        """Dispatch a request of version 2026-07-28.

        Args:
            message: A request, as `bridge.protocol.messages.read_message` returns it.
            origin: Where it comes from.
            is_checked: True if the envelope of a request that differs by its id alone was valid.
        """
        params = message.get("params") or _EMPTY
        meta: Json = params.get("_meta")  # type: ignore[assignment]  # checked below
        if not is_checked:
            try:
                self._envelopes.check(meta)
            except ProtocolError as error:
                return ErrorAnswer.of(message["id"], error)
        method = message["method"]
        return self._modern.get(method, self._other).plan(
            ServedExchange(
                message["id"],
                method,
                params,
                meta[PROTOCOL_VERSION_KEY],
                True,
                meta[CAPABILITIES_KEY],
                None,
                origin,
                self._running,
                self._write_stamped,
                self._ending,
            )
        )

    def notified(self, message: Json, origin: Origin, version: str) -> None:
        """Handle a notification that was received, beside its transport. The arguments are those of `handshake`."""
        if message["method"] not in _OF_TRANSPORT:
            self._others.notified(message, origin, version)

    def close(self) -> None:
        """End requests that last until their client disconnects."""
        for method in self.methods.values():
            method.close()

    def _stamped(self, result: Json) -> bytes:
        """Write a result of the modern era, which names its server unless the tool's author did."""
        meta = result.get("_meta")
        if not meta:
            if isinstance(result, Received) and (written := result.ended(self._ending)) is not None:
                return written
            result["_meta"] = self._stamp
        elif meta.get(SERVER_INFO_KEY) is None:
            result["_meta"] = {**meta, **self._stamp}
        return write_result(result)


class Planner(Protocol):
    """Begins to answer the requests of a method."""

    def plan(self, exchange: ServedExchange) -> bytes | ServedExchange:
        """Return the answer, or the exchange if it has to be run."""
        ...

    def refuse(self, exchange: ServedExchange, error: ProtocolError) -> bytes:
        """Return the answer to a request that is not run."""
        ...


class _DuringStart:
    """Lets requests wait for the end of a start, but those of what is listed.

    What the caller does not see waits like a name that does not exist, so that times do not show it.
    """

    def __init__(self, start: Start, method: Method, responder: Planner) -> None:
        self._start = start
        self._method = method
        self._responder = responder
        self.refuse = responder.refuse

    def plan(self, exchange: ServedExchange) -> bytes | ServedExchange:
        """Return the answer, or the exchange if it has to be run."""
        target = self._method.target(exchange.params, exchange.access, exchange.origin.caller)
        if self._start.is_over or (target is not None and target.name is not None):
            return self._responder.plan(exchange)
        exchange.responder = self
        return exchange

    def start(self, exchange: ServedExchange, step: Step) -> bytes | None:  # noqa: ARG002 - the protocol's
        """Start nothing."""
        return None

    def send_at_once(self, exchange: ServedExchange, receive: Callable[[bytes | None], None]) -> None:
        """Send nothing."""

    async def run(self, exchange: ServedExchange) -> tuple[bytes, int]:
        """Run an exchange after the start; return the answer and its JSON-RPC error code, 0 for a result."""
        await self._start.ended()
        planned = self._responder.plan(exchange)
        if isinstance(planned, bytes):
            return planned, planned.code if isinstance(planned, ErrorAnswer) else 0
        return await exchange.responder.run(exchange)

    def session_state(self, exchange: ServedExchange) -> SessionState | None:
        """Return the state of the session of an exchange; None if its client has none."""
        return self._method.session_states.of(exchange)


class _CallsOfFoundTools:
    """Makes calls of ``call_tool`` calls of the tools that they name, before anything else reads them.

    Scripts of ``run_code`` make theirs here as well.
    """

    def __init__(self, core: ServerCore, search: SearchedTools, responder: Planner) -> None:
        self._core = core
        self._search = search
        self._responder = responder
        self.refuse = responder.refuse
        if search.options.mode == "code":
            from bridge.server.code.calls import Scripts  # noqa: PLC0415 - only with code mode

            scripts = Scripts(responder.plan, search.options.code.max_scripts, core.savings)
            self._planned_script = scripts.planned

    def plan(self, exchange: ServedExchange) -> bytes | ServedExchange:
        """Return the answer, or the exchange if it has to be run."""
        if self._search.runs_script(exchange.params):
            return self._planned_script(exchange)
        lists = self._core.lists_for(exchange.origin.caller) or self._core.lists
        resolved = self._search.resolved(exchange.params, lists.tools.of(exchange.access).tools)
        exchange.is_resolved = resolved is not exchange.params
        exchange.params = resolved
        return self._responder.plan(exchange)


class Responder:
    """Writes the answers of a method.

    Args:
        method: The method.
        seal: Encrypts the state of questions of the modern era.
    """

    __slots__ = ("_method", "_plan", "_run", "_seal", "_start")

    def __init__(self, method: Method, seal: StateSeal) -> None:
        self._method = method
        self._seal = seal
        self._plan = method.plan
        self._run = method.run
        self._start = method.start

    def plan(self, exchange: ServedExchange) -> bytes | ServedExchange:
        """Return the answer, or the exchange if it has to be run."""
        try:
            planned = self._planned(exchange)
        except ProtocolError as error:
            return self.refuse(exchange, error)
        return exchange if planned is None else result_message(exchange.id, planned)

    def refuse(self, exchange: ServedExchange, error: ProtocolError) -> bytes:
        """Return the answer to a request that is not run."""
        return exchange.refusal(error)

    def _planned(self, exchange: ServedExchange) -> bytes | None:
        """Return the result; None if the exchange has to be run. Raises nothing but `ProtocolError`."""
        exchange.responder = self
        try:
            params = exchange.params
            if exchange.modern and ("requestState" in params or "inputResponses" in params):
                self._method.read_round(exchange, self._seal)
            return self._plan(exchange)
        except ProtocolError:
            raise
        except Exception as error:  # noqa: BLE001 - logged and answered
            raise unexpected(exchange.method, error, exchange.request_id) from None

    def start(self, exchange: ServedExchange, step: Step) -> bytes | None:
        """Run the first step of the function; return the answer if it has ended, else `run` continues it."""
        try:
            return self._start(exchange, step)
        except InputRequired as asked:
            return self._answer(exchange, self._error(exchange, asked))[0]

    def send_at_once(self, exchange: ServedExchange, receive: Callable[[bytes | None], None]) -> ForwardedCall | None:
        """Send a call of another server's tool; ``receive`` gets the answer, or None if `run` has to continue it."""

        def received(result: bytes | None) -> None:
            receive(None if result is None else result_message(exchange.id, result))

        return self._method.send_at_once(exchange, received)

    async def run(self, exchange: ServedExchange) -> tuple[bytes, int]:
        """Run an exchange, or the rest of it; return the answer and its JSON-RPC error code, 0 for a result."""
        try:
            result = await self._run(exchange)
        except (Exception, InputRequired) as raised:  # noqa: BLE001 - logged and answered
            return self._answer(exchange, self._error(exchange, raised))
        return exchange.response(result), 0

    def session_state(self, exchange: ServedExchange) -> SessionState | None:
        """Return the state of the session of an exchange; None if its client has none."""
        return self._method.session_states.of(exchange)

    def _answer(self, exchange: ServedExchange, error: bytes | ProtocolError) -> tuple[bytes, int]:
        """Return the answer with an error, or a result that asks the client, and its error code."""
        if isinstance(error, bytes):
            return result_message(exchange.id, error), 0
        if exchange.has_begun:
            message = "broke off the response to a read of %r: %s"
            _logger.warning(message, exchange.params.get("uri"), error, extra={"request_id": exchange.request_id})
        return exchange.refusal(error), error.code

    def _error(self, exchange: ServedExchange, raised: Exception | InputRequired) -> bytes | ProtocolError:
        """Return the error to answer, or the result that asks the client."""
        if isinstance(raised, ProtocolError):
            return raised
        if not isinstance(raised, InputRequired):
            return unexpected(exchange.method, raised, exchange.request_id)
        if not (exchange.modern and self._method.may_ask):
            name = self._method.target_in(exchange.params) or exchange.method
            message = "%s %r asked for another round, which this client's requests do not have"
            _logger.error(message, exchange.method, name, exc_info=raised, extra={"request_id": exchange.request_id})
            return ProtocolError(INTERNAL_ERROR, f"{name!r} cannot be used by this client")
        try:
            result, state = input_required(exchange, raised)
            result["requestState"] = self._seal.seal(state, self._method.bound(exchange))
            return exchange.write(result)
        except ProtocolError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a question that cannot be written
            return unexpected(exchange.method, error, exchange.request_id)


def _check_session(session: Session, exchange: ServedExchange) -> None:
    """Refuse a request before the handshake, or with an id that is in use."""
    if not session.version and exchange.method not in {"initialize", "ping"}:
        raise ProtocolError(INVALID_REQUEST, "the session is not initialized: send 'initialize' first")
    if (problem := session.id_problem(exchange.id)) is not None:
        raise ProtocolError(INVALID_REQUEST, problem)


def unexpected(method: str, error: BaseException, request_id: str | None = None) -> ProtocolError:
    """Log an unexpected error of a request, whose records have an id or None, and return the one to answer."""
    _logger.error("the request %r could not be answered", method, exc_info=error, extra={"request_id": request_id})
    return ProtocolError(INTERNAL_ERROR, f"the request {method!r} failed; the server's log says why")


def internal_error_message(request: Json, error: BaseException) -> bytes:
    """Log an unexpected error of a request, and return the error response."""
    return answer(request["id"], unexpected(request["method"], error))
