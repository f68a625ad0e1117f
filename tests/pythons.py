"""Runs the tests on each Python that this computer has, and names those that it does not have.

Interpreters are found on PATH, as ``python3.13``, and under pyenv. Each gets a virtual environment in ``.pythons``,
where the package is installed with all extras. With ``--quick``, only the newest of those newer than this one runs
tests: of annotations, asyncio, JSON and SQLite, which differ between versions.

    python -m tests.pythons [--quick] [arguments of pytest]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t", "3.15")
"""Versions in order; ``t`` is the build with free threading."""
QUICK = "--quick"
DIFFERENT = (
    *("tests/tools", "tests/prompts", "tests/resources", "tests/service/memory", "tests/servers/test_bookings.py"),
    *("tests/server/test_stdio_faults.py", "tests/server/tasks/test_sqlite_store.py"),
)
_ASKS = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
_ANSWER = re.compile(r"(\d+) (\d+) ([01])")
_DEADLINE_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python of this computer."""

    version: str
    """One of `PYTHONS`."""
    program: Path


class UnusableError(Exception):
    """An interpreter has no virtual environment, or the dependencies cannot be installed on it."""


def version_of(program: Path) -> str | None:
    """Return the version of an interpreter as in `PYTHONS`; None if it does not run, as a program of pyenv may."""
    try:
        done = subprocess.run(
            [program, "-c", _ASKS], capture_output=True, text=True, timeout=_DEADLINE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _ANSWER.fullmatch(done.stdout.strip())
    return None if found is None else f"{found[1]}.{found[2]}{'t' if found[3] == '1' else ''}"


def found_pythons(environment: Mapping[str, str]) -> list[Interpreter]:
    """Return the first interpreter of each version in `PYTHONS`: of PATH, then of pyenv, whose newest is taken."""
    return [
        Interpreter(version=version, program=program)
        for version in PYTHONS
        if (program := next((each for each in _programs(version, environment) if version_of(each) == version), None))
    ]


def _programs(version: str, environment: Mapping[str, str]) -> Iterator[Path]:
    name = f"python{version}"
    if (found := shutil.which(name, path=environment.get("PATH", ""))) is not None:
        yield Path(found)
    pyenv = Path(environment.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/*/bin/{name}"), key=_numbers, reverse=True)


def _numbers(program: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", program.parts[-3])]


def ready_python(interpreter: Interpreter) -> Path:
    """Return the Python of a virtual environment with the package and what its tests need.

    Raises:
        UnusableError: It cannot be made.
    """
    if interpreter.version == version_of(Path(sys.executable)):
        return Path(sys.executable)
    folder = ROOT / ".pythons" / interpreter.version
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    installed, project = folder / "installed", (ROOT / "pyproject.toml").read_bytes()
    if not installed.exists() or installed.read_bytes() != project:
        _must_run(interpreter.program, "-m", "venv", "--clear", str(folder))
        _must_run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip")
        # Compiled is what tests import.
        options = ("--quiet", "--no-compile")
        _must_run(python, "-m", "pip", "install", *options, "--editable", ".[all]", "--group", "test")
        installed.write_bytes(project)
    return python


def _must_run(python: Path, *arguments: str) -> None:
    done = subprocess.run([python, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it wrote nothing"]
        raise UnusableError(f"{' '.join(arguments[:3])} failed: {said[-1]}")


def main(arguments: Sequence[str]) -> int:
    """Run the tests; return 1 if some have failed, otherwise 0."""
    found = found_pythons(os.environ)
    missing = [version for version in PYTHONS if version not in {each.version for each in found}]
    tests = [argument for argument in arguments if argument != QUICK]
    is_quick = len(tests) < len(arguments)
    if is_quick:
        own = PYTHONS.index(version_of(Path(sys.executable)) or PYTHONS[0])
        found = [each for each in reversed(found) if PYTHONS.index(each.version) > own]
        tests += (*DIFFERENT, "-n", "0")  # other tests run meanwhile, and each process would collect these
    ended: dict[str, list[str]] = {"passed": [], "failed": [], "not found": missing}
    for each in found:
        try:
            python = ready_python(each)
        except UnusableError as error:
            _say(f"Python {each.version} cannot run the tests: {error}")
            continue
        _say(f"Python {each.version}: {each.program}")
        code = subprocess.run([python, "-m", "pytest", *tests], cwd=ROOT, check=False).returncode
        ended["failed" if code else "passed"].append(each.version)
        if is_quick:
            break
    for how, versions in ended.items():
        _say(f"{how}: {', '.join(f'Python {version}' for version in versions) or 'none'}")
    return int(bool(ended["failed"]))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
