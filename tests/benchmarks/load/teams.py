"""Teams of a gateway: three that call as often as they may, alone and beside one that floods it.

The gateway has servers over stdio, which the calls reach in turn. Each team has a rate, and running calls at a time.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from tests.benchmarks.http_server import HttpServer, bearing, serving
from tests.benchmarks.load.flood import CONNECTIONS, Flood
from tests.benchmarks.load.section import Section, percentiles
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import LONG_SECONDS, ROOT, TOOLS, cpu_clock
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = 12
TEAMS = ("data", "ops", "web")
_FLOODING = "flooding"
_RATE = 50
"""Calls a second of each team, which is its limit."""
_CONCURRENCY = 8
_SETTLE_SECONDS = 3.0
"""Seconds before the calls, in which a flood opens its connections and uses up its rate."""
_MOST = 2.0
"""Factor of the p99 beside the flood, below which it has to be."""
_SURE_SECONDS = 10
"""Seconds of a row from which on its p99 is judged."""


def measure(seconds: float) -> Section:
    """Call at the limits of three teams, alone and beside a flood.

    Args:
        seconds: Duration of each row.
    """
    section = Section(
        f"{len(TEAMS)} teams, each with {_RATE} calls a second through a gateway with {SERVERS} servers over stdio; "
        f"another team floods it by {CONNECTIONS} connections",
        *("team", "calls", "refused", "p50", "p90", "p99", "flood: answered", "refused", "gateway CPU"),
    )
    alone: dict[str, float] = {}
    with _gateway() as gateway:
        for is_flooded in (False, True):
            name = "beside the flood" if is_flooded else "alone"
            flood = Flood(gateway.port, _request(gateway, _FLOODING, 0), CONNECTIONS if is_flooded else 0)
            teams = [_Team(gateway, team, seconds, number / len(TEAMS)) for number, team in enumerate(TEAMS)]
            clock = cpu_clock(gateway.process)
            with flood.running():
                sleep(_SETTLE_SECONDS)
                worked, began = clock(), perf_counter()
                for team in teams:
                    team.start()
                for team in teams:
                    team.join()
                later, took = clock(), perf_counter() - began
            shown = "" if worked is None or later is None else f"{(later - worked) / took:.0%}"
            for team in teams:
                p50, p90, p99 = percentiles(team.latencies)
                counts = (f"{len(team.latencies):,}", f"{team.refused:,}")
                of_flood = (f"{flood.answered:,}", f"{flood.refused:,}") if is_flooded else ("", "")
                section.add(name, team.team, *counts, *map(duration, (p50, p90, p99)), *of_flood, shown)
                if p99 >= _MOST * alone.setdefault(team.team, p99) and seconds >= _SURE_SECONDS:
                    section.fail(f"the p99 of the team {team.team} is {p99 / alone[team.team]:.1f} times that of alone")
    return section


@contextmanager
def _gateway() -> Iterator[HttpServer]:
    """Serve a gateway with a key for each team."""
    entry = {"command": sys.executable, "args": ["-m", "bridge", "serve", TOOLS], "cwd": str(ROOT)}
    with TemporaryDirectory() as folder:
        configuration, keys = Path(folder) / "mcp.json", Path(folder) / "keys"
        configuration.write_text(json.dumps({"mcpServers": {f"s{number}": entry for number in range(SERVERS)}}))
        keys.write_text("".join(f"{team} {_key(team)} team={team}\n" for team in (*TEAMS, _FLOODING)))
        keys.chmod(0o600)
        # A caller's pace varies by a few calls a second.
        limits = ("--team-rate", f"{_RATE + 10}/1", "--team-concurrency", str(_CONCURRENCY))
        options = ("--api-keys", str(keys), "--start-wait", "120", *limits)
        with serving(str(configuration), *options, limit_seconds=LONG_SECONDS) as server:
            yield server


def _key(team: str) -> str:
    return f"{team}-" * 8


def _request(gateway: HttpServer, team: str, number: int) -> bytes:
    return bearing(_key(team), gateway.post(call(Era.MODERN, f"s{number}_add"), Era.MODERN))


class _Team(Thread):
    """Calls of one team at a steady pace, to each server in turn, between those of the other teams."""

    def __init__(self, gateway: HttpServer, team: str, seconds: float, offset: float) -> None:
        super().__init__()
        self.team = team
        self.latencies: list[float] = []
        self.refused = 0
        self._gateway = gateway
        self._requests = [_request(gateway, team, number) for number in range(SERVERS)]
        self._offset = offset
        self._calls = max(1, int(seconds * _RATE))

    def run(self) -> None:
        with self._gateway.connect() as connection:
            start = perf_counter()
            for number, request in enumerate(islice(cycle(self._requests), self._calls)):
                due = start + (number + self._offset) / _RATE
                # The pace is part of what is measured: a late response delays the next call, which counts.
                sleep(max(0.0, due - perf_counter()))
                self.refused += not says_three(connection.answer(request))
                self.latencies.append(perf_counter() - due)
