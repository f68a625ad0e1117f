"""What the README tells its reader to type: each command is run as it stands, and answers what is shown.

Servers are started on a free port, used by the official client, and ended. What needs a network is read instead.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from mcp import Client, StdioServerParameters

from tests.image.dockerfile import stages
from tests.markdown import README, ROOT, Command, codes

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_SECONDS = 60
ERAS = ("legacy", "2026-07-28")
COMMANDS = README.commands()
ENDING = [command for command in COMMANDS if re.match(r"bridge (list|call|status|install) ", command.line)]
OVER_HTTP = [command for command in COMMANDS if re.match(r"bridge serve .*--transport http", command.line)]
GUARDED = [command for command in COMMANDS if re.match(r"BRIDGE_\w+=\S+ bridge serve .*--transport http", command.line)]
OVER_STDIO = [command for command in COMMANDS if re.match(r"([A-Z_]+=\S+ )+bridge serve [^-]+$", command.line)]
CHAT = [command for command in COMMANDS if command.line.startswith("bridge chat ")]
MAKE = [command for command in COMMANDS if command.line.startswith("make ")]
PIP = [command for command in COMMANDS if command.line.startswith("pip install ")]
LOGIN = [command for command in COMMANDS if command.line.startswith("bridge login ")]
DOCKER = [command for command in COMMANDS if command.line.startswith("docker ")]
SERVERS = README.table("server")
GREETER = """
from bridge import tool

@tool
def greet(name: str) -> str:
    return f"Hello, {name}."
"""
"""What the newcomer's ``mcp.json`` starts."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """A newcomer's: an empty home, and `bridge` on the path."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BRIDGE_", "XDG_", "PYTHON"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return kept | {"HOME": str(home), "PATH": path}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The newcomer's working directory, with the ``tools.py`` that the README has them write."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "tools.py").write_text(README.blocks("python")[0].text, encoding="utf-8")
    (made / "folder").mkdir()
    (made / "folder" / "tools.py").write_text(README.blocks("python")[0].text, encoding="utf-8")
    (made / "greeter.py").write_text(GREETER, encoding="utf-8")
    entry = {"command": sys.executable, "args": ["-m", "bridge", "serve", str(made / "greeter.py")]}
    (made / "mcp.json").write_text(json.dumps({"mcpServers": {"greeter": entry}}), encoding="utf-8")
    return made


def run(line: str, directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@contextmanager
def started(line: str, directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        ["sh", "-c", f"exec {line}"], cwd=directory, env=environment, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


async def sum_by_official_client(server: str | StdioServerParameters, mode: str) -> Any:
    async with Client(server, mode=mode) as client:
        return (await client.call_tool("add", {"a": 1, "b": 2})).structured_content


def test_every_command_is_run_or_read_by_one_test() -> None:
    assert sorted(map(str, COMMANDS)) == sorted(
        map(str, [*ENDING, *OVER_HTTP, *GUARDED, *OVER_STDIO, *CHAT, *MAKE, *PIP, *LOGIN, *DOCKER])
    )


@pytest.mark.parametrize("command", ENDING, ids=str)
def test_a_command_answers_what_is_shown(command: Command, directory: Path, environment: dict[str, str]) -> None:
    done = run(command.line, directory, environment)
    assert done.returncode == 0, done.stderr
    if command.shown:
        assert (done.stdout.splitlines(), done.stderr) == (list(command.shown), "")


def installed(directory: Path, environment: dict[str, str], home: Path) -> dict[str, Any]:
    """The entry that the client finds when it starts."""
    (line,) = [command.line for command in ENDING if command.line.startswith("bridge install ")]
    assert run(line, directory, environment).returncode == 0
    (written,) = home.rglob("*.json")
    entry: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))["mcpServers"]["tools"]
    return entry


@pytest.mark.anyio
async def test_what_is_installed_into_a_client_starts_and_answers(
    directory: Path, environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    entry = installed(directory, environment, home)
    for mode in ERAS:
        server = StdioServerParameters(command=entry["command"], args=entry["args"], cwd=tmp_path)
        assert await sum_by_official_client(server, mode) == {"result": 3}


@pytest.mark.anyio
@pytest.mark.parametrize("command", OVER_HTTP, ids=str)
async def test_a_server_over_http_says_the_lines_that_are_shown_and_answers_where_they_say(
    command: Command, directory: Path, environment: dict[str, str]
) -> None:
    with started(f"{command.line} --port 0", directory, environment) as process:
        assert process.stderr is not None
        said = [process.stderr.readline().rstrip("\n") for _ in command.shown]
        url = said[0].rpartition(" at ")[2]
        port = urlsplit(url).port
        assert said == [line.replace(":8000/", f":{port}/") for line in command.shown]
        assert serve_default("port") == 8000
        for mode in ERAS:
            assert await sum_by_official_client(url, mode) == {"result": 3}
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("command", GUARDED, ids=str)
def test_a_server_that_asks_for_a_credential_lets_nobody_in_without_one(
    command: Command, directory: Path, environment: dict[str, str]
) -> None:
    setting, _, line = command.line.partition(" ")
    name, _, value = setting.partition("=")
    with started(f"{line} --port 0", directory, environment | {name: value}) as process:
        assert process.stderr is not None
        url = next(line for line in process.stderr if line.startswith("serving ")).strip().rpartition(" at ")[2]
        assert httpx.post(url, json={}).status_code == 401


@pytest.mark.anyio
async def test_a_ready_server_is_started_as_shown(environment: dict[str, str], home: Path) -> None:
    (command,) = OVER_STDIO
    (home / "notes").mkdir()
    (home / "notes" / "today.txt").write_text("milk", encoding="utf-8")
    server = StdioServerParameters(command="sh", args=["-c", command.line], env=environment, cwd=ROOT)
    async with Client(server) as client:
        result = await client.call_tool("read_file", {"path": "today.txt"})
        assert "milk" in str(result.content)


def serve_default(name: str) -> Any:
    command = import_module("bridge.cli.serve").command
    return next(each.default for each in command.params if each.name == name)


def test_a_conversation_is_begun_as_shown(directory: Path, environment: dict[str, str]) -> None:
    (command,) = CHAT
    done = run(command.line, directory, environment | {"OPENAI_API_KEY": ""})
    assert (done.returncode, done.stderr) == (
        1,
        "bridge: openai: there is no key; set OPENAI_API_KEY, or pass api_key=\n",
    )


def test_a_login_is_begun_as_shown() -> None:
    (command,) = LOGIN
    program, *arguments = shlex.split(command.line)[1:]
    options = import_module(f"bridge.cli.{program}").command.make_context(program, arguments).params
    assert options["target"].startswith("https://")


# --- what is read instead --------------------------------------------------------------------------------------------


def test_what_pip_installs_is_this_project_and_its_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [command.line for command in PIP] == [f"pip install {project['name']}"]
    for extra in re.findall(rf"{project['name']}\[(\w+)\]", README.text):
        assert extra in project["optional-dependencies"]


def test_what_make_is_asked_for_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    wanted = {command.line.removeprefix("make ") for command in MAKE}
    wanted |= {code.removeprefix("make ").split()[0] for code in codes(README.prose) if code.startswith("make ")}
    assert {"demo", "test"} <= wanted <= set(targets)


def test_the_container_is_built_and_run_as_the_image_and_the_command_line_take_it() -> None:
    build, start = (shlex.split(command.line) for command in DOCKER)
    assert (build[:3], build[4:]) == (["docker", "build", "-t"], ["."])
    assert start[-1] == build[3]
    image = stages()[-1]
    given = dict(pairwise(start))
    port = image.environment["BRIDGE_PORT"]
    assert given["-p"] == f"127.0.0.1:{port}:{port}"
    assert image.last("EXPOSE") == port
    assert given["-v"].split(":")[1] in image.environment["BRIDGE_DEFAULT_TARGETS"].split(",")
    variables = {option.envvar for option in import_module("bridge.cli.serve").command.params}
    assert {name for name in [given["-e"].split("=")[0], *image.environment] if name.startswith("BRIDGE_")} <= variables


# --- ready servers ---------------------------------------------------------------------------------------------------


def offered(path: str, environment: dict[str, str]) -> list[str]:
    done = run(f"bridge list --json {path}", ROOT, environment)
    assert done.returncode == 0, done.stderr
    return [tool["name"] for tool in json.loads(done.stdout)]


@pytest.mark.parametrize("row", SERVERS, ids=lambda row: str(row[0].strip("`")))
def test_a_ready_server_offers_the_tools_and_reads_the_environment_that_the_table_says(
    row: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    (path,) = codes(row[0])
    database = tmp_path / "data.db"
    database.touch()  # an empty file is an empty database
    values = {"_ROOT": str(tmp_path), "_FILE": str(database), "_CUSTOMER": "anna", "_WRITABLE": "1"}
    variables = codes(row[2])
    given = {name: value for name in variables for suffix, value in values.items() if name.endswith(suffix)}
    assert set(given) == set(variables)
    assert offered(path, environment | given) == codes(row[1])
    unwritable = {name: value for name, value in given.items() if not name.endswith("_WRITABLE")}
    assert offered(path, environment | unwritable) == codes(row[1].partition("where it is writable")[0])
    source = (ROOT / path).read_text(encoding="utf-8")
    documented = dict(re.findall(r"^    ([A-Z_]+)   +(.+(?:\n     +.+)*)", source.split('"""')[1], re.MULTILINE))
    assert set(variables) <= set(documented)
    assert {name for name, words in documented.items() if "Required" in words} <= set(variables)
    assert set(re.findall(rf'"({Path(path).stem.upper()}_[A-Z_]+)"', source)) == set(documented)


def test_the_table_names_all_ready_servers() -> None:
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "servers").glob("*.py"))
    assert sorted(code for row in SERVERS for code in codes(row[0])) == files


# --- the command line ------------------------------------------------------------------------------------------------

CONFIGURATION = {"mcpServers": {"sums": {"command": "bridge", "args": ["serve", "tools.py"]}}}
TARGETS = {
    "file.py[:object]": ["tools.py", "tools.py:add"],
    "directory/": ["folder/"],
    "package.module[:object]": ["tools", "tools:add"],
    "mcp.json[#server]": ["mcp.json", "'mcp.json#sums'"],
    "http(s)://…": ["URL"],
    "-- command args…": ["-- bridge serve tools.py"],
}


def test_a_target_of_each_kind_that_the_text_names_is_tried_here() -> None:
    (sentence,) = re.findall(r"A TARGET is (.+?);", README.sentences)
    assert codes(sentence) == list(TARGETS)


@pytest.mark.parametrize("target", [target for targets in TARGETS.values() for target in targets])
def test_a_target_of_each_kind_is_listed(target: str, directory: Path, environment: dict[str, str]) -> None:
    (directory / "mcp.json").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
    with ExitStack() as stack:
        if target == "URL":
            line = "bridge serve tools.py --transport http --port 0"
            server = stack.enter_context(started(line, directory, environment))
            assert server.stderr is not None
            target = server.stderr.readline().strip().rpartition(" at ")[2]
        done = run(f"bridge list {target}", directory, environment)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "add"), done.stderr


def test_the_exit_codes_are_those_that_the_text_gives(directory: Path, environment: dict[str, str]) -> None:
    (sentence,) = re.findall(r"exit codes are (.+?)\. `bridge", README.sentences)
    assert re.findall(r"(\d+) \(", sentence) == ["0", "1", "2", "130"]
    (directory / "failing.py").write_text(README.block("def cancel("), encoding="utf-8")
    assert run("bridge call tools.py add a=1 b=2", directory, environment).returncode == 0
    assert run("bridge call failing.py cancel booking=17", directory, environment).returncode == 1
    assert run("bridge call tools.py subtract a=1 b=2", directory, environment).returncode == 2
    with started("bridge serve tools.py --transport http --port 0", directory, environment) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("serving ")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 130
