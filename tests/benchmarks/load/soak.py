"""A soak test: so many calls that memory left behind by a call shows in the server's memory."""

from __future__ import annotations

from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

from tests.benchmarks import http_server, stdio_server
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.latency import CONNECTIONS, requests
from tests.benchmarks.load.memory import mib, resident_kib
from tests.benchmarks.load.section import Section
from tests.benchmarks.messages import Era, call, line, says_three
from tests.benchmarks.processes import LIMIT_SECONDS, TOOLS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator

    from tests.benchmarks.stdio_server import StdioServer

WARM_CALLS = 10_000
"""Calls after which a server has allocated all the memory that it needs."""

_LINES_AT_ONCE = 50
_CALLS_A_SECOND = 200
"""Minimum calls, also on a busy machine."""


def measure(calls: int) -> Section:
    """Call repeatedly, and compare the memory at the end with that after `WARM_CALLS`.

    Args:
        calls: Number of calls; with less than ten times `WARM_CALLS`, a tenth of them are the warm-up.
    """
    warm = min(WARM_CALLS, calls // 10)
    section = Section(
        f"A soak of {calls:,} calls",
        *(f"memory after {warm:,}", "at the end", "difference", "calls a second", "errors"),
    )
    limit_seconds = LIMIT_SECONDS + calls / _CALLS_A_SECOND
    with stdio_server.serving(TOOLS, limit_seconds=limit_seconds) as stdio:
        stdio.open(Era.HANDSHAKE)
        section.add("handshake, stdio", *_figures(stdio.process, _over_stdio(stdio, calls), calls, warm))
    for era in Era:
        with (
            http_server.serving(TOOLS, limit_seconds=limit_seconds) as http,
            Crowd(http.port, CONNECTIONS) as crowd,
        ):
            http.open_session()
            answers = (answer.text for answer in crowd.ask(requests(http, era, calls)))
            section.add(f"{era.name.lower()}, HTTP", *_figures(http.process, answers, calls, warm))
    return section


def _over_stdio(server: StdioServer, calls: int) -> Iterator[bytes]:
    lines = (line(call(Era.HANDSHAKE, "add", number)) for number in range(1, calls + 1))
    while several := list(islice(lines, _LINES_AT_ONCE)):
        server.send(b"".join(several))
        for _ in several:
            yield server.receive()


def _figures(process: subprocess.Popen[bytes], answers: Iterable[bytes], calls: int, warm: int) -> list[str]:
    errors = 0
    start = perf_counter()
    after_warm = resident_kib(process)
    for number, answer in enumerate(answers, 1):
        errors += not says_three(answer)
        if number == warm:
            after_warm = resident_kib(process)
    took, at_end = perf_counter() - start, resident_kib(process)
    more = at_end - after_warm
    return [mib(after_warm), mib(at_end), f"{more:+,} KiB", f"{calls / took:,.0f}", f"{errors:,}"]
