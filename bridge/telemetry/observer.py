"""The observer of a process: starts operations, and counts sessions, connections and refusals."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bridge.telemetry.conventions import (
    CLIENT_OPERATION_DURATION,
    CLIENT_SESSION_DURATION,
    DEFINITION_TOKENS,
    DRAINING,
    HTTP_STATUS,
    METHODS,
    OTHER,
    RESULT_TOKENS,
    SAVED_BY,
    SAVED_TOKENS,
    SERVER_OPERATION_DURATION,
    SERVER_SESSION_DURATION,
    SESSIONS,
    TARGETS,
    TEAM,
    TEAM_BYTES,
    TEAM_TOKENS,
    TOKENS_OF,
    TOOLS_CALL,
    TOOLS_LIST,
    UPSTREAM,
)
from bridge.telemetry.gen_ai import GenAi
from bridge.telemetry.instruments import Instruments, OperationSeries, Peer, failure_labels
from bridge.telemetry.operations import ClientOperation, Recorder, ServerOperation, classify_error
from bridge.telemetry.records import (
    MAX_PARENT_CHARS,
    NO_REDACTION,
    CallDetails,
    action_record,
    recorded_arguments,
    recorded_names,
)
from bridge.telemetry.tasks import TaskTelemetry
from bridge.text import CHARS_PER_TOKEN, clip
from bridge.types import REQUEST_ID_META_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bridge.telemetry.activity import Activity
    from bridge.telemetry.instruments import Labels
    from bridge.telemetry.records import CallSink, Redaction
    from bridge.telemetry.tracing import Tracing


_MAX_TEAMS = 100


class Observer(Recorder):
    """Observes the operations of this process.

    Args:
        instruments: Receives counts and durations; None for none.
        tracer: Opens spans; None for none.
        sinks: Receive the record of each call.
        shows_arguments: Records have the values of arguments, not only their names.
        redaction: Redacts texts of clients in records.
        activity: Keeps the calls under way, and the last records and refusals; None for none.

    Attributes:
        is_draining: Returns whether this process is draining; set by the server.
        methods: The methods that have series of their own.
        gen_ai: Starts the operations of AI services.
        tasks: Observes tasks.
    """

    def __init__(
        self,
        instruments: Instruments | None = None,
        *,
        tracer: Tracing | None = None,
        sinks: Iterable[CallSink] = (),
        shows_arguments: bool = False,
        redaction: Redaction = NO_REDACTION,
        activity: Activity | None = None,
    ) -> None:
        super().__init__(instruments, tracer, sinks, redaction, activity)
        self.is_draining: Callable[[], bool] = lambda: False
        self.methods = set(METHODS)
        self.gen_ai = GenAi(self.instruments, tracer)
        self.tasks = TaskTelemetry(self)
        self._shows_arguments = shows_arguments
        self._open_sessions = 0
        self._teams: set[str] = set()
        self._connects: Counter[str] = Counter()
        self._served: dict[tuple[str, str | None, Peer], OperationSeries] = {}
        self._asked: dict[tuple[str, str | None, Peer], OperationSeries] = {}
        observe = self.instruments.observe
        observe(SESSIONS, "Open sessions of clients.", lambda: self._open_sessions)
        self.definitions: dict[str, Callable[[], Mapping[str, int]]] = {}
        """Return the estimated tokens of the definitions of tools by upstream, by server of this process."""
        self.savings: dict[tuple[str, str], Callable[[], Mapping[str, int]]] = {}
        """Return the estimated tokens that were saved so far by tool, by server and by what has saved them."""
        self._observe_tokens(self.instruments)
        observe(DRAINING, "1 while this process is draining, else 0.", lambda: int(self.is_draining()))

    def _observe_tokens(self, instruments: Instruments) -> None:
        instruments.observe_each(
            DEFINITION_TOKENS, "Estimated tokens of the definitions of tools.", self._definition_tokens
        )
        instruments.observe_each(
            RESULT_TOKENS, "Estimated tokens of the results of calls.", self._result_tokens, is_total=True
        )
        instruments.observe_each(
            TEAM_TOKENS, "Estimated tokens that models of a team have read.", self._team_tokens, is_total=True
        )
        instruments.observe_each(TEAM_BYTES, "Bytes that clients of a team were sent.", self._team_bytes, is_total=True)
        instruments.observe_each(
            SAVED_TOKENS, "Estimated tokens that models did not have to read.", self._saved_tokens, is_total=True
        )

    def _team_tokens(self) -> Iterator[tuple[int, Labels]]:
        for team, usage in self.teams_now().items():
            yield usage["estimatedResultTokens"], {TEAM: team, TOKENS_OF: "results"}
            yield usage["estimatedDefinitionTokens"], {TEAM: team, TOKENS_OF: "definitions"}

    def _team_bytes(self) -> Iterator[tuple[int, Labels]]:
        for team, usage in self.teams_now().items():
            yield usage["resultBytes"], {TEAM: team, TOKENS_OF: "results"}
            yield usage["definitionBytes"], {TEAM: team, TOKENS_OF: "definitions"}

    def _definition_tokens(self) -> Iterator[tuple[int, Labels]]:
        for tokens_of in tuple(self.definitions.values()):
            for upstream, tokens in tokens_of().items():
                yield tokens, {UPSTREAM: upstream}

    def _result_tokens(self) -> Iterator[tuple[int, Labels]]:
        chars: Counter[str] = Counter()
        for series in tuple(self._served.values()):
            if series.is_call and series.target is not None:
                chars[series.target] += series.chars
        for tool, count in chars.items():
            yield -(-count // CHARS_PER_TOKEN), {TARGETS[TOOLS_CALL]: tool}

    def _saved_tokens(self) -> Iterator[tuple[int, Labels]]:
        for (_, feature), tokens_of in tuple(self.savings.items()):
            for tool, tokens in tokens_of().items():
                yield tokens, {TARGETS[TOOLS_CALL]: tool, SAVED_BY: feature}

    # --- as a server --------------------------------------------------------------------------------------------------

    def series(self, method: str, tool: str | None, peer: Peer) -> OperationSeries:
        """Series of requests of a client: of calls of an existing tool, or of a method.

        Unknown methods, which a client may have invented, share the series ``_OTHER``.
        """
        key = (method, tool, peer)
        known = self._served.get(key)
        if known is None:
            if method not in self.methods and method != OTHER:
                return self.series(OTHER, None, peer)
            known = self._served[key] = OperationSeries(self.instruments.durations[SERVER_OPERATION_DURATION], *key)
        return known

    def serve(
        self,
        series: OperationSeries,
        request_id: object,
        meta: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        details: CallDetails | None = None,
        *,
        is_sampled: bool | None = None,
        caller: str | None = None,
    ) -> ServerOperation:
        """Start to observe a client's request, in the task that answers it.

        Args:
            series: Its series.
            request_id: Its id.
            meta: Its ``_meta``.
            session_id: The session's id.
            details: The details of a call (`call_details`).
            is_sampled: The result of `Tracing.begins`: False for no span; None to let the tracer decide.
            caller: The caller's name; None where callers are not authenticated.
        """
        return ServerOperation(
            self, series, request_id, meta, session_id, details, is_sampled=is_sampled, caller=caller
        )

    def call_details(
        self,
        called: str | None,
        server: str | None,
        caller: str | None,
        transport: str,
        arguments: Mapping[str, Any],
        noun: str = "tool",
        client: str | None = None,
        grant: str | None = None,
        team: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> CallDetails | None:
        """The details of a call for its record; None where there are no records.

        ``called`` may be the name of no tool, ``server`` is None for a local tool, ``caller`` where callers are not
        authenticated, ``client`` where the client program gave no name, and ``grant`` if all callers have the same
        credential for the server; ``team`` is empty for none, and ``meta`` is the ``_meta`` of the request. A tool may
        modify the arguments; the record has them as they came.
        """
        if not self.sinks:
            return None
        if self.redaction is not NO_REDACTION:
            arguments = self.redaction.value(arguments)
        recorded = recorded_arguments(arguments) if self._shows_arguments else recorded_names(arguments)
        parent = None if meta is None else meta.get(REQUEST_ID_META_KEY)
        parent = clip(parent, MAX_PARENT_CHARS) if isinstance(parent, str) else None
        return CallDetails(called, server, caller, transport, recorded, noun, client, grant, team, parent)

    def answered(
        self,
        series: OperationSeries,
        request_id: object,
        meta: Mapping[str, Any] | None,
        seconds: float,
        code: int | None = None,
        result_bytes: int = 0,
    ) -> None:
        """Observe a request that was answered without waiting, with a result of a length, or a JSON-RPC error code."""
        series.chars += result_bytes
        error_type = None if code is None else str(code)
        if self.tracer is not None:
            self.tracer.serve(series, meta, request_id, None, is_sampled=False).end(error_type, code, None)
        self.record(series, seconds, error_type, code)

    def team(self, name: str) -> str:
        """Return a team for labels; one of too many is ``_OTHER``, because tokens may name any number."""
        if name and name not in self._teams:
            if len(self._teams) >= _MAX_TEAMS:
                return OTHER
            self._teams.add(name)
        return name

    def teams(self) -> dict[str, dict[str, Any]]:
        """Return what each team has called so far, as JSON."""
        self.flush()
        return self.teams_now()

    def teams_now(self) -> dict[str, dict[str, Any]]:
        """Return the same without calls that have just ended."""
        found: dict[str, dict[str, Any]] = {}
        for series in tuple(self._served.values()):
            if not series.peer.team:
                continue
            empty = {"calls": 0, "errors": {}, "seconds": 0.0, "resultBytes": 0, "definitionBytes": 0}
            team = found.setdefault(series.peer.team, empty)
            if series.method == TOOLS_LIST:
                team["definitionBytes"] += series.chars
            if (usage := series.usage) is None:
                continue
            team["calls"] += usage.calls
            team["seconds"] = round(team["seconds"] + usage.seconds, 3)
            team["resultBytes"] += series.chars
            for cause, count in usage.errors.items():
                team["errors"][cause] = team["errors"].get(cause, 0) + count
        for team in found.values():
            team["estimatedResultTokens"] = -(-team["resultBytes"] // CHARS_PER_TOKEN)
            team["estimatedDefinitionTokens"] = -(-team["definitionBytes"] // CHARS_PER_TOKEN)
        return dict(sorted(found.items()))

    def session_opened(self) -> None:
        """Count a session that a client opened."""
        self._open_sessions += 1

    def session_closed(self, peer: Peer, seconds: float) -> None:
        """Count the end of a client's session."""
        self._open_sessions -= 1
        self.instruments.durations[SERVER_SESSION_DURATION].record(seconds, peer.labels)

    @contextmanager
    def session(self, peer: Peer) -> Iterator[None]:
        """A client's session that lasts as long as this block."""
        start = perf_counter()
        self.session_opened()
        try:
            yield
        finally:
            self.session_closed(peer, perf_counter() - start)

    def refused(self, status: int, body: bytes) -> None:
        """Count a refused HTTP request; the body of its response has the reason."""
        self.instruments.refusals.add(1, {HTTP_STATUS: str(int(status))})
        if self.activity is not None:
            self.activity.refused(int(status), body)

    def acted(self, action: str, target: str | None, caller: str | None, error: str | None) -> None:
        """Record an action of an operator; ``error`` is None if it was done."""
        for sink in self.sinks:
            sink.put([action_record(action, target, caller, error)])

    # --- as a client --------------------------------------------------------------------------------------------------

    def asking(self, method: str, tool: str | None, peer: Peer) -> ClientOperation:
        """Observe a request to a server, or to the client of this server, as a context manager."""
        return ClientOperation(self, self._asked_series(method, tool, peer))

    def asked(self, method: str, peer: Peer, seconds: float, error: BaseException | int | None = None) -> None:
        """Observe a request to the other side after its end; it has no span.

        ``error`` is the exception raised in place of a response, or the JSON-RPC error code; None for a result.
        """
        self.record(self._asked_series(method, None, peer), seconds, *classify_error(error))

    def upstream_added(self, upstream: str) -> None:
        """Start the series of a configured server at 0."""
        for counter in (self.instruments.connected, self.instruments.connects, self.instruments.reconnects):
            counter.add(0, {UPSTREAM: upstream})

    def connected(self, upstream: str) -> None:
        """Count an established connection to a server."""
        labels = {UPSTREAM: upstream}
        self._connects[upstream] += 1
        self.instruments.connected.add(1, labels)
        self.instruments.connects.add(1, labels)
        self.instruments.reconnects.add(int(self._connects[upstream] > 1), labels)

    def disconnected(self, peer: Peer, seconds: float, error_type: str | None) -> None:
        """Count the end of a connection to a server; ``error_type`` is None where this side closed it."""
        self.instruments.connected.add(-1, {UPSTREAM: peer.upstream or ""})
        labels = peer.labels if error_type is None else {**peer.labels, **failure_labels(error_type, None)}
        self.instruments.durations[CLIENT_SESSION_DURATION].record(seconds, labels)

    # --- series -------------------------------------------------------------------------------------------------------

    def _asked_series(self, method: str, tool: str | None, peer: Peer) -> OperationSeries:
        key = (method, tool, peer)
        known = self._asked.get(key)
        if known is None:
            known = self._asked[key] = OperationSeries(self.instruments.durations[CLIENT_OPERATION_DURATION], *key)
        return known
