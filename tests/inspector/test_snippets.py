"""Calls of the page as commands and as tests, which do what the call did."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client import HttpTransport
from bridge.inspector.snippets import HttpAddress, Origin, as_call_line, as_curl, as_test
from tests import forks
from tests.inspector.conftest import TRAVEL, inspecting, travel
from tests.processes import ROOT

if TYPE_CHECKING:
    from tests.client.conftest import RemoteServer
    from tests.inspector.conftest import OpenPage

PYTHON = Origin(argument="tools.py", is_python=True)
COMMAND = Origin(command=("python", "my server.py"))
URL = Origin(argument="https://x.example/mcp", headers=("Authorization",))
CONFIG = Origin(argument="mcp.json#files", prefix="files_")


@pytest.mark.parametrize(
    ("origin", "arguments", "line"),
    [
        (PYTHON, {"a": 1, "b": "two words"}, "bridge call tools.py add a=1 'b=two words'"),
        (PYTHON, {"a": "5", "b": True}, """bridge call tools.py add --json '{"a": "5", "b": true}'"""),
        (PYTHON, {"a": True, "b": 1.5}, "bridge call tools.py add a=true b=1.5"),
        (COMMAND, {}, "bridge call add -- python 'my server.py'"),
        (CONFIG, {"a": [1]}, """bridge call 'mcp.json#files' files_add --json '{"a": [1]}'"""),
        (URL, {}, "bridge call https://x.example/mcp add --header 'Authorization: ${AUTHORIZATION}'"),
        (PYTHON, {"a": "$(rm -rf ~)'"}, """bridge call tools.py add 'a=$(rm -rf ~)'"'"''"""),
        (PYTHON, {"--header": "X: ${KEY}"}, """bridge call tools.py add --json '{"--header": "X: ${KEY}"}'"""),
        (PYTHON, {"-": 1}, """bridge call tools.py add --json '{"-": 1}'"""),
        (PYTHON, {"": 1}, """bridge call tools.py add --json '{"": 1}'"""),
        (PYTHON, {"a": "b\n"}, """bridge call tools.py add --json '{"a": "b\\n"}'"""),
        (PYTHON, {"a": "\x1b[201~\x03"}, """bridge call tools.py add --json '{"a": "\\u001b[201~\\u0003"}'"""),
        (PYTHON, {"a\x7f": "\u202e"}, """bridge call tools.py add --json '{"a\\u007f": "\\u202e"}'"""),
    ],
)
def test_a_call_is_a_line_for_the_shell(origin: Origin, arguments: Any, line: str) -> None:
    assert as_call_line(origin, "add", arguments) == line


@pytest.mark.parametrize("tool", ["--header=X: ${KEY}", "-h", "=ls", "", "a\nb", "a\x1b[201~"])
def test_a_name_that_a_command_line_cannot_have_makes_no_line(tool: str) -> None:
    assert as_call_line(PYTHON, tool, {"a": 1}).startswith("# bridge call cannot name this tool")
    assert as_call_line(CONFIG, "-h", {}) == "bridge call 'mcp.json#files' files_-h"


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())), st.text())
def test_no_word_of_a_server_becomes_an_option_or_reaches_a_terminal_unseen(arguments: Any, tool: str) -> None:
    line = as_call_line(PYTHON, tool, arguments)
    assert line.isprintable()
    words = shlex.split(line)[3:]
    if line.startswith("# "):
        return
    assert words[0] == tool
    if "--json" in words:
        assert words[1] == "--json"
        assert json.loads(words[2]) == arguments
    else:
        assert not any(word.startswith("-") for word in words)
        assert [word.partition("=")[0] for word in words[1:]] == list(arguments)


@pytest.mark.parametrize("origin", [PYTHON, COMMAND, URL, CONFIG])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"result": {"content": [], "structuredContent": {"a": None}}}, "result.structured_content == {'a': None}"),
        (
            {"result": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "'"}]}},
            '''result.text == "a\\n'"''',
        ),
        ({"result": {"content": [], "isError": True}}, "result.is_error"),
        ({"error": {"message": "lost"}}, "result.is_error"),
        (None, "result.is_error"),
    ],
)
def test_a_call_is_a_test_with_its_outcome(origin: Origin, answer: Any, expected: str) -> None:
    program = as_test(origin, "the tool-1", {"a": "it's"}, answer)
    compile(program, "test_it.py", "exec")
    assert "def test_the_tool_1() -> None:" in program
    assert f"    assert {expected}\n" in program


@pytest.mark.anyio
async def test_the_line_and_the_test_of_a_call_do_what_it_did(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    number = await page.call("distance", {"start": "Vienna"})
    await page.ended(number)
    snippets = await page.get(f"/requests/{number}/snippets")
    program, *words = shlex.split(snippets["line"])
    assert (program, words) == ("bridge", ["call", TRAVEL, "distance", "start=Vienna"])

    def run() -> None:
        done = forks.run(["-m", "bridge", *words], cwd=ROOT, env=os.environ, timeout=30)
        assert done.stdout == "1000\n"
        names: dict[str, Any] = {}
        exec(compile(snippets["test"], "test_it.py", "exec"), names)
        names["test_distance"]()

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    await anyio.to_thread.run_sync(run)


@pytest.mark.anyio
async def test_only_calls_of_tools_have_snippets(page: OpenPage) -> None:
    number = await page.start("resources/read", uri="travel://cities")
    await page.ended(number)
    assert (await page.client.get(f"/requests/{number}/snippets")).status_code == 404


HOSTILE = (
    *("$(touch pwned)", "`touch pwned`", "a'; touch pwned; '", "--config=/x", "@/etc/passwd"),
    *("[1-9]{a,b}", "\x1b[201~!!", "é"),
)
OPTIONS = {
    *("--silent", "--show-error", "--globoff", "--url", "--header"),
    *("--data-raw", "--dump-header", "--output", "-"),
}


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_no_foreign_word_of_a_curl_command_is_an_option_or_is_expanded(version: str, tmp_path: Path) -> None:
    address = HttpAddress("https://x.example/mcp?a=$(touch pwned)&b=[1]", ("Authorization", "X-$(touch pwned)"))
    for word in HOSTILE:
        command = as_curl(address, version, word, {word: word})
        assert command is not None
        assert command.isascii() or word == "é"
        script = f'curl() {{ printf "%s\\n" "$@" >> words; echo end >> words; }}\n{command}'
        environment = {"PATH": os.environ["PATH"], "AUTHORIZATION": "Bearer $(touch pwned) b"}
        subprocess.run(["sh", "-eu", "-c", f"X___TOUCH_PWNED_=;{script}"], cwd=tmp_path, env=environment, check=True)
        words = (tmp_path / "words").read_text().splitlines()
        (tmp_path / "words").unlink()
        assert not (tmp_path / "pwned").exists()
        assert {each for each in words if each.startswith("-")} <= OPTIONS
        assert "Authorization: Bearer $(touch pwned) b" in words
        assert f"{address.url}" in words
        body = json.loads(words[len(words) - 2])
        assert (body["params"]["name"], body["params"]["arguments"]) == (word, {word: word})


def test_curl_reaches_servers_over_http_only() -> None:
    assert as_curl(None, "2026-07-28", "add", {}) is None
    assert as_curl(HttpAddress("https://x.example/mcp"), None, "add", {}) is None


@pytest.mark.anyio
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_call_is_repeated_by_curl_and_by_a_program(agency: RemoteServer, protocol: Any) -> None:
    transport, origin = HttpTransport(agency.url), Origin(argument=agency.url)
    async with inspecting(travel(transport=transport, protocol=protocol), origin=origin) as page:
        await page.listed()
        number = await page.call("distance", {"start": "Vienna's $HOME"})
        answer = (await page.ended(number))["answer"]["result"]["content"][0]["text"]
        snippets = await page.get(f"/requests/{number}/snippets")
        curl = await anyio.run_process(["sh", "-c", snippets["curl"]])
        assert f'"text":"{answer}"' in curl.stdout.decode().replace('": "', '":"')
        program = await anyio.run_process([sys.executable, "-c", snippets["python"]])
        assert program.stdout.decode().strip() == answer
