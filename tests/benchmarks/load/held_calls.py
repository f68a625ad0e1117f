"""Calls of a steady load: of both eras and several tools, each of which has a known result."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from tests.benchmarks.http_server import Connection, bearing, post, session_id_in
from tests.benchmarks.load.held_tools import large_text
from tests.benchmarks.load.pace import Pace
from tests.benchmarks.messages import INITIALIZE, INITIALIZED, Era, message_in, request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.benchmarks.load.pace import Outcome
    from tests.benchmarks.load.upkeep import Upkeep

CALLS_A_SECOND = 300
SESSIONS = 20
KEY = "held-held-held-held-held-held-held"

_KEPT_CALLS = 50
_TOOLS = ("add", "wait", "add", "add", "large", "add", "wait", "add", "wait", "add")
"""Tools of ten calls, in order."""
_SHOWN_BYTES = 500


@dataclass(kw_only=True)
class Tally:
    """Results of the calls in a part of the time."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {tool: [] for tool in dict.fromkeys(_TOOLS)})
    """Latencies in seconds, from the scheduled start, by tool."""
    lost: dict[int, bytes] = field(default_factory=dict)
    """Beginnings of the responses of calls that were answered wrongly or not at all."""

    @property
    def all_seconds(self) -> list[float]:
        """Latencies of all tools."""
        return [each for seconds in self.seconds.values() for each in seconds]


class HeldCalls:
    """Calls through a balancer, none of which is repeated.

    Args:
        port: The balancer's port.
        eras: Eras of the calls, ten calls of each in turn; those of the handshake era use sessions.
    """

    def __init__(self, port: int, eras: Sequence[Era]) -> None:
        self._port = port
        self._eras = eras
        self._sessions = list(self._opened()) if Era.HANDSHAKE in eras else []
        self._answering: set[int] = set()

    def make(self, upkeep: Upkeep, seconds: float, part_seconds: float) -> list[Tally]:
        """Call until the time is over and all replacements are done; returns the results by part.

        Args:
            upkeep: Replacements of workers and servers.
            seconds: Minimum duration.
            part_seconds: Duration of a part; the last one ends after all replacements.
        """
        last = round(seconds / part_seconds) - 1
        tallies: defaultdict[int, Tally] = defaultdict(Tally)
        with ThreadPoolExecutor(1) as beside, Pace(self._port, CALLS_A_SECOND, _KEPT_CALLS) as pace:
            done = beside.submit(upkeep.run, self._answering)
            try:
                for outcome in pace.ask(self._requests(seconds, done)):
                    tally = tallies[min(last, int(outcome.due_seconds / part_seconds))]
                    tally.seconds[_tool(outcome.number)].append(outcome.seconds)
                    if not self._is_right(outcome):
                        tally.lost[outcome.number] = outcome.text[:_SHOWN_BYTES]
            finally:
                upkeep.stop()
            done.result()
        return [tallies[part] for part in range(last + 1)]

    def _opened(self) -> Iterator[str]:
        for _ in range(SESSIONS):
            with Connection(self._port) as connection:
                answer = connection.answer(bearing(KEY, post(INITIALIZE, Era.HANDSHAKE)))
                session_id = session_id_in(answer)
                connection.answer(bearing(KEY, post(INITIALIZED, Era.HANDSHAKE, session_id)))
                yield session_id

    def _requests(self, seconds: float, done: Future[None]) -> Iterator[bytes]:
        for number in count():
            if done.done() and (number >= seconds * CALLS_A_SECOND or done.exception()):
                return
            era = self._eras[number // len(_TOOLS) % len(self._eras)]
            tool = _tool(number)
            arguments = {"number": number, "one": 1} if tool == "add" else {"number": number}
            message = request(era, "tools/call", number, name=tool, arguments=arguments)
            session_id = self._sessions[number % SESSIONS] if era is Era.HANDSHAKE else None
            yield bearing(KEY, post(message, era, session_id))

    def _is_right(self, outcome: Outcome) -> bool:
        match message_in(outcome.text):
            case {"id": outcome.number, "result": {"isError": False, "content": [{"text": str(text)}]}}:
                return self._says_what_it_should(outcome.number, text)
            case _:
                return False

    def _says_what_it_should(self, number: int, text: str) -> bool:
        match _tool(number):
            case "add":
                return text == str(number + 1)
            case "large":
                return text == large_text(number)
            case _:
                answered, _, process_id = text.partition(" ")
                self._answering.add(int(process_id))
                return answered == str(number)


def _tool(number: int) -> str:
    return _TOOLS[number % len(_TOOLS)]
