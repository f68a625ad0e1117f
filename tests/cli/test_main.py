from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.cli import main
from bridge.cli.reporting import exit_code_of
from tests.processes import ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Start


def test_the_version_goes_to_standard_output(run: Run) -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"bridge {version('mcp-toolbridge')}\n", "")


def test_the_installed_command_is_the_same_program(environment: dict[str, str], directory: Path) -> None:
    program = Path(sys.executable).with_name("bridge")
    done = subprocess.run(
        [program, "--version"], env=environment, cwd=directory, capture_output=True, text=True, timeout=40, check=True
    )
    assert done.stdout == f"bridge {version('mcp-toolbridge')}\n"


def test_help_names_every_command_and_every_kind_of_target(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in ("serve", "list", "call", "install", "file.py[:object]", "package.module[:object]", "-- command"):
        assert word in done.stdout


@pytest.mark.parametrize("command", ["serve", "list", "call", "install"])
def test_every_command_explains_itself(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: bridge {command}")


def test_without_a_command_the_help_is_shown_as_wrong_usage(run: Run) -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Commands:" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["banana"], "bridge: No such command 'banana'. (see bridge --help)"),
        (["lst"], "bridge: No such command 'lst'. Did you mean 'list'? (see bridge --help)"),
        (["list"], "bridge list: a TARGET is missing, such as tools.py (see bridge list --help)"),
        (["list", "--"], "bridge list: a command is missing after -- (see bridge list --help)"),
        (
            ["list", "calculator.py", "--", "x"],
            "bridge list: there are two targets: 'calculator.py', and the command after -- (see bridge list --help)",
        ),
        (
            ["call", "calculator.py"],
            "bridge call: the name of a TOOL is missing; bridge list calculator.py shows them (see bridge call --help)",
        ),
        (["serve"], "bridge serve: a TARGET is missing, such as tools.py (see bridge serve --help)"),
        (["list", "--nothing"], "bridge list: No such option '--nothing'. (see bridge list --help)"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(run: Run, arguments: list[str], line: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line + "\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "calculator.py", "--port", "abc"], "'abc' is not a valid integer."),
        (["serve", "calculator.py", "--port", "65536"], "65536 is not in the range 0<=x<=65535."),
        (["list", "calculator.py", "--timeout", "soon"], "'soon' is not a valid number."),
    ],
)
def test_an_option_that_takes_a_number_says_so(run: Run, arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f": {message} (see bridge {arguments[0]} --help)" in done.stderr


def test_what_a_server_says_as_it_fails_is_shown_and_not_obeyed_by_the_terminal(run: Run) -> None:
    last_words = "import sys; sys.exit('\\x1b]0;a title of mine\\x07\\x1b[2Jgone')"
    done = run("list", "--log-level", "debug", "--", sys.executable, "-c", last_words)
    assert done.returncode == 1
    assert done.stderr.count(r"\x1b]0;a title of mine\x07\x1b[2Jgone") >= 2  # in the log, and of the command
    assert all(char.isprintable() or char == "\n" for char in done.stderr)


def test_the_level_of_the_log_is_read_in_capitals_too(run: Run) -> None:
    done = run("list", "calculator.py:add", env={"BRIDGE_LOG_LEVEL": "ERROR"})
    assert (done.returncode, done.stderr) == (0, "printed at import\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("arguments", [("list", "calculator.py"), ("--version",)])
def test_a_disk_that_is_full_is_one_line_and_code_1(
    environment: dict[str, str], directory: Path, arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bridge", *arguments],
            env=environment,
            cwd=directory,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=40,
            check=False,
        )
    said = done.stderr.removeprefix("printed at import\n")
    assert (done.returncode, said) == (1, f"bridge: standard output: {os.strerror(errno.ENOSPC)}\n")


def test_a_full_disk_of_a_file_is_not_that_of_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    def full(name: str | None) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    assert [exit_code_of(partial(full, name)) for name in (None, "notes.txt")] == [1, 1]
    reason = os.strerror(errno.ENOSPC)
    assert capsys.readouterr() == ("", f"bridge: {reason}\nbridge: notes.txt: {reason}\n")


def test_a_file_that_cannot_be_used_is_named(run: Run, directory: Path) -> None:
    file = directory / "calculator.py"
    done = run("logout", "http://127.0.0.1:9/mcp", env={"BRIDGE_STATE_DIR": str(file), "XDG_STATE_HOME": str(file)})
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"bridge: {re.escape(str(file))}/\S+: Not a directory\n", done.stderr)


def test_a_mistake_of_ours_is_one_line_unless_debugging(run: Run, directory: Path) -> None:
    (directory / "odd.py").write_text(
        "from bridge import tool\nclass Odd:\n    @tool\n    def f(self) -> int: ...\n"
        "    def __len__(self): return 1 / 0\nodd = Odd()\n"
    )
    done = run("list", "odd.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "Traceback" in run("list", "odd.py", "--log-level", "debug").stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_an_interrupt_is_quiet_even_while_a_function_runs(start: Start, directory: Path) -> None:
    (directory / "slow.py").write_text(
        "import threading\nfrom bridge import tool\n"
        "@tool\ndef wait() -> str:\n    print('waiting')\n    threading.Event().wait()\n    return ''\n"
    )
    with start("call", "slow.py", "wait") as process:
        process.line_with("waiting")
        assert process.end(signal.SIGINT) == 130
        assert [line for line in process.seen if line] == ["waiting"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("is_installed", [True, False])
def test_an_interrupt_while_the_command_line_is_imported_is_quiet_too(
    environment: dict[str, str], directory: Path, *, is_installed: bool
) -> None:
    early = directory / "early"
    early.mkdir()
    (early / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    module, _, function = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"][
        "bridge"
    ].partition(":")
    installed = ["-c", f"import sys\nfrom {module} import {function}\nsys.exit({function}())"]
    done = subprocess.run(
        [sys.executable, *(installed if is_installed else ["-m", "bridge"]), "--version"],
        env=environment | {"PYTHONPATH": os.pathsep.join([str(early), environment.get("PYTHONPATH", "")])},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are POSIX's")
def test_a_reader_that_goes_away_causes_no_noise(environment: dict[str, str], directory: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "list", "calculator.py", "--json"],
        env=environment,
        cwd=directory,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        timeout=40,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "printed at import\n")


@pytest.mark.parametrize(("closed", "printed"), [("<&-", "1\n"), (">&-", ""), ("2>&-", "1\n"), ("<&- >&- 2>&-", "")])
def test_a_closed_standard_stream_is_none_of_our_trouble(directory: Path, closed: str, printed: str) -> None:
    (directory / "one.py").write_text("from bridge import tool\n\n@tool\ndef one() -> int:\n    return 1\n")
    command = f"{shlex.quote(sys.executable)} -m bridge call one.py one {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "tools.py", "--pins", "a\0b"],
        ["bundle", "tools.py", "--output", "a\0b"],
        ["publish", "--output", "a\0b"],
        ["install", "tools.py", "--config", "a\0b"],
    ],
)
def test_a_nul_in_an_argument_is_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "an argument contains the character NUL" in capsys.readouterr().err
