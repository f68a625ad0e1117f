"""The interpreters that run the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pythons import PYTHONS, ROOT, Interpreter, found_pythons, version_of

DEADLINE_SECONDS = 60
OWN = version_of(Path(sys.executable)) or "unknown"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="interpreters are linked, and programs are scripts")


def linked(folder: Path) -> Path:
    """Make a folder with this interpreter, under the name that it has on PATH."""
    folder.mkdir(parents=True)
    program = folder / f"python{OWN}"
    program.symlink_to(sys.executable)
    return program


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.pythons", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def test_an_interpreter_is_found_on_path_and_then_as_the_newest_of_pyenv(tmp_path: Path) -> None:
    on_path = linked(tmp_path / "bin")
    linked(tmp_path / "versions" / f"{OWN}.9" / "bin")
    newest = linked(tmp_path / "versions" / f"{OWN}.10" / "bin")
    environment = {"PATH": str(on_path.parent), "PYENV_ROOT": str(tmp_path)}
    assert found_pythons(environment) == [Interpreter(version=OWN, program=on_path)]
    on_path.unlink()
    assert found_pythons(environment) == [Interpreter(version=OWN, program=newest)]


def test_a_program_that_is_not_the_interpreter_of_its_name_is_not_found(tmp_path: Path) -> None:
    for version in PYTHONS:
        program = tmp_path / f"python{version}"
        if version == OWN:
            program.write_text("#!/bin/sh\nexit 127\n")  # as those of pyenv do, unless it has chosen the version
            program.chmod(0o700)
        else:
            program.symlink_to(sys.executable)
    assert found_pythons({"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}) == []


def test_what_is_not_found_is_named_and_no_failure(tmp_path: Path) -> None:
    done = run("--quick", PATH=str(tmp_path), PYENV_ROOT=str(tmp_path))
    missing = ", ".join(f"Python {version}" for version in PYTHONS)
    assert (done.returncode, done.stdout) == (0, f"passed: none\nfailed: none\nnot found: {missing}\n")


@pytest.mark.parametrize(("tests", "code", "told"), [("--version", 0, "passed"), ("tests/none.py", 1, "failed")])
def test_what_has_failed_is_named_and_a_failure(tmp_path: Path, tests: str, code: int, told: str) -> None:
    program = linked(tmp_path / "bin")
    done = run(tests, PATH=str(program.parent), PYENV_ROOT=str(tmp_path))
    assert done.returncode == code
    assert done.stdout.startswith(f"Python {OWN}: {program}\n")
    assert f"{told}: Python {OWN}\n" in done.stdout
