from __future__ import annotations

import json
import os
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tests import forks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["calculator.py", "add", "a=1"], "3\n"),
        (["calculator.py", "add", "a=475695037565", "b=-5"], "475695037560\n"),
        (["calculator.py", "shout", "text=5", "times=2"], "5!5!\n"),
        (["calculator.py", "shout", "text=a=b"], "A=B!\n"),
        (["calculator.py", "add", "--json", '{"a": 1, "b": 40}'], "41\n"),
        (["--json", '{"text": "hi"}', "calculator.py", "shout"], "HI!\n"),
    ],
)
def test_the_text_of_the_result_goes_to_standard_output(run: Run, arguments: list[str], output: str) -> None:
    done = run("call", *arguments)
    assert (done.returncode, done.stdout) == (0, output)
    assert set(done.stderr.splitlines()) <= {"printed at import", "printed in a call"}


def test_output_json_is_the_whole_result_in_the_protocols_form(run: Run) -> None:
    done = run("call", "calculator.py", "add", "a=1", "--output", "json")
    assert json.loads(done.stdout) == {
        "content": [{"type": "text", "text": "3"}],
        "structuredContent": {"result": 3},
        "isError": False,
    }


def test_a_tool_that_failed_is_code_1_and_says_why_on_standard_error(run: Run) -> None:
    done = run("call", "calculator.py", "divide", "a=1", "b=0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == ["printed at import", "division by zero: give another b"]


def test_a_failed_result_is_data_where_json_is_asked_for(run: Run) -> None:
    done = run("call", "calculator.py", "divide", "a=1", "b=0", "--output", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "content": [{"type": "text", "text": "division by zero: give another b"}],
        "isError": True,
    }


def test_a_tool_that_raised_shows_the_users_traceback_alone(run: Run, directory: Path) -> None:
    done = run("call", "calculator.py", "crash")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[-1] == "NameError: name 'secret_variable' is not defined"
    assert done.stderr.count("secret_variable' is not defined") == done.stderr.count("Traceback") == 1
    frames = [line for line in lines if line.startswith("  File ")]
    assert len(frames) == 1
    assert f'File "{directory}/calculator.py"' in frames[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ad"], "bridge: there is no tool named 'ad'; did you mean 'add'?"),
        (["add"], "bridge: invalid arguments for 'add': a: "),
        (
            ["add", "a=x"],
            "bridge call: the argument 'a' is of type integer, not 'x'; write it as a=5 (see bridge call --help)",
        ),
        (["add", "a"], "bridge call: 'a' does not have the form name=value (see bridge call --help)"),
        (["add", "a=1", "--json", "{}"], "bridge call: arguments are given either as name=value or as --json (see"),
        (["add", "--json", "[1]"], "bridge call: --json must be an object, such as {\"name\": 1}, not '[1]' (see"),
        (["add", "--json", "{"], "bridge call: --json is not valid JSON: Expecting property name"),
        (["add", "--json", '{"a": "x"}'], "bridge: invalid arguments for 'add': a: "),
        (["add", "--timeout", "0"], "bridge call: Invalid value for '--timeout': 0.0 is not in the range x>0. (see"),
        (["add", "--output", "xml"], "bridge call: Invalid value for '--output': 'xml' is not one of 'text', 'json'."),
    ],
)
def test_an_unknown_tool_and_bad_arguments_are_wrong_usage(run: Run, arguments: list[str], message: str) -> None:
    done = run("call", "calculator.py", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(message)
    assert "Traceback" not in done.stderr


def test_what_a_tool_raised_is_told_once_beside_the_result_as_data(run: Run) -> None:
    done = run("call", "calculator.py", "crash", "--output", "json", "--log-level", "critical")
    assert done.returncode == 1
    text = "name 'secret_variable' is not defined"
    assert json.loads(done.stdout) == {"content": [{"type": "text", "text": text}], "isError": True}
    assert done.stderr.splitlines()[-1] == f"NameError: {text}"
    assert done.stderr.count(text) == 1


def test_a_tool_whose_exceptions_stop_an_invocation_fails_like_any_other(run: Run, directory: Path) -> None:
    (directory / "stopping.py").write_text(
        "from bridge import tool\n@tool(propagate=True)\ndef stop() -> str:\n    raise ValueError('enough')\n"
    )
    done = run("call", "stopping.py", "stop")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "ValueError: enough"
    assert "an error in bridge" not in done.stderr


def test_an_argument_that_is_written_like_an_option_is_shown_as_one_of_the_tools(run: Run) -> None:
    for words, written in (
        (["--a", "1"], "a=1"),
        (["--a=1"], "a=1"),
        (["--first-name", "--b"], "first_name=VALUE"),
        (["a=1", "--b"], "b=VALUE"),
    ):
        done = run("call", "calculator.py", "add", *words)
        option = f"--{written.partition('=')[0].replace('_', '-')}"
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"bridge call: No such option '{option}'. Write an argument of the tool as {written} "
            "(see bridge call --help)\n"
        )


@pytest.mark.parametrize(
    ("target", "only"),
    [(["calculator.py:add"], "; the only tool is add"), (["calculator.py"], "")],
)
def test_a_tool_whose_name_was_forgotten_is_asked_for(run: Run, target: list[str], only: str) -> None:
    done = run("call", *target, "a=1", "b=2")
    assert (done.returncode, done.stdout) == (2, "")
    missing = f"bridge call: the name of a TOOL is missing before 'a=1'{only} (see bridge call --help)"
    assert done.stderr.splitlines() == ["printed at import", missing]


def test_a_tool_of_a_server_whose_name_was_forgotten_is_asked_for(run: Run) -> None:
    done = run("call", "a=1", "--", *forks.command("-m", "bridge", "serve", "calculator.py"))
    assert (done.returncode, done.stdout) == (2, "")
    missing = "bridge call: the name of a TOOL is missing before 'a=1' (see bridge call --help)"
    assert done.stderr.splitlines()[-1] == missing


def test_the_arguments_can_come_from_standard_input(run: Run) -> None:
    done = run("call", "calculator.py", "shout", "--json", "-", stdin='{"text": "größe"}')
    assert (done.returncode, done.stdout) == (0, "GRÖSSE!\n")


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_standard_input_that_is_no_object_is_wrong_usage(run: Run, text: str) -> None:
    done = run("call", "calculator.py", "shout", "--json", "-", stdin=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("bridge call: --json ")


def test_the_help_says_that_an_output_budget_cuts_nothing_here(run: Run) -> None:
    assert "max_output_chars, which is for models" in " ".join(run("call", "--help").stdout.split())


@pytest.mark.parametrize("arguments", [["a=1", "c=5"], ["--json", '{"a": 1, "c": 5}']])
def test_an_unknown_argument_is_wrong_usage_and_nothing_is_called(run: Run, arguments: list[str]) -> None:
    done = run("call", "calculator.py", "add", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    told = "bridge: invalid arguments for 'add': c: is not a parameter (the parameters are a, b), got 5"
    assert done.stderr.splitlines()[-1].startswith(told)
    assert "printed in a call" not in done.stderr


def test_the_tool_of_a_server_refuses_an_unknown_argument_itself(run: Run) -> None:
    done = run("call", "add", "a=1", "c=5", "--", *forks.command("-m", "bridge", "serve", "calculator.py"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "c: is not a parameter" in done.stderr.splitlines()[-1]


def test_what_is_no_text_is_noted_on_standard_error(run: Run, directory: Path) -> None:
    (directory / "media.py").write_text(
        dedent("""
        from bridge import Audio, File, Image, ResourceLink, tool

        @tool
        def media() -> list[object]:
            return [
                "first", Image(b"12", "image/png"), Audio(b"123", "audio/wav"), File("file:///a", "1234"),
                File("file:///b", b"12345"), ResourceLink("http://x/", "x"), "last",
            ]
        """)
    )
    done = run("call", "media.py", "media")
    assert (done.returncode, done.stdout) == (0, "first\nlast\n")
    assert done.stderr.splitlines() == [
        "[image/png, 2 bytes; --output json has it]",
        "[audio/wav, 3 bytes; --output json has it]",
        "[file file:///a, 4 characters; --output json has it]",
        "[file file:///b, 5 bytes; --output json has it]",
        "[link to http://x/]",
    ]


def test_an_output_budget_cuts_nothing_here(run: Run, directory: Path) -> None:
    (directory / "long.py").write_text(
        "from bridge import tool\n@tool(max_output_chars=10)\ndef long() -> str:\n    return 'x' * 100\n"
    )
    assert run("call", "long.py", "long").stdout == "x" * 100 + "\n"
    whole = json.loads(run("call", "long.py", "long", "--output", "json").stdout)
    assert whole["content"] == [{"type": "text", "text": "x" * 100}]


@pytest.mark.parametrize("limit", ["option", "tool"])
def test_a_tool_that_never_returns_keeps_the_command_only_until_its_time_is_up(
    run: Run, directory: Path, limit: str
) -> None:
    settings = "(timeout_seconds=0.3)" if limit == "tool" else ""
    (directory / "slow.py").write_text(
        "import threading\nfrom bridge import tool\n"
        f"@tool{settings}\ndef wait() -> str:\n    threading.Event().wait()\n"
    )
    done = run("call", "slow.py", "wait", *(["--timeout", "0.3"] if limit == "option" else []))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "'wait' did not finish within 0.3 seconds\n"


def test_a_child_process_of_a_tool_cannot_write_among_the_data(run: Run, directory: Path) -> None:
    (directory / "child.py").write_text(
        "import subprocess\nfrom bridge import tool\nsubprocess.run(['echo', 'at import'])\n"
        "@tool\ndef f() -> str:\n    subprocess.run(['echo', 'in a call'])\n    return 'data'\n"
    )
    done = run("call", "child.py", "f")
    assert (done.stdout, done.stderr) == ("data\n", "at import\nin a call\n")


def test_the_member_of_a_numeric_enum_may_be_named(run: Run, directory: Path) -> None:
    (directory / "levels.py").write_text(
        "from enum import IntEnum\nfrom bridge import tool\n"
        "class Level(IntEnum):\n    LOW = 1\n    HIGH = 2\n"
        "@tool\ndef show(lvl: Level) -> str:\n    return lvl.name\n"
    )
    assert run("call", "levels.py", "show", "lvl=HIGH").stdout == "HIGH\n"
    assert run("call", "levels.py", "show", "lvl=2").stdout == "HIGH\n"
    done = run("call", "levels.py", "show", "lvl=MEDIUM")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("bridge: invalid arguments for 'show': lvl: should be 1 or 2")


def test_arguments_are_utf_8_whatever_the_locale(run: Run, directory: Path, environment: dict[str, str]) -> None:
    (directory / "echo.py").write_text("from bridge import tool\n@tool\ndef f(a: str) -> str:\n    return a\n")
    ascii_only = environment | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for arguments in (["a=Größe: 木"], ["--json", '{"a": "Größe: 木"}']):
        command = [sys.executable, "-m", "bridge", "call", "echo.py", "f", *arguments]
        assert subprocess.check_output(command, cwd=directory, env=ascii_only).decode() == "Größe: 木\n"
    done = run("call", "echo.py", "f", os.fsdecode(b"a=\xff"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "bridge call: 'a=\\udcff' is not text in UTF-8" in done.stderr


@pytest.mark.parametrize("words", [("call", "busy.py", "add"), ("list", "busy.py"), ("call", "busy.py", "fail")])
def test_functions_of_atexit_run_although_an_executor_has_idle_threads(
    run: Run, directory: Path, words: tuple[str, ...]
) -> None:
    (directory / "busy.py").write_text(
        "import atexit, sys\nfrom concurrent.futures import ThreadPoolExecutor\nfrom bridge import ToolError, tool\n"
        "pool = ThreadPoolExecutor(1)\npool.submit(int).result()\n"
        "atexit.register(print, 'at exit', file=sys.stderr)\n"
        "@tool\ndef add() -> int:\n    return 1\n"
        "@tool\ndef fail() -> int:\n    raise ToolError('no')\n",
        encoding="utf-8",
    )
    done = run(*words)
    assert (done.returncode, "at exit\n" in done.stderr) == (int("fail" in words), True)


def test_a_file_whose_thread_never_ends_does_not_keep_the_command(run: Run, directory: Path) -> None:
    (directory / "busy.py").write_text(
        "import threading\nfrom bridge import tool\nthreading.Thread(target=threading.Event().wait).start()\n"
        "@tool\ndef add() -> int:\n    return 1\n",
        encoding="utf-8",
    )
    assert run("list", "busy.py").stdout.startswith("add")
