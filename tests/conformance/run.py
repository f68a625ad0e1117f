"""Run the official MCP conformance suite against `server.py` and `client.py`, each in all its ways.

    python tests/conformance/run.py [--side client] [--requirements 2026-07-28] [--way fast] [--scenario NAME]

It passes if exactly the scenarios of `expected_failures.toml` fail: an unexpected failure counts as much as an
unexpected success, and a warning counts as a failure. An unexpected result is run once more, alone, because a few
scenarios measure time. The suite and Node come from npm into a cache folder: ``BRIDGE_CONFORMANCE_CACHE``, by default
``~/.cache/bridge-conformance``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
SUITE = "0.2.0-alpha.12"
NODE_MAJOR = "26"
REQUIREMENTS = ("2025-11-25", "2026-07-28", "extensions")
"""Requirement sets of revisions, and `EXTENSIONS`."""
EXTENSIONS = {
    "server": ("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"),
    "client": (
        "sep-2640-client-no-prefetch",
        "sep-2640-client-verify-digest",
        "sep-2640-client-verify-size",
        "sep-2640-client-verify-frontmatter",
    ),
}
"""Scenarios of extensions that are in no requirement set of the suite, by side."""
WAYS = {"server": ("asyncio", "uvloop", "command", "redis", "gateway"), "client": ("asyncio", "trio", "gateway")}
"""Served by ``bridge serve``: ``command``. With sessions and tasks on Redis, which has to be installed: ``redis``.
Through a gateway: ``gateway``; its caller has a credential of its own."""
ALL_WAYS = tuple(dict.fromkeys((*WAYS["server"], *WAYS["client"])))
SERVE = (
    "-m",
    "bridge",
    "serve",
    "--transport",
    "http",
    "--port",
    "0",
    "--server-version",
    "1.0",
    "--log-level",
    "warning",
)
SUITE_TIMEOUT_SECONDS = 600
CLIENT_TIMEOUT_SECONDS = 120
"""The suite starts all its clients at once."""
RESULTS_NAME = re.compile(r"(server-)?(?P<scenario>.+?)-\d{4}-\d\d-\d\dT[\d-]+Z")


def main() -> int:
    options = parsed_options()
    suite = installed_suite()
    surprises: list[str] = []
    if options.side in {None, "server"}:
        for way in chosen_ways("server", options):
            with running_server(way) as server:
                surprises += run_sets(suite, Tested("server", way, ("--url", server.url)), options)
            surprises += [f"{way}: the server logged {line!r}" for line in server.errors()]
    if options.side in {None, "client"}:
        for way in chosen_ways("client", options):
            command = shlex.join((sys.executable, "-m", "tests.conformance.client", way))
            limit = str(CLIENT_TIMEOUT_SECONDS * 1000)
            tested = Tested("client", way, ("--command", command, "--timeout", limit))
            surprises += run_sets(suite, tested, options)
    say("")
    for surprise in surprises:
        say(f"SURPRISE {surprise}")
    say("conformance: " + (f"{len(surprises)} surprises" if surprises else "as expected"))
    return 1 if surprises else 0


def run_sets(suite: Suite, tested: Tested, options: argparse.Namespace) -> list[str]:
    """Run the requirement sets and report them; returns the unexpected results."""
    surprises: list[str] = []
    for requirements in options.requirements or REQUIREMENTS:
        expected = expected_failures(tested)[requirements]
        outcomes = suite.run(tested, requirements, options.scenario)
        outcomes |= suite.run_again(tested, requirements, outcomes, expected)
        report(tested.name, requirements, outcomes, expected)
        found = surprises_in(outcomes, expected, whole=options.scenario is None)
        surprises += [f"{tested.name} {requirements} {surprise}" for surprise in found]
    return surprises


def chosen_ways(side: str, options: argparse.Namespace) -> list[str]:
    return [way for way in WAYS[side] if options.way is None or way in options.way]


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=WAYS, help="which is tested; by default both")
    parser.add_argument("--requirements", action="append", choices=REQUIREMENTS, help="a set; by default all")
    parser.add_argument("--way", action="append", choices=ALL_WAYS, help="how it runs; by default all")
    parser.add_argument("--scenario", help="one scenario alone")
    return parser.parse_args()


# --- outcomes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one scenario."""

    checks: tuple[dict[str, Any], ...]

    def count(self, status: str) -> int:
        return sum(check["status"] == status for check in self.checks)

    @property
    def passed(self) -> bool:
        return bool(self.count("SUCCESS")) and not self.count("FAILURE") and not self.count("WARNING")

    @property
    def complaints(self) -> list[str]:
        return [
            f"{check['id']}: {check.get('errorMessage')}"
            for check in self.checks
            if check["status"] in {"FAILURE", "WARNING"}
        ]


def expected_failures(tested: Tested) -> dict[str, dict[str, str]]:
    """Return the scenarios that are expected to fail, with the reasons, by requirement set."""
    reasons: dict[str, dict[str, str]] = {requirements: {} for requirements in REQUIREMENTS}
    for entry in tomllib.loads((HERE / "expected_failures.toml").read_text()).get(tested.side, ()):
        if tested.way in entry.get("ways", [tested.way]):
            for requirements in REQUIREMENTS:
                reasons[requirements] |= dict.fromkeys(entry.get(requirements, ()), entry["reason"])
    return reasons


def surprises_in(outcomes: dict[str, Outcome], expected: dict[str, str], *, whole: bool) -> list[str]:
    surprises = []
    for scenario, outcome in outcomes.items():
        if outcome.passed and scenario in expected:
            surprises.append(f"{scenario} passes, and is listed as an expected failure")
        elif not outcome.passed and scenario not in expected:
            surprises.append(f"{scenario}: {'; '.join(outcome.complaints) or 'nothing was checked'}")
    if whole:
        surprises += [f"{scenario} is listed, and did not run" for scenario in expected if scenario not in outcomes]
    return surprises


def report(name: str, requirements: str, outcomes: dict[str, Outcome], expected: dict[str, str]) -> None:
    say(f"\n{requirements}, {name}")
    for scenario, outcome in outcomes.items():
        verdict = "passed" if outcome.passed else "expected" if scenario in expected else "FAILED"
        counts = ", ".join(
            f"{count} {status.lower()}"
            for status in ("SUCCESS", "FAILURE", "WARNING", "SKIPPED")
            if (count := outcome.count(status))
        )
        say(f"  {verdict:9} {scenario:48} {counts}")
    say(f"  {sum(outcome.passed for outcome in outcomes.values())} of {len(outcomes)} scenarios pass")


# --- the suite -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tested:
    """The program under test."""

    side: str
    way: str
    options: tuple[str, ...]
    """Arguments of the suite that name it."""

    @property
    def name(self) -> str:
        """Its name in the report."""
        return f"{self.side}, {self.way}"


@dataclass(frozen=True, slots=True)
class Suite:
    """The installed suite."""

    node: Path
    entry: Path

    def run(self, tested: Tested, requirements: str, scenario: str | None = None) -> dict[str, Outcome]:
        """Run all scenarios of a requirement set in one go, or one alone."""
        in_turn: Sequence[str] | None = EXTENSIONS[tested.side] if requirements == "extensions" else None
        if in_turn is None and tested.name == "client, gateway":  # each client starts a gateway of its own
            required = self.listed("--requirements", requirements)
            in_turn = [each for each in self.listed("--client") if each in required]
        if in_turn is not None and scenario is None:
            found = [self.run(tested, requirements, each) for each in in_turn]
            return {name: outcome for outcomes in found for name, outcome in outcomes.items()}
        which = ["--requirements", requirements]
        if scenario:
            revision = REQUIREMENTS[1] if requirements == "extensions" else requirements
            which = ["--scenario", scenario, "--spec-version", revision, "--force"]
        with tempfile.TemporaryDirectory(prefix="conformance-") as results:
            done = subprocess.run(
                [self.node, self.entry, tested.side, *tested.options, "--output-dir", results, *which],
                capture_output=True,
                text=True,
                timeout=SUITE_TIMEOUT_SECONDS,
                check=False,
                cwd=HERE.parents[1],
            )
            outcomes = dict(outcomes_in(Path(results)))
        if not outcomes:
            raise SystemExit(f"the suite did not run: {done.stderr or done.stdout}")
        return outcomes

    def listed(self, *options: str) -> list[str]:
        """Return names of scenarios."""
        command = [str(self.node), str(self.entry), "list", *options]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SUITE_TIMEOUT_SECONDS)
        return re.findall(r"^ +- (\S+)", listed.stdout, re.MULTILINE)

    def run_again(
        self, tested: Tested, requirements: str, outcomes: dict[str, Outcome], expected: dict[str, str]
    ) -> dict[str, Outcome]:
        """Run the unexpected failures once more, each alone."""
        again: dict[str, Outcome] = {}
        for scenario, outcome in outcomes.items():
            if not outcome.passed and scenario not in expected:
                again |= self.run(tested, requirements, scenario)
        return again


def outcomes_in(results: Path, group: str = "") -> Iterator[tuple[str, Outcome]]:
    """Return the results in a folder; some scenarios are grouped in folders."""
    for folder in sorted(results.iterdir(), key=lambda folder: folder.stat().st_mtime_ns):
        checks = folder / "checks.json"
        if (matched := RESULTS_NAME.fullmatch(folder.name)) is None:
            assert not checks.exists(), f"the suite names its results in a new way: {folder.name}"
            yield from outcomes_in(folder, f"{group}{folder.name}/")
        else:
            outcome = Outcome(tuple(json.loads(checks.read_text())) if checks.exists() else ())
            yield group + matched["scenario"], outcome


def installed_suite() -> Suite:
    """Return the suite in the cache, installed from npm if it is missing."""
    cache = Path(os.environ.get("BRIDGE_CONFORMANCE_CACHE", "~/.cache/bridge-conformance")).expanduser()
    node = cache / "node_modules" / node_package()
    installed = cache / SUITE
    if not installed.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("the conformance suite is installed with npm, which is not here: install Node.js first")
        cache.mkdir(parents=True, exist_ok=True)
        packages = [f"{node_package()}@{NODE_MAJOR}", f"@modelcontextprotocol/conformance@{SUITE}"]
        say(f"installing {' and '.join(packages)} into {cache}")
        subprocess.run(
            [npm, "install", "--prefix", cache, "--no-audit", "--no-fund", "--silent", *packages], check=True
        )
        installed.touch()
    entry = cache / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return Suite(node / "bin" / "node", entry)


def node_package() -> str:
    """Return the npm package with Node for this machine."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine())
    return f"node-{platform.system().lower()}-{machine}"


# --- the server ------------------------------------------------------------------------------------------------------


class Server:
    """A running server, whose standard error is kept."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        first = process.stderr.readline()
        if " at " not in first:
            raise SystemExit(f"the server did not start:\n{first}{process.stderr.read()}")
        self.url = first.split(" at ")[1].strip()
        self._lines: list[str] = []
        self._reader = Thread(target=self._lines.extend, args=(process.stderr,))
        self._reader.start()

    def errors(self) -> list[str]:
        """Return the errors in its log, once the server has ended."""
        self._reader.join()
        return [line.rstrip() for line in self._lines if re.search(r"\b(ERROR|CRITICAL|Traceback)\b", line)]


@contextmanager
def running_server(way: str) -> Iterator[Server]:
    with ExitStack() as stack:
        if way == "command":
            yield stack.enter_context(started([*SERVE, f"{HERE / 'features.py'}:FEATURES"]))
            return
        is_gateway = way == "gateway"
        command = [str(HERE / "server.py"), "--port", "0", "--way", "uvloop" if is_gateway else way]
        if way == "redis":
            command += ["--redis-url", stack.enter_context(running_redis())]
        server = stack.enter_context(started(command))
        yield stack.enter_context(started([*SERVE, server.url])) if is_gateway else server


@contextmanager
def started(arguments: list[str]) -> Iterator[Server]:
    """Run a server with Python until the end of the block."""
    with subprocess.Popen([sys.executable, *arguments], stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


@contextmanager
def running_redis() -> Iterator[str]:
    """Start a Redis; yields its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("the ways of Redis need redis-server, which is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            if not any("Ready to accept connections" in line for line in process.stdout):
                raise SystemExit("redis-server did not start")
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
