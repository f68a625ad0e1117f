"""Dispatch with telemetry: the same answers, each recorded."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from bridge.portal import runs_on_asyncio
from bridge.protocol.envelope import client_name
from bridge.protocol.messages import ProtocolError, result_message
from bridge.server.channel import context_of
from bridge.server.dispatch import Dispatch, Responder
from bridge.server.results.costs import definition_tokens, savings_of
from bridge.telemetry import current
from bridge.telemetry.conventions import INPUT_REQUIRED
from bridge.telemetry.instruments import Peer
from bridge.telemetry.operations import ServerOperation, error_type_of
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.protocol.rounds import StateSeal
    from bridge.server.core import ServerCore
    from bridge.server.exchange import Origin, ServedExchange
    from bridge.server.lists.lists import Lists
    from bridge.server.methods.method import Method
    from bridge.telemetry.instruments import OperationSeries
    from bridge.telemetry.observer import Observer
    from bridge.tools.caller import Caller
    from bridge.types import Json, Step

    _Known: TypeAlias = tuple[OperationSeries, str | None, str | None]
    _Targets: TypeAlias = dict[tuple[str, str, str, str], _Known]


def dispatch_of(core: ServerCore, *, has_sessions: bool = True) -> Dispatch:
    """Return the dispatch of a server, with telemetry if that is on; the other arguments are those of `Dispatch`."""
    observer = current.observer()
    if observer is None:
        return Dispatch(core, has_sessions=has_sessions)
    return ObservedDispatch(core, observer, has_sessions=has_sessions)


class ObservedDispatch(Dispatch):
    """Dispatches requests, and records them and the notifications."""

    def __init__(self, core: ServerCore, observer: Observer, *, has_sessions: bool) -> None:
        make = partial(ObservedResponder, core=core, observer=observer)
        super().__init__(core, make, has_sessions=has_sessions)
        self._observer = observer
        observer.definitions[core.name] = partial(definition_tokens, core)
        for feature, tokens_of in savings_of(core).items():
            observer.savings[core.name, feature] = tokens_of

    def notified(self, message: Json, origin: Origin, version: str) -> None:
        """Handle a notification, and record it."""
        super().notified(message, origin, version)
        series = self._observer.series(message["method"], None, Peer(origin.transport, version))
        self._observer.answered(series, None, _meta_in(message.get("params") or {}), 0.0)


class ObservedResponder(Responder):
    """Writes the answers of a method, and records them."""

    def __init__(self, method: Method, seal: StateSeal, *, core: ServerCore, observer: Observer) -> None:
        super().__init__(method, seal)
        self._target_param = method.target_param
        self._observer = observer
        self._series: dict[tuple[str, str, str], OperationSeries] = {}
        self._core = core
        self._targets: _Targets = {}
        self._targets_of: WeakKeyDictionary[Lists, _Targets] = WeakKeyDictionary()
        """Targets of callers who see others than all callers do."""

        def follow() -> None:
            self._targets.clear()
            core.features.on_change(self._targets.clear)

        follow()
        core.on_features(follow)

    def plan(self, exchange: ServedExchange) -> bytes | ServedExchange:
        """Return the answer, or the exchange if it has to be run."""
        start = perf_counter()
        try:
            planned = self._planned(exchange)
        except ProtocolError as error:
            return self.refuse(exchange, error)
        if planned is None:
            tracer = self._observer.tracer
            if tracer is not None:
                exchange.is_sampled = tracer.begins(exchange.params.get("_meta"))
                if exchange.is_sampled:
                    exchange.tool = None  # its span is current in a task of its own
            return exchange
        seconds, length = perf_counter() - start, len(planned)
        series, meta = self._series_of(exchange), _meta_in(exchange.params)
        self._observer.answered(series, exchange.id, meta, seconds, result_bytes=length)
        return result_message(exchange.id, planned)

    def refuse(self, exchange: ServedExchange, error: ProtocolError) -> bytes:
        """Record a request that is not run, and return its answer."""
        operation = self._begun(exchange)
        operation.end_with_code(error.code, error.message)
        return exchange.refusal(self._identified(error, operation))

    def start(self, exchange: ServedExchange, step: Step) -> bytes | None:
        """Run the first step of the function, and record it; return the answer if it has ended."""
        if exchange.tool is None:
            return None
        operation = self._begun(exchange)
        try:
            answer = self._start(exchange, step)
        except InputRequired as asked:
            return self._ended(exchange, operation, asked)[0]
        if answer is None:
            exchange.operation = operation
        else:
            operation.answered(len(answer))
            operation.end()
        return answer

    def send_at_once(self, exchange: ServedExchange, receive: Callable[[bytes | None], None]) -> None:
        """Send nothing at once: only `run` records a call."""

    async def run(self, exchange: ServedExchange) -> tuple[bytes, int]:
        """Run an exchange, or the rest of it, and record it; return the answer and its JSON-RPC error code."""
        if self._target_param is not None and self._core.lists_for(exchange.origin.caller) is None:
            await self._core.load_lists(context_of(exchange))  # else it is not known which server is called
        operation = exchange.operation = exchange.operation or self._begun(exchange)
        if self._observer.activity is not None and runs_on_asyncio():
            operation.task = asyncio.current_task()
        write = exchange.write
        error_type: str | None = None

        def written(result: Json) -> bytes:
            nonlocal error_type
            error_type = error_type_of(result)
            return write(result)

        exchange.write = written
        try:
            result = await self._run(exchange)
        except (Exception, InputRequired) as raised:  # noqa: BLE001 - logged and answered
            exchange.write = write
            return self._ended(exchange, operation, raised)
        except BaseException:
            operation.end_cancelled()
            raise
        operation.answered(len(result))
        operation.end(error_type)
        return exchange.response(result), 0

    def _ended(
        self, exchange: ServedExchange, operation: ServerOperation, raised: Exception | InputRequired
    ) -> tuple[bytes, int]:
        """Record the end of an exchange whose code has raised an exception; return the answer and its error code."""
        found = self._error(exchange, raised)
        if isinstance(found, ProtocolError):
            operation.end_with_code(found.code, found.message)
            found = self._identified(found, operation)
        else:
            operation.end(INPUT_REQUIRED)
        return self._answer(exchange, found)

    def _identified(self, error: ProtocolError, operation: ServerOperation) -> ProtocolError:
        """Return the error of a recorded call with the id of the record."""
        if self._target_param is None or not operation.id or not isinstance(error.data, dict | None):
            return error
        return ProtocolError(error.code, error.message, {**(error.data or {}), "requestId": operation.id})

    def _begun(self, exchange: ServedExchange) -> ServerOperation:
        """Begin to observe an exchange."""
        observer, params, origin, session = self._observer, exchange.params, exchange.origin, exchange.session
        meta = _meta_in(params)
        if self._target_param is None:
            series, server, details = self._series_of(exchange), None, None
        else:
            name = self._method.target_in(params)
            targets, caller = self._targets_for(origin.caller), origin.caller
            known = None
            if name is not None:
                known = targets.get((name, exchange.version, origin.transport, self._team_of(origin)))
            series, server, grant = known or self._target(name, exchange, targets)
            arguments = params.get("arguments")
            details = observer.call_details(
                name,
                server,
                None if caller is None else caller.name,
                origin.transport,
                arguments if isinstance(arguments, dict) else {},
                self._method.noun,
                client_name(params) if session is None else session.client,
                grant,
                "" if caller is None else caller.team,
                meta,
            )
        operation = ServerOperation(
            observer,
            series,
            exchange.id,
            meta,
            None if session is None or observer.tracer is None else session.id,
            details,
            # Requests to an upstream server continue the trace of the call, even if it is not sampled.
            is_sampled=exchange.is_sampled if server is None else None,
            caller=None if origin.caller is None else origin.caller.name,
        )
        if operation.id and self._target_param is not None:
            exchange.identify(operation.id)
        return operation

    def _targets_for(self, caller: Caller | None) -> _Targets:
        """Return the targets that are cached for what a caller sees, until that changes."""
        core = self._core
        lists = core.lists if core.features.caller_features is None else core.lists_for(caller)
        if lists is core.lists:
            return self._targets
        return {} if lists is None else self._targets_of.setdefault(lists, {})

    def _team_of(self, origin: Origin) -> str:
        """Return the team of a caller, for labels; empty for none."""
        return "" if origin.caller is None or not origin.caller.team else self._observer.team(origin.caller.team)

    def _target(self, name: str | None, exchange: ServedExchange, targets: _Targets) -> _Known:
        """Return the series, upstream server and grant of a target, cached until the tools change."""
        target = self._method.target(exchange.params, caller=exchange.origin.caller)
        transport, version = exchange.origin.transport, exchange.version
        known, upstream, grant = (None, None, None) if target is None else (target.name, target.upstream, target.grant)
        team = self._team_of(exchange.origin)
        series = self._observer.series(self._method.name, known, Peer(transport, version, team=team))
        if known is not None and known == name:  # there may be any number of URIs
            targets[name, version, transport, team] = series, upstream, grant
        return series, upstream, grant

    def _series_of(self, exchange: ServedExchange) -> OperationSeries:
        """Return the series of requests without a target."""
        key = exchange.origin.transport, exchange.version, self._team_of(exchange.origin)
        known = self._series.get(key)
        if known is None:
            # A method may be known, but not served, in this era.
            known = self._observer.series(self._method.name or exchange.method, None, Peer(key[0], key[1], team=key[2]))
            if self._method.name:
                self._series[key] = known
        return known


def _meta_in(params: Json) -> Json | None:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else None
