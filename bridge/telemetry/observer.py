"""The observer: hears of every operation, and sees to it that it is counted, traced and recorded."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import contextmanager
from threading import Lock
from time import perf_counter, time
from typing import TYPE_CHECKING, Any

from bridge.telemetry.conventions import (
    CLIENT_OPERATION_DURATION,
    CLIENT_SESSION_DURATION,
    CONNECTED,
    CONNECTS,
    DRAINING,
    HTTP_STATUS,
    IN_FLIGHT,
    METHODS,
    OTHER,
    RECONNECTS,
    REFUSALS,
    SERVER_OPERATION_DURATION,
    SERVER_SESSION_DURATION,
    SESSIONS,
    UPSTREAM,
)
from bridge.telemetry.measures import Gauge, Measures, Peer, Series, failure_labels
from bridge.telemetry.operations import Asking, Serving, classified
from bridge.telemetry.records import KnownWords, records_of, words_with_arguments
from bridge.telemetry.writer import Batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bridge.telemetry.measures import Histogram, Labels
    from bridge.telemetry.operations import Ended, Sink, Tracer
    from bridge.telemetry.records import Words

SETTLE_SECONDS = 0.1
"""How long after its end a call is counted and recorded at the latest, where the machine has time."""
_SETTLED_AT_ONCE = 256  # what they leave in memory stays in a processor's cache


class Observer:
    """Observes the operations of this process.

    Args:
        tracer: Opens spans; None for none.
        sinks: Where the record of each call goes.
        shows_arguments: Records have the arguments of calls, and not only their names.
    """

    def __init__(
        self, *, tracer: Tracer | None = None, sinks: Iterable[Sink] = (), shows_arguments: bool = False
    ) -> None:
        self.measures = Measures()
        self.tracer = tracer
        self.sinks = tuple(sinks)
        self.shows_arguments = shows_arguments
        self.in_flight = 0
        """How many calls of tools are being served."""
        self.is_draining: Callable[[], bool] = lambda: False
        """Says whether this process takes its leave; whoever knows sets it."""
        self._open_sessions = 0
        self._series: dict[tuple[str, str | None, Peer], Series] = {}
        self._asked: dict[tuple[str, str | None, Peer], Series] = {}
        self._words = KnownWords()
        self.ended: deque[Ended] = deque()
        """What is to be counted and recorded; see `note`, whose call is saved where each call of a tool would pay."""
        self.is_settled = True
        """Whether nothing has been added to it since."""
        self._settling_one_by_one = Lock()  # records are in the order in which calls ended
        self._settling = Batches("telemetry", self.settle, SETTLE_SECONDS)
        self._replayed: set[tuple[object, str]] = set()
        for name, description, value in (
            (IN_FLIGHT, "Calls of tools that are being served.", lambda: self.in_flight),
            (SESSIONS, "Sessions of clients that are open.", lambda: self._open_sessions),
            (DRAINING, "1 while this process takes its leave, else 0.", lambda: int(self.is_draining())),
        ):
            self.measures.watch(Gauge(name, description, _unlabelled(value)))
        for name, description, is_counter in (
            (CONNECTED, "Whether there is a connection to the server: 1 or 0.", False),
            (CONNECTS, "Connections to the server so far.", True),
            (RECONNECTS, "Connections to the server after the first.", True),
        ):
            self.measures.watch(Gauge(name, description, self._by(UPSTREAM, name), is_counter))
        refusals = "Requests over HTTP that were refused, by the status of the answer."
        self.measures.watch(Gauge(REFUSALS, refusals, self._by(HTTP_STATUS, REFUSALS), is_counter=True))

    # --- as a server -------------------------------------------------------------------------------------------------

    def series(self, method: str, tool: str | None, peer: Peer) -> Series:
        """What is known beforehand of what a client asks.

        Args:
            method: MCP's method, as the client wrote it.
            tool: The tool that is called, which exists; None for none.
            peer: The client.
        """
        key = (method, tool, peer)
        known = self._series.get(key)
        if known is None:
            if method not in METHODS:
                return self.series(OTHER, None, peer) if method != OTHER else self._made(SERVER_OPERATION_DURATION, key)
            known = self._made(SERVER_OPERATION_DURATION, key)
        return known

    def serve(
        self,
        series: Series,
        request_id: object,
        meta: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        words: Words | None = None,
        *,
        is_drawn: bool = False,
    ) -> Serving:
        """A client asks something: begin to observe, in the task that answers.

        Args:
            series: What it asks.
            request_id: The request's id.
            meta: What the request carries in ``_meta``.
            session_id: The session.
            words: What the record of a call says (`words`).
            is_drawn: Its trace is one of those that are kept, as the tracer said (`Tracer.begins`).
        """
        return Serving(self, series, request_id, meta, session_id, words, is_drawn=is_drawn)

    def words(
        self, series: Series, called: str | None, server: str | None, caller: str | None, arguments: Mapping[str, Any]
    ) -> Words | None:
        """What the record of a call says; None where there are no records.

        Args:
            series: The call.
            called: The name that is called, which may be that of no tool.
            server: The server behind this one that has the tool; None where it is here.
            caller: Who calls; None where nobody had to say.
            arguments: The arguments. A tool may change them: what is recorded is what came.
        """
        if not self.sinks:
            return None
        transport = series.peer.transport
        if self.shows_arguments:
            return words_with_arguments(called, server, caller, transport, arguments)
        return self._words[called, server, caller, transport, tuple(arguments)]

    def note(self, ended: Ended) -> None:
        """Something has ended: it is counted and recorded a little later, in a thread of its own."""
        self.ended.append(ended)
        if self.is_settled:
            self.settle_soon()

    def settle_soon(self) -> None:
        """Count and record, a little later, what was added to `ended` since it was settled."""
        self.is_settled = False
        self._settling.wake()

    def settle(self) -> None:
        """Count and record all that has ended so far."""
        with self._settling_one_by_one:
            self.is_settled = True  # what ends from now on wakes the thread again
            for waiting in range(len(self.ended), 0, -_SETTLED_AT_ONCE):
                self._settle([self.ended.popleft() for _ in range(min(waiting, _SETTLED_AT_ONCE))])

    def _settle(self, ended: list[Ended]) -> None:
        durations: defaultdict[Histogram, list[float]] = defaultdict(list)
        for series, start, end, error_type, code, _, _, _ in ended:
            histogram = series.succeeded if error_type is None else series.histogram(error_type, code)
            durations[histogram].append(end - start)
        with self.measures.lock:
            for histogram, seconds in durations.items():
                histogram.record_all(seconds)
        if self.sinks and (records := records_of(ended, time() - perf_counter())).lines:
            for sink in self.sinks:  # a sink counts what it loses, and needs that lock itself
                sink.put(records)

    def close(self) -> None:
        """Count and record what has ended, and no more."""
        self._settling.close()
        self.settle()

    def answered(
        self, series: Series, request_id: object, meta: Mapping[str, Any] | None, seconds: float, code: int = 0
    ) -> None:
        """Observe what was answered without waiting for anything.

        Args:
            series: What was asked.
            request_id: The request's id.
            meta: What the request carried in ``_meta``.
            seconds: How long it took.
            code: The code of the error, 0 for none.
        """
        error_type = str(code) if code else None
        if self.tracer is not None:
            self.tracer.serve(series, meta, request_id, None, is_drawn=False).end(error_type, code or None, None)
        end = perf_counter()
        self.note((series, end - seconds, end, error_type, code or None, None, None, None))

    def will_be_replayed(self, request_id: object, method: str) -> None:
        """A message that was observed comes once more by another way; one without an id has None."""
        self._replayed.add((request_id, method))

    def is_replay(self, request_id: object, method: str) -> bool:
        """Whether a message is one that was announced so; once."""
        if (request_id, method) not in self._replayed:
            return False
        self._replayed.discard((request_id, method))
        return True

    def session_opened(self) -> None:
        """A client opened a session."""
        self._open_sessions += 1

    def session_closed(self, peer: Peer, seconds: float) -> None:
        """A client's session ended.

        Args:
            peer: The client.
            seconds: How long it lasted.
        """
        histogram = self.measures.metrics[SERVER_SESSION_DURATION].histogram(peer.labels)
        self._open_sessions -= 1
        with self.measures.lock:
            histogram.record(seconds)

    @contextmanager
    def session(self, peer: Peer) -> Iterator[None]:
        """The time of a session that begins and ends with this block."""
        start = perf_counter()
        self.session_opened()
        try:
            yield
        finally:
            self.session_closed(peer, perf_counter() - start)

    def refused(self, status: int) -> None:
        """A request over HTTP was refused.

        Args:
            status: The status of the answer.
        """
        self.measures.add(REFUSALS, about=str(int(status)))

    # --- as who asks -------------------------------------------------------------------------------------------------

    def asking(self, method: str, tool: str | None, peer: Peer) -> Asking:
        """Ask somebody something, within a ``with`` block; an exception that leaves it is the operation's failure.

        Args:
            method: MCP's method.
            tool: The tool that is called; None for none.
            peer: Who is asked: a server, or a client by the server that it uses.
        """
        key = (method, tool, peer)
        return Asking(self, self._asked.get(key) or self._made(CLIENT_OPERATION_DURATION, key))

    def asked(self, method: str, peer: Peer, start: float, error: BaseException | int | None = None) -> None:
        """Observe what was asked, and is over, where no block could stand around it; there is no span of it.

        Args:
            method: MCP's method.
            peer: Who was asked.
            start: When, by `time.perf_counter`.
            error: What was raised instead of an answer, or the code of an error of the protocol; None for a result.
        """
        series = self._made(CLIENT_OPERATION_DURATION, (method, None, peer))
        error_type, code = classified(error)
        self.note((series, start, perf_counter(), error_type, code, None, None, None))

    def connected(self, upstream: str) -> None:
        """A server was greeted."""
        self.measures.add(CONNECTS, about=upstream)
        self.measures.add(CONNECTED, about=upstream)
        self.measures.add(RECONNECTS, int(self.measures.of(CONNECTS)[upstream] > 1), upstream)

    def disconnected(self, peer: Peer, seconds: float, error_type: str | None) -> None:
        """A connection to a server ended.

        Args:
            peer: The server.
            seconds: How long it lasted.
            error_type: Why, where this side did not want it.
        """
        self.measures.add(CONNECTED, -1, peer.upstream or "")
        labels: Labels = peer.labels
        if error_type is not None:
            labels = {**labels, **failure_labels(error_type, None)}
        histogram = self.measures.metrics[CLIENT_SESSION_DURATION].histogram(labels)
        with self.measures.lock:
            histogram.record(seconds)

    # --- underneath --------------------------------------------------------------------------------------------------

    def _made(self, metric: str, key: tuple[str, str | None, Peer]) -> Series:
        kept = self._series if metric == SERVER_OPERATION_DURATION else self._asked
        return kept.setdefault(key, Series(self.measures.metrics[metric], *key))

    def _by(self, label: str, name: str) -> Callable[[], Iterable[tuple[float, Labels]]]:
        return lambda: [(value, {label: about}) for about, value in self.measures.of(name).items()]


def _unlabelled(value: Callable[[], float]) -> Callable[[], Iterable[tuple[float, Labels]]]:
    return lambda: [(value(), {})]
