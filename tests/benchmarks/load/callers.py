"""Many callers of one server, each with a credential of its own, through a gateway; and beside a shared credential."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

from bridge.gateway.credentials.sealing import CredentialSeal
from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore
from bridge.gateway.credentials.store import Credential, CredentialKey
from tests.benchmarks.http_server import HttpServer, bearing, serving
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.memory import mib, peak_kib, resident_kib
from tests.benchmarks.load.section import Section, percentiles
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import LONG_SECONDS, TOOLS, cpu_clock
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_STATE_KEY = "state-key-with-at-least-32-characters"
_CONNECTIONS = 50
_ROUNDS = 11
_CALLS_IN_ROUND = 1000
_LOWEST_RATIO = 0.8
_OWN = {"auth": {"type": "secret", "per": "caller"}}
_SHARED = {"headers": {"Authorization": "Bearer shared"}}


def measure(count: int) -> list[Section]:
    """Let many callers call, and compare a call with the caller's credential to one with a shared one.

    Args:
        count: Number of callers.
    """
    with serving(TOOLS, limit_seconds=LONG_SECONDS) as server, ExitStack() as stack:
        own, shared = (stack.enter_context(_gateway(server, entry, count)) for entry in (_OWN, _SHARED))
        return [_crowd(own, count), _ratio(own, shared)]


def _crowd(gateway: HttpServer, count: int) -> Section:
    section = Section(
        f"{count:,} callers of one server, over {_CONNECTIONS} connections",
        *("all", "each, p50", "p90", "p99", "gateway CPU", "errors", "memory before", "after", "for each caller"),
    )
    clock, start = cpu_clock(gateway.process), resident_kib(gateway.process)
    requests = [bearing(_key(number), gateway.post(call(Era.MODERN, "add"), Era.MODERN)) for number in range(count)]
    with Crowd(gateway.port, _CONNECTIONS) as crowd:
        for name in ("first calls, which connect", "second calls", "third calls"):
            before, began, worked = resident_kib(gateway.process), perf_counter(), clock() or 0.0
            answers = list(crowd.ask(requests))
            seconds, cpu = perf_counter() - began, ((clock() or 0.0) - worked) / count
            after = resident_kib(gateway.process)
            errors = sum(not says_three(answer.text) for answer in answers)
            section.add(
                name,
                duration(seconds),
                *map(duration, percentiles([answer.seconds for answer in answers])),
                duration(cpu),
                f"{errors:,}",
                mib(before),
                mib(after),
                f"{(after - start) / count:.0f} KiB",
            )
            if errors:
                section.fail(f"{errors:,} calls of callers with credentials of their own failed")
    section.add("peak", *[""] * 7, mib(peak_kib(gateway.process)))
    return section


def _ratio(own: HttpServer, shared: HttpServer) -> Section:
    section = Section("One caller, processor time of a call in the gateway", "median of rounds", "speed")
    seconds: dict[str, list[float]] = {"own": [], "shared": []}
    gateways = {"own": own, "shared": shared}
    with ExitStack() as stack:
        crowds = {name: stack.enter_context(Crowd(each.port, 8)) for name, each in gateways.items()}
        for number in range(_ROUNDS + 1):
            for name, gateway in gateways.items():
                request = bearing(_key(0), gateway.post(call(Era.MODERN, "add"), Era.MODERN))
                clock = cpu_clock(gateway.process)
                worked = clock() or 0.0
                assert all(says_three(answer.text) for answer in crowds[name].ask([request] * _CALLS_IN_ROUND))
                if number:  # the first one warms up
                    seconds[name].append(((clock() or 0.0) - worked) / _CALLS_IN_ROUND)
    ratio = median(seconds["shared"]) / median(seconds["own"])
    section.add("a credential for all", duration(median(seconds["shared"])), "1.00")
    section.add("the caller's own", duration(median(seconds["own"])), f"{ratio:.2f}")
    if ratio < _LOWEST_RATIO:
        section.fail(f"a call with the caller's own credential has {ratio:.2f} of the speed of a shared one")
    return section


@contextmanager
def _gateway(server: HttpServer, entry: Mapping[str, object], count: int) -> Iterator[HttpServer]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        config, keys, store = folder / "mcp.json", folder / "keys", folder / "credentials.db"
        url = f"http://127.0.0.1:{server.port}/mcp"
        config.write_text(json.dumps({"mcpServers": {"server": {"url": url, **entry}}}), encoding="utf-8")
        keys.write_text("".join(f"caller-{number} {_key(number)}\n" for number in range(count)), encoding="utf-8")
        keys.chmod(0o600)
        anyio.run(_fill, store, range(count))
        options = ("--api-keys", str(keys), "--credential-store", str(store))
        environment = {"BRIDGE_STATE_KEYS": _STATE_KEY}
        with serving(str(config), *options, limit_seconds=LONG_SECONDS, environment=environment) as gateway:
            yield gateway


async def _fill(file: Path, numbers: Sequence[int]) -> None:
    """Keep a key of each caller."""
    store = SqliteCredentialStore(file, CredentialSeal([_STATE_KEY.encode()]))
    await store.open()
    for number in numbers:
        key = CredentialKey("key", f"caller-{number}", "server")
        await store.put(key, Credential(kind="secret", secret=f"of-caller-{number}"))
    await store.close()


def _key(number: int) -> str:
    return f"key-of-the-caller-with-the-number-{number:06}"
