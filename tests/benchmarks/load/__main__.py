"""``python -m tests.benchmarks.load``: load tests that take minutes, printed as a report.

Each server is a process of its own on the loopback interface. It is ended after its section, or at its time limit.
Memory is read from /proc, so the report needs Linux.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.load import (
    breadth,
    breakdown,
    callers,
    clients,
    flood,
    gateway,
    held,
    lab,
    large_reads,
    latency,
    lists,
    peers,
    redis_use,
    sessions,
    soak,
    teams,
)
from tests.benchmarks.load.section import store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.load.section import Section

_FILES = 8192
"""Maximum open files of this process and of the servers; a connection takes one on each side."""


def main() -> None:
    """Run the named sections, or all; the exit code is 1 if a section reports a problem."""
    options = _options()
    sections: dict[str, Callable[[], list[Section]]] = {
        "clients": lambda: [clients.measure(options.clients)],
        "callers": lambda: callers.measure(options.callers),
        "sessions": lambda: [sessions.measure(options.sessions)],
        "soak": lambda: [soak.measure(options.calls)],
        "held": lambda: held.measure(options.held_seconds),
        "latency": lambda: latency.measure(options.latency_calls),
        "flood": lambda: [flood.measure(options.flood_seconds)],
        "teams": lambda: [teams.measure(options.flood_seconds)],
        "peers": lambda: peers.measure(options.peer_seconds, options.peer_rounds),
        "features": lambda: peers.measure_features(options.peer_seconds, options.peer_rounds),
        "gateway": lambda: gateway.measure(options.gateway_seconds),
        "gateway-sessions": lambda: gateway.measure_sessions(options.gateway_seconds),
        "servers": lambda: gateway.measure_servers(options.gateway_seconds, options.servers),
        "reads": lambda: [large_reads.measure(options.reads)],
        "lists": lambda: [lists.measure(options.tools)],
        "breakdown": lambda: breakdown.measure(options.round_calls),
        "lab": lambda: lab.measure(options.lab_seconds),
        "breadth": lambda: breadth.measure(
            options.tools, options.idle_sessions, options.subscribers, options.callers, options.results
        ),
        "redis": lambda: redis_use.measure(options.redis_calls),
    }
    _allow_files()
    sys.stdout.write(f"Python {platform.python_version()} on {os.cpu_count()} cores of {platform.machine()}\n")
    failures: list[str] = []
    for name in options.sections or sections:
        for section in sections[name]():
            sys.stdout.write("\n".join(["", *section.lines(), ""]))
            sys.stdout.flush()
            failures += section.failures
            if options.figures is not None:
                store(options.figures, section)
    if failures:
        sys.exit("\n".join(failures))


def _options() -> argparse.Namespace:
    names = [
        "clients",
        "callers",
        "sessions",
        "soak",
        "held",
        "latency",
        "flood",
        "teams",
        "peers",
        "features",
        "gateway",
        "gateway-sessions",
        "servers",
        "reads",
        "lists",
        "breakdown",
        "lab",
        "redis",
        "breadth",
    ]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.load", description="What a server bears.")
    parser.add_argument("sections", nargs="*", choices=[*names, []], help="which ones; all where none is named")
    for option, default, what in (
        ("--clients", 1000, "clients at once"),
        ("--callers", 1000, "callers with credentials of their own"),
        ("--sessions", 5000, "sessions of the handshake era that are open at once"),
        ("--calls", 100_000, "calls of the soak; a million shows more, and takes longer"),
        ("--held-seconds", 600, "seconds for which a load is held"),
        ("--latency-calls", 8000, "calls of each row of the latency; at a pace, for each thousand a second"),
        ("--flood-seconds", 20, "seconds that each row of the flood takes"),
        ("--gateway-seconds", 2, "seconds of each figure of the gateways"),
        ("--peer-seconds", 2, "seconds of each server in a round beside its peers"),
        ("--peer-rounds", 3, "rounds beside peers"),
        ("--reads", 10, "reads of large contents through each gateway"),
        ("--tools", 10_000, "tools of the server that has many"),
        ("--round-calls", 1000, "calls of each round of the breakdown"),
        ("--idle-sessions", 10_000, "sessions that nobody uses"),
        ("--subscribers", 1000, "subscribers of one resource"),
        ("--results", 20, "large results"),
        ("--redis-calls", 20_000, "calls of which the commands to Redis are counted"),
        ("--lab-seconds", 8, "seconds of each server of the lab"),
    ):
        parser.add_argument(option, type=int, default=default, help=f"{what} (default: {default:,})")
    parser.add_argument(
        "--servers", type=int, nargs="+", default=gateway.SERVER_COUNTS, help="servers behind a gateway"
    )
    parser.add_argument("--figures", type=Path, help="JSON file in which the figures of the documentation are stored")
    return parser.parse_args()


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


if __name__ == "__main__":
    main()
