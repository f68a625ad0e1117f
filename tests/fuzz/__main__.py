"""``python -m tests.fuzz [http] [stdio] [client] [answers]``: malformed messages for servers and clients.

Each HTTP parser and each era over stdio gets a server process of its own and its share of the time. The table has the
number of inputs, of those with no response or a wrong one in time, and of tracebacks in the server's log, and the
memory after the first batch and after the last. It needs Linux, which reports memory. For ``client``, a provider behind
a hostile server (`tests.fuzz.hostile`) is tested in the same way (`tests.fuzz.client`). For ``answers``, calls get
unusual responses (`tests.client.mutated_answers`); a problem is a result over an own HTTP connection that
differs from that of the general HTTP client.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import h11

from tests import processes
from tests.benchmarks.load.memory import mib, usage
from tests.client.mutated_answers import Answer, Pair
from tests.client.raw_http import MODERN
from tests.server.http_answers import answer_to, problem_with
from tests.server.http_mutations import Sessions, attempt, initialize, modern, post, without_body
from tests.server.raw_http import event_of, open_session, sent, taken
from tests.server.stdio_mutations import NOTHING, NULL, expected, seeds, spoiled
from tests.server.stdio_process import StdioProcess, modern_request, request

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = str(Path(__file__).with_name("tools.py"))
WHAT = ["http", "stdio", "client", "answers"]
BATCH = 200
AT_ONCE = 16
DEADLINE_SECONDS = 60
CALL = {"name": "add", "arguments": {"a": 40, "b": 2}}
OFFER = b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
SHOWN = 20
SHOWN_CHARS = 5000

COMMAND = {
    "httptools": ["-m", "bridge"],
    "h11": ["-c", "import sys; sys.modules['httptools'] = None\nfrom bridge.__main__ import main\nsys.exit(main())"],
}
"""Arguments of Python that start `bridge`, by its HTTP parser."""

CLIENTS = [("http", "modern"), ("http", "handshake"), ("sse", "handshake"), ("stdio", "modern"), ("stdio", "handshake")]
"""Transports and eras of hostile servers."""


@dataclass(slots=True)
class Outcome:
    """Results of one server."""

    name: str
    tried: int = 0
    problems: list[str] = field(default_factory=list)
    tracebacks: int = 0
    first_traceback: str = ""
    first_kib: int = 0
    last_kib: int = 0

    def note_memory(self, process_id: int) -> None:
        """Record the current memory of the server."""
        self.last_kib = usage(process_id).resident_kib
        self.first_kib = self.first_kib or self.last_kib

    def note_log(self, log: str) -> None:
        """Record the number of tracebacks in the server's log, and the first of them."""
        _, _, first = log.partition("Traceback")
        self.tracebacks, self.first_traceback = log.count("Traceback"), first[:SHOWN_CHARS]

    def row(self) -> str:
        """Return the row of the table."""
        memory = f"{mib(self.first_kib):>10} {mib(self.last_kib):>10}"
        return f"{self.name:<26} {self.tried:>9} {len(self.problems):>9} {self.tracebacks:>10} {memory}"


def fuzz_http(parser: str, seconds: float, seed: int) -> Outcome:
    """Send malformed requests to a server that uses this HTTP parser."""
    outcome = Outcome(f"http, {parser}")
    options = ["--transport", "http", "--port", "0"]
    with processes.serving(*COMMAND[parser], "serve", TOOLS, *options) as server:
        anyio.run(_fuzz_http, server, outcome, seconds, seed)
        if server.process.poll() is not None:
            outcome.problems.append(f"the server ended with {server.process.returncode}")
        server.process.terminate()
        outcome.note_log(server.log)
    return outcome


async def _fuzz_http(server: processes.ServerProcess, outcome: Outcome, seconds: float, seed: int) -> None:
    port, end = int(server.origin.rpartition(":")[2]), monotonic() + seconds
    async with sent(port, without_body("GET", "/sse").raw, "GET") as news, anyio.create_task_group() as tasks:
        await news.head()
        target = (await event_of(news, rb"data: (/messages/\S+)\r?\n")).decode()
        await taken(port, post(target, json.loads(initialize().body)))

        async def read() -> None:
            async for _ in news.parts():
                pass

        tasks.start_soon(read)
        while monotonic() < end:
            sessions = Sessions(await open_session(port), await open_session(port), target)
            await _batch(port, sessions, outcome, seed)
            with anyio.fail_after(DEADLINE_SECONDS):
                assert b'"text":"42"' in await taken(port, modern("tools/call", **CALL))
            outcome.note_memory(server.process.pid)
        tasks.cancel_scope.cancel()


async def _batch(port: int, sessions: Sessions, outcome: Outcome, seed: int) -> None:
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def one(number: int) -> None:
        random = Random(seed + number)
        made = attempt(random, sessions)
        if random.random() < 0.1:
            object.__setattr__(made, "raw", made.raw.replace(b"\r\n", OFFER, 1))
        async with limit:
            try:
                with anyio.fail_after(DEADLINE_SECONDS):
                    answer = await answer_to(port, made)
                problem = problem_with(made, answer)
            except (TimeoutError, h11.ProtocolError, ValueError) as error:
                answer, problem = None, repr(error)
        if problem:
            told = f"{outcome.name}, seed {seed + number}: {problem}: {answer} to {made.raw[:1000]!r}"
            outcome.problems.append(told)

    async with anyio.create_task_group() as tasks:
        for number in range(outcome.tried, outcome.tried + BATCH):
            tasks.start_soon(one, number)
    outcome.tried += BATCH


def fuzz_stdio(era: str, seconds: float, seed: int) -> Outcome:
    """Send malformed lines to a server over stdio."""
    outcome, random, is_modern = Outcome(f"stdio, {era}"), Random(seed), era == "modern"
    messages, make, end = seeds(is_modern=is_modern), modern_request if is_modern else request, monotonic() + seconds
    good = make("good", "tools/call", **CALL)
    with StdioProcess(command=[*COMMAND["httptools"], "serve", TOOLS]) as server:
        if is_modern:
            server.answer(good)
        else:
            server.initialize()
        try:
            while monotonic() < end:
                texts = [spoiled(random, number, messages) for number in range(outcome.tried, outcome.tried + BATCH)]
                awaited = Counter(expected(line) for text in texts for line in text.split(b"\n"))
                del awaited[NOTHING]
                server.send(*texts)
                answered: Counter[object] = Counter()
                while answered.total() < awaited.total():
                    answer = server.receive()
                    if "method" not in answer:
                        answered[NULL if answer["id"] is None else answer["id"]] += 1
                # The server reads the ID of a malformed line with too many values: there may be more responses.
                if (awaited - answered).keys() - {NULL}:
                    outcome.problems.append(f"{outcome.name}, line {outcome.tried}: {awaited - answered} not answered")
                outcome.tried += BATCH
                assert server.answer(good)["result"]["structuredContent"] == {"result": 42}
                outcome.note_memory(server.process.pid)
        except AssertionError as error:
            outcome.problems.append(f"{outcome.name}, line {outcome.tried}: {str(error)[:1000]}")
        outcome.note_log(server.log())
    return outcome


def fuzz_client(transport: str, era: str, seconds: float, seed: int) -> Outcome:
    """Let a provider call a hostile server."""
    outcome = Outcome(f"client, {transport}, {era}")
    with TemporaryDirectory() as folder, ExitStack() as stack:
        flag, target = f"{folder}/behave", ""
        if transport != "stdio":
            words = [sys.executable, "-m", "tests.fuzz.hostile", transport, era, flag]
            server = stack.enter_context(subprocess.Popen(words, cwd=processes.ROOT, stdout=subprocess.PIPE))
            stack.callback(server.kill)
            assert server.stdout is not None
            target = f"http://127.0.0.1:{int(server.stdout.readline())}/{'sse' if transport == 'sse' else 'mcp'}"
        log = stack.enter_context(Path(folder, "log").open("w+", errors="replace"))
        words = [sys.executable, "-m", "tests.fuzz.client", transport, era, flag, target, str(seed), str(seconds)]
        client = stack.enter_context(
            subprocess.Popen(words, cwd=processes.ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        )
        assert client.stdout is not None
        for line in client.stdout:
            said = json.loads(line)
            outcome.tried, outcome.last_kib = said["tried"], said["kib"]
            outcome.first_kib = outcome.first_kib or said["kib"]
            outcome.problems = [f"{outcome.name}, {problem}" for problem in said["problems"]]
        if client.wait():
            outcome.problems.append(f"{outcome.name}: the client ended with {client.returncode}")
        log.seek(0)
        logged = log.read()
        outcome.tracebacks = logged.count("Traceback")
        if outcome.tracebacks:
            outcome.problems.append(f"{outcome.name}: {logged[logged.index('Traceback') :][:3000]}")
    return outcome


def fuzz_answers(era: str, seconds: float, seed: int) -> Outcome:
    """Let clients call over own connections and by the general HTTP client, and compare the results."""
    outcome, end = Outcome(f"answers, {era}"), monotonic() + seconds
    logging.disable()  # of messages that cannot be read

    async def compare() -> None:
        version = "legacy" if era == "handshake" else MODERN
        async with Pair.serving(version) as of_login, Pair.serving(version, Authorization="Bearer key") as of_key:
            while monotonic() < end:
                for number in range(seed + outcome.tried, seed + outcome.tried + BATCH):
                    answer = Answer.of(Random(number))
                    own, by_client = await (of_key if number % 2 else of_login).outcomes(answer)
                    if own != by_client:
                        told = f"{own}, by the HTTP client {by_client}: {answer}"
                        outcome.problems.append(f"{outcome.name}, seed {number}: {told}"[:SHOWN_CHARS])
                outcome.tried += BATCH
                outcome.note_memory(os.getpid())

    anyio.run(compare)
    logging.disable(logging.NOTSET)
    return outcome


def main() -> None:
    """Fuzz the named targets, or all; the exit code is 1 if there are problems."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("what", nargs="*", choices=[*WHAT, []], help="what to fuzz; by default all")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long each process is fuzzed")
    parser.add_argument("--seed", type=int, default=20260728, help="where the random numbers begin")
    options = parser.parse_args()
    wanted = options.what or WHAT
    runs: list[Callable[[float, int], Outcome]] = []
    if "http" in wanted:
        runs += [partial(fuzz_http, each) for each in COMMAND]
    if "stdio" in wanted:
        runs += [partial(fuzz_stdio, each) for each in ("handshake", "modern")]
    if "client" in wanted:
        runs += [partial(fuzz_client, *each) for each in CLIENTS]
    if "answers" in wanted:
        runs += [partial(fuzz_answers, each) for each in ("handshake", "modern")]
    sys.stdout.write(f"seed {options.seed}, {options.seconds:g} seconds each\n")
    head = f"{'':<26} {'tried':>9} {'problems':>9} {'tracebacks':>10} {'RSS, first':>10} {'RSS, last':>10}"
    sys.stdout.write(head + "\n")
    outcomes = []
    for run in runs:
        outcomes.append(run(options.seconds, options.seed))
        sys.stdout.write(outcomes[-1].row() + "\n")
        sys.stdout.flush()
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    sys.stdout.writelines(f"{problem}\n" for problem in problems[:SHOWN])
    sys.stdout.writelines(f"{each.name}: Traceback{each.first_traceback}\n" for each in outcomes if each.tracebacks)
    sys.exit(bool(problems or any(outcome.tracebacks for outcome in outcomes)))


if __name__ == "__main__":
    main()
