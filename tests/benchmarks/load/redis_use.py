"""Use of a shared Redis: commands and Redis's own processor time for sessions, calls and rates of two replicas."""

from __future__ import annotations

from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from redis import Redis

from tests.benchmarks.http_server import serving
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.section import Section
from tests.benchmarks.load.sessions import open_sessions
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import TOOLS
from tests.benchmarks.table import duration
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.benchmarks.http_server import HttpServer

_CONNECTIONS = 16
_LIMITS = ("--rate", "1000000/1")
_CONNECTING = frozenset({"ping", "hello", "info", "client|setinfo", "script|load"})


def measure(calls: int, sessions: int = 100) -> list[Section]:
    """Count commands.

    Args:
        calls: Calls of each row.
        sessions: Sessions that are opened.
    """
    section = Section(
        "Use of Redis by two replicas", "commands each", "a second", "Redis's processor time each", first="in Redis"
    )
    with TemporaryDirectory() as folder, redis_server(Path(folder)) as redis, Redis.from_url(redis.url) as client:
        environment = {"BRIDGE_REDIS_URL": redis.url, "BRIDGE_STATE_KEYS": "a-key-with-at-least-32-characters-in-it"}
        options = ("--name", "counted")
        with (
            serving(TOOLS, *options, environment=environment) as one,
            serving(TOOLS, *options, environment=environment) as other,
        ):
            ids: list[str] = []

            def open_all() -> None:
                ids.extend(open_sessions(one, sessions))

            _add(section, client, "a session of 2025-11-25, opened", sessions, open_all)
            modern: list[str | None] = [None]
            for name, server, era, its, count in (
                ("a call of 2025-11-25, where its session is", one, Era.HANDSHAKE, ids, calls),
                ("a session's first call at another replica", other, Era.HANDSHAKE, ids, sessions),
                ("a call of 2026-07-28", one, Era.MODERN, modern, calls),
            ):
                _add(section, client, name, count, partial(_call, section, server, era, its, count))
        with serving(TOOLS, *options, *_LIMITS, environment=environment) as limited:
            name = "a call of 2026-07-28, with `--rate`"
            _add(section, client, name, calls, lambda: _call(section, limited, Era.MODERN, [None], calls))
    return [section]


def _add(section: Section, client: Any, name: str, count: int, work: Callable[[], None]) -> None:
    before, began = _used(client), perf_counter()
    work()
    seconds, after = perf_counter() - began, _used(client)
    commands, redis_seconds = after[0] - before[0], after[1] - before[1]
    section.add(name, f"{commands / count:.2g}", f"{commands / seconds:,.0f}", duration(redis_seconds / count))


def _call(section: Section, server: HttpServer, era: Era, ids: Sequence[str | None], count: int) -> None:
    requests = islice(
        cycle([server.post(call(era, "add", 1 + turn), era, each) for turn in range(32) for each in ids]), count
    )
    with Crowd(server.port, _CONNECTIONS) as crowd:
        if wrong := sum(not says_three(answer.text) for answer in crowd.ask(requests)):
            section.fail(f"{wrong} of {count} calls failed")


def _used(client: Any) -> tuple[int, float]:
    """Return the number of commands, without those of new connections, and the seconds of processor time."""
    stats = {name.removeprefix("cmdstat_"): each for name, each in client.info("commandstats").items()}
    counted = [each for name, each in stats.items() if name not in _CONNECTING]
    return sum(each["calls"] for each in counted), sum(each["usec"] for each in counted) / 1e6
