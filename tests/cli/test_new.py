from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

FILES = ["tools.py", "test_tools.py", "mcp.json", "pyproject.toml"]


@pytest.fixture
def project(run: Run, directory: Path) -> Path:
    done = run("new", "words")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [str(Path("words") / name) for name in FILES]
    assert done.stderr == (
        "test it: cd words && python -m pytest\n"
        "then try it in the browser: bridge inspect tools.py\n"
        "or in an assistant: bridge install tools.py --client claude-desktop\n"
    )
    return directory / "words"


def test_a_new_project_passes_its_test(project: Path, environment: dict[str, str]) -> None:
    assert sorted(path.name for path in project.iterdir()) == sorted(FILES)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_a_new_project_can_be_served_and_has_no_findings(project: Path, run: Run) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    called = run("call", "words/mcp.json", "count_words", "text=a b a", "unique=true", env={"PATH": path})
    assert (called.returncode, called.stdout) == (0, "2\n")
    for target in ("words/tools.py", "words/mcp.json", "words", "words/"):
        done = run("doctor", target, env={"PATH": path})
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert [tool["name"] for tool in json.loads(run("list", "words", "--json").stdout)["tools"]] == ["count_words"]


def test_the_files_have_the_projects_name(project: Path) -> None:
    assert list(json.loads((project / "mcp.json").read_text())["mcpServers"]) == ["words"]
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"] == "words"
    assert (project / "tools.py").read_text().startswith('"""Tools of words."""\n')


@pytest.mark.parametrize("name", ["", "9words", "wörter", "-", "a b", "words-"])
def test_a_name_that_no_project_can_have_is_refused(run: Run, directory: Path, name: str) -> None:
    before = sorted(directory.rglob("*"))
    done = run("new", "--", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{name!r} cannot name a project" in done.stderr
    assert sorted(directory.rglob("*")) == before


def test_nothing_that_exists_is_overwritten(run: Run, directory: Path) -> None:
    (directory / "words").mkdir()
    (directory / "words" / "notes.txt").touch()
    done = run("new", "words")
    assert (done.returncode, done.stdout) == (1, "")
    assert "'words' exists already, and is not an empty directory" in done.stderr
    assert run("new", "calculator.py").returncode == 2
    assert [path.name for path in (directory / "words").iterdir()] == ["notes.txt"]


def test_an_empty_directory_is_filled(run: Run, directory: Path) -> None:
    (directory / "a" / "words").mkdir(parents=True)
    assert run("new", "a/words").returncode == 0
    assert sorted(path.name for path in (directory / "a" / "words").iterdir()) == sorted(FILES)


def test_a_path_can_be_copied_to_a_shell(run: Run) -> None:
    assert run("new", "my tools/words").stderr.startswith("test it: cd 'my tools/words' && python -m pytest\n")


def test_a_path_creates_only_its_directory(run: Run, directory: Path) -> None:
    assert run("new", "a/../words").returncode == 0
    assert (directory / "words" / "tools.py").is_file()
    assert not (directory / "a").exists()


def test_a_link_to_nothing_is_not_followed(run: Run, directory: Path) -> None:
    (directory / "words").symlink_to("missing")
    done = run("new", "words")
    assert (done.returncode, done.stdout) == (1, "")
    assert "'words' exists already, and is not an empty directory" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "place"), [(("new", "words"), "words/"), (("bundle", "calculator.py"), "calculator.mcpb")]
)
def test_a_file_that_cannot_be_written_to_its_end_is_named(
    arguments: tuple[str, str], place: str, environment: dict[str, str], directory: Path
) -> None:
    limited = 'ulimit -f 0 && exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", limited, "sh", sys.executable, "-m", "bridge", *arguments],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    said = done.stderr.removeprefix("printed at import\n")
    assert (done.returncode, said.startswith("bridge: cannot write ")) == (1, True)
    assert (place in said, os.strerror(errno.EFBIG) in said) == (True, True)
