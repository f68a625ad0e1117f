"""Cost of a server with many tools: a list whose bytes are cached, and a call, beside a server with few tools."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING

from bridge import ToolBox
from bridge.protocol.session import Session
from bridge.server.auth.access import EVERYTHING
from bridge.server.dispatch import Dispatch
from bridge.server.exchange import LocalOrigin
from bridge.server.server import Server
from tests.benchmarks.http_server import serving
from tests.benchmarks.load.section import Section
from tests.benchmarks.load.stopwatch import best_seconds
from tests.benchmarks.many_tools import numbered
from tests.benchmarks.messages import INITIALIZE, Era, call, request, says_three
from tests.benchmarks.processes import MANY_TOOLS, cpu_clock
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.http_server import Connection, HttpServer

FEW = 10
_CALLS = 200
_LISTS = 10
_ROUNDS = 10


def measure(many: int) -> Section:
    """Compare a server of many tools with one of few, in alternating rounds.

    Args:
        many: Number of tools of the larger server.
    """
    section = Section(
        f"{FEW} tools, and {many:,}", f"{FEW}, best", "server CPU", f"{many:,}, best", "server CPU", "times"
    )
    counts = (FEW, many)
    lists = [_list_in_process(count) for count in counts]
    section.add("the bytes of a list", f"{lists[0][0]:,}", "", f"{lists[1][0]:,}")
    _add(section, "an answer with the list, in process", [(seconds, None) for _, seconds in lists])
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(MANY_TOOLS, tools=count)) for count in counts]
        for server in servers:
            server.open_session()
        connections = [stack.enter_context(server.connect()) for server in servers]
        for era in Era:
            text = [server.post(request(era, "tools/list"), era) for server in servers]
            _add(section, f"the first list, {era.name.lower()}", _raced(servers, connections, text, _lists, 1, 1))
            _add(section, f"a later list, {era.name.lower()}", _raced(servers, connections, text, _lists, _LISTS))
        for era in Era:
            text = [
                server.post(call(era, f"add_{count - 1}"), era) for server, count in zip(servers, counts, strict=True)
            ]
            _add(section, f"a call of the last, {era.name.lower()}", _raced(servers, connections, text, _calls, _CALLS))
    return section


def _list_in_process(count: int) -> tuple[int, float]:
    """Measure the length of a list, and the time to answer with it, without the first time."""
    dispatch = Dispatch(Server(ToolBox([numbered(number) for number in range(count)]), name="many"))
    session, origin = Session(), LocalOrigin(EVERYTHING)
    dispatch.handshake(INITIALIZE, session, origin, "")
    message = request(Era.HANDSHAKE, "tools/list")

    async def list_tools() -> bytes:
        answer = dispatch.handshake(message, session, origin, session.version)
        assert isinstance(answer, bytes)
        return answer

    return len(asyncio.run(list_tools())), asyncio.run(best_seconds(list_tools, calls=_CALLS))


def _raced(
    servers: list[HttpServer],
    connections: list[Connection],
    texts: list[bytes],
    check: Callable[[bytes], bool],
    calls: int,
    rounds: int = _ROUNDS,
) -> list[tuple[float, float | None]]:
    """Return the minimum round trip and processor time of each server, from alternating rounds."""
    found: list[list[tuple[float, float | None]]] = [[] for _ in servers]
    for _ in range(rounds):
        for server, connection, text, rows in zip(servers, connections, texts, found, strict=True):
            clock = cpu_clock(server.process)
            worked, start = clock(), perf_counter()
            for _ in range(calls):
                answer = connection.answer(text)
            took, worked_later = perf_counter() - start, clock()
            assert check(answer), answer[:1000]
            cpu = None if worked is None or worked_later is None else (worked_later - worked) / calls
            rows.append((took / calls, cpu))
    return [(min(took for took, _ in rows), min((cpu for _, cpu in rows if cpu), default=None)) for rows in found]


def _lists(answer: bytes) -> bool:
    return b'"add_0"' in answer


def _calls(answer: bytes) -> bool:
    return says_three(answer)


def _add(section: Section, name: str, figures: list[tuple[float, float | None]]) -> None:
    cells = [cell for took, cpu in figures for cell in (duration(took), "" if cpu is None else duration(cpu))]
    section.add(name, *cells, f"{figures[1][0] / figures[0][0]:.2f}")
