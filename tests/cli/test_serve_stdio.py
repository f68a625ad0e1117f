from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.pseudo_terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

OPENING = [
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def exchange(run: Run, arguments: list[str], *requests: dict[str, Any], env: dict[str, str] | None = None) -> Any:
    """Open a session, send requests, and close it; returns the results by id, and the finished process."""
    lines = [*OPENING, *({"jsonrpc": "2.0", "id": number} | each for number, each in enumerate(requests, 1))]
    done = run("serve", *arguments, stdin="".join(json.dumps(line) + "\n" for line in lines), env=env)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["id"]: answer.get("result", answer.get("error")) for answer in answers}, done


def listed(run: Run, *arguments: str, env: dict[str, str] | None = None) -> tuple[list[str], Any, Any]:
    results, done = exchange(run, list(arguments), {"method": "tools/list"}, env=env)
    return [tool["name"] for tool in results[1]["tools"]], results, done


def test_tools_are_served_and_what_they_print_goes_to_standard_error(run: Run) -> None:
    call = {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}
    results, done = exchange(run, ["calculator.py"], {"method": "tools/list"}, call)
    assert done.returncode == 0
    assert results[0]["serverInfo"]["name"] == "calculator"
    assert [tool["name"] for tool in results[1]["tools"]] == ["add", "shout", "divide", "crash"]
    assert results[2]["content"] == [{"type": "text", "text": "3"}]
    assert done.stderr.splitlines()[0] == "printed at import"
    assert "printed in a call" in done.stderr.splitlines()


def test_the_entry_for_a_hosts_configuration_works_from_anywhere(
    run: Run, directory: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = run("serve", "calculator.py:add", "--name", "adder", "--page-size", "5")
    lines = done.stderr.splitlines()
    assert lines[1] == "serving adder over stdio; for a client's configuration:"
    entry = json.loads(lines[2])["mcpServers"]["adder"]
    assert entry == {
        "command": sys.executable,
        "args": ["-m", "bridge", "serve", f"{directory}/calculator.py:add", "--name=adder", "--page-size=5"],
    }
    text = "".join(json.dumps(line) + "\n" for line in OPENING)
    started = subprocess.run(
        [entry["command"], *entry["args"]],
        cwd=tmp_path,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert json.loads(started.stdout)["result"]["serverInfo"]["name"] == "adder"


def test_several_targets_are_one_server(run: Run, directory: Path) -> None:
    (directory / "words.py").write_text("from bridge import tool\n@tool\ndef spell(word: str) -> str: ...\n")
    names, results, done = listed(run, "words.py", "calculator.py:add", "calculator.py:shout")
    assert names == ["spell", "add", "shout"]
    assert results[0]["serverInfo"]["name"] == "words-calculator"
    assert done.stderr.count("printed at import") == 1


def test_two_tools_of_one_name_are_refused_with_both_sources(run: Run) -> None:
    done = run("serve", "calculator.py", "calculator.py:add")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("bridge: two tools are named 'add': one from ")


@pytest.mark.parametrize("in_environment", [False, True])
def test_name_page_size_and_the_longest_message_can_be_set(run: Run, *, in_environment: bool) -> None:
    options = {"NAME": "sums", "PAGE_SIZE": "2", "MAX_REQUEST_BYTES": "300", "TRANSPORT": "stdio", "LOG_LEVEL": "error"}
    long = {"method": "tools/list", "params": {"_meta": {"padding": "x" * 300}}}
    arguments = [f"--{key.lower().replace('_', '-')}={value}" for key, value in options.items()]
    env = {f"BRIDGE_{key}": value for key, value in options.items()}
    results, _ = exchange(
        run,
        ["calculator.py", *([] if in_environment else arguments)],
        {"method": "tools/list"},
        long,
        env=env if in_environment else None,
    )
    assert results[0]["serverInfo"]["name"] == "sums"
    assert [tool["name"] for tool in results[1]["tools"]] == ["add", "shout"]
    assert results[2]["code"] == -32600


def test_clients_are_told_the_instructions_and_the_version_of_the_module(run: Run, directory: Path) -> None:
    program = "from bridge import tool\n__version__ = {}\n@tool\ndef spell(word: str) -> str: ...\n"
    for name, version in (("words", "'1.2'"), ("odd", "(1, 2)")):
        (directory / f"{name}.py").write_text(program.format(version))
    results, done = exchange(run, ["words.py", "--instructions", "Spells."])
    assert results[0]["serverInfo"] == {"name": "words", "version": "1.2"}
    assert results[0]["instructions"] == "Spells."
    assert "--instructions=Spells." in done.stderr
    for targets in (["odd.py"], ["words.py:spell", "calculator.py"]):
        results, _ = exchange(run, targets, env={"BRIDGE_INSTRUCTIONS": "Here."})
        assert (results[0]["serverInfo"]["version"], results[0]["instructions"]) == ("", "Here.")


def test_the_version_that_clients_are_told_can_be_set(run: Run, directory: Path) -> None:
    (directory / "words.py").write_text("__version__ = '1.2'\ndef spell(word: str) -> str: ...\n")
    results, _ = exchange(run, ["words.py:spell", "calculator.py", "--server-version", "7"])
    assert results[0]["serverInfo"]["version"] == "7"
    results, _ = exchange(run, ["words.py:spell"], env={"BRIDGE_SERVER_VERSION": "8"})
    assert results[0]["serverInfo"]["version"] == "8"


def test_an_option_that_stdio_has_no_use_for_is_noted_where_it_was_typed(run: Run) -> None:
    done = run("serve", "calculator.py", "--port", "9000", "--no-auth", env={"BRIDGE_HOST": "0.0.0.0"})
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == (
        "bridge serve: --port, --no-auth has no effect over stdio; add --transport http"
    )


def test_so_are_keys_issuers_operations_workers_and_limits_of_http(run: Run) -> None:
    typed = {
        "--forward-headers": "x-one", "--api-key": "k" * 32, "--api-keys": "keys", "--oauth-issuer": "https://a.example",
        "--resource-url": "https://b.example", "--required-scope": "read", "--tool-scope": "add=write", "--rate": "1/1",
        "--max-streams": "1", "--max-sessions": "1", "--session-idle": "1",
        "--max-header-bytes": "2048", "--max-connections": "1",
        "--admin-port": "0", "--admin-host": "127.0.0.1", "--drain-delay": "1", "--drain-timeout": "1",
        "--redis-url": "redis://nowhere", "--workers": "2", "--state-keys": "s" * 32,
    }  # fmt: skip
    served = ["--concurrency", "2", "--tool-rate", "add=1/1", "--page-size", "2"]
    done = run("serve", "calculator.py", *served, *(each for pair in typed.items() for each in pair))
    assert done.returncode == 0
    first, second = done.stderr.splitlines()[:2]
    assert first == f"bridge serve: {', '.join(typed)} has no effect over stdio; add --transport http"
    assert "has no effect" not in second


@pytest.mark.parametrize(
    ("typed", "others", "line"),
    [
        (["--log-arguments"], ["--log-format", "json"], "--log-arguments; add --audit-log or --log-calls always"),
        (["--audit-log-kept-files", "1"], ["--audit-log", "calls"], "--audit-log-kept-files; add --audit-log"),
    ],
)
def test_an_option_that_does_nothing_without_another_is_noted(
    run: Run, typed: list[str], others: list[str], line: str
) -> None:
    done = run("serve", "calculator.py", *typed)
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == f"bridge serve: {line.replace('; add', ' has no effect; add')}"
    assert "has no effect" not in run("serve", "calculator.py", *typed, *others).stderr


def test_a_file_that_fails_to_import_is_told_as_everywhere(run: Run, directory: Path) -> None:
    (directory / "broken.py").write_text("print('before')\n1 / 0\n")
    done = run("serve", "broken.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[:2] == [
        "before",
        (
            f"bridge: importing {directory}/broken.py failed: ZeroDivisionError: division by zero "
            f"({directory}/broken.py, line 2)"
        ),
    ]


def test_at_a_terminal_the_server_says_that_it_waits_and_how_to_try_it(directory: Path) -> None:
    terminal = Terminal("serve", "calculator.py", cwd=directory)
    terminal.until("waiting for an MCP client on standard input; Ctrl-C ends the server")
    shown = f"{directory / 'calculator.py'}"
    terminal.until(f"  bridge inspect {shown}\n")
    terminal.until(f"  bridge install {shown} --client claude-desktop\n")
    terminal.interrupt()
    assert terminal.ended() == 130


def test_without_a_terminal_nothing_is_said_about_waiting(run: Run) -> None:
    assert "waiting for an MCP client" not in run("serve", "calculator.py").stderr
