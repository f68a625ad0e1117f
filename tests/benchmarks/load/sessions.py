"""Open sessions of the handshake era: memory of each, responses in all of them, and memory after they expire."""

from __future__ import annotations

import subprocess
import time
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tests.benchmarks.http_server import HttpServer, bearing, session_id_in
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.memory import mib, resident_kib
from tests.benchmarks.load.section import Section
from tests.benchmarks.messages import INITIALIZE, INITIALIZED, Era, call, says_three
from tests.benchmarks.processes import LIMIT_SECONDS, running
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

_SERVER = "tests.benchmarks.load.idle_server"
_CLIENTS = 16
_WARM_SESSIONS = 100
_SESSIONS_A_SECOND = 50
"""Minimum number of sessions that are opened and called before one may expire, also on a busy machine."""
_GONE = b"HTTP/1.1 404"


def open_sessions(server: HttpServer, count: int, key: str | None = None) -> list[str]:
    """Open sessions, as clients do, and return their IDs.

    Args:
        server: The server.
        count: Number of sessions.
        key: Key of the caller; None without one.
    """

    def post(message: dict[str, Any], session_id: str | None = None) -> bytes:
        raw = server.post(message, Era.HANDSHAKE, session_id)
        return raw if key is None else bearing(key, raw)

    with Crowd(server.port, min(count, _CLIENTS)) as crowd:
        ids = [session_id_in(answer.text) for answer in crowd.ask([post(INITIALIZE)] * count)]
        opened = crowd.ask([post(INITIALIZED, each) for each in ids])
        assert all(answer.text.startswith(b"HTTP/1.1 202") for answer in opened)
    return ids


def measure(count: int) -> Section:
    """Open sessions, call in each, let them expire, and open as many again.

    Args:
        count: Number of sessions.
    """
    idle_seconds = 1 + count / _SESSIONS_A_SECOND
    section = Section(f"{count:,} sessions that expire when they are idle for {duration(idle_seconds)}", "", "memory")
    limit_seconds = LIMIT_SECONDS + 6 * idle_seconds
    with running("-m", _SERVER, str(idle_seconds), limit_seconds=limit_seconds, stderr=subprocess.PIPE) as process:
        server = HttpServer(process)
        _call_in(server, open_sessions(server, min(count, _WARM_SESSIONS)))  # warm-up
        before = resident_kib(process)
        section.add("before, some were open already", "", mib(before))
        start = perf_counter()
        ids = open_sessions(server, count)
        took, more = perf_counter() - start, resident_kib(process) - before
        section.add("opened", f"{duration(took / count)} each", f"+{more / count:.1f} KiB each")
        start = perf_counter()
        good, _ = _call_in(server, ids)
        took, more = perf_counter() - start, resident_kib(process) - before
        section.add("called, each once", f"{good:,} of {count:,} answered", f"+{more / count:.1f} KiB each")
        # The expiry is what is tested. Ending the sessions takes less time than opening them did.
        time.sleep(1.5 * idle_seconds)
        _, gone = _call_in(server, ids)
        section.add("unused for so long", f"{gone:,} of {count:,} are gone", mib(resident_kib(process)))
        _call_in(server, open_sessions(server, count))
        more = resident_kib(process) - before
        section.add("as many again, opened and called", "", f"+{more / count:.1f} KiB each, those before included")
    return section


def _call_in(server: HttpServer, ids: Sequence[str]) -> tuple[int, int]:
    """Call in each session; returns the number of answered calls, and of expired sessions."""
    good = gone = 0
    with Crowd(server.port, min(len(ids), _CLIENTS)) as crowd:
        for answer in crowd.ask(server.post(call(Era.HANDSHAKE, "add"), Era.HANDSHAKE, each) for each in ids):
            good += says_three(answer.text)
            gone += answer.text.startswith(_GONE)
    return good, gone
