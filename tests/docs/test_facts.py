"""Facts that the pages state outside of their blocks: tables, numbers and names equal the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import tomllib
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from bridge import (
    Image,
    InvocationContext,
    ToolBox,
    ToolExecutionRequest,
    ToolExecutionResult,
    execute,
    tool,
    tools_from,
)
from bridge.cli import COMMANDS
from bridge.client.config.bundle_writer import write_bundle
from bridge.tools.threads import DEFAULT_THREADS
from tests import forks
from tests.docs.walkthrough import run_line
from tests.image.dockerfile import stages
from tests.markdown import ROOT, Document, codes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from bridge import Tool
    from tests.forks import ForkedPython

DEADLINE_SECONDS = 60
DOCS = ROOT / "docs"
README = Document(ROOT / "README.md")
INDEX = Document(DOCS / "index.md")
COMMAND_LINE = Document(DOCS / "command-line" / "index.md")
SERVE = Document(DOCS / "command-line" / "serve.md")
RESULTS = Document(DOCS / "tools" / "results.md")
CONTAINER = Document(DOCS / "deploying" / "container.md")
README_MAX_LINES = 250


# --- README ----------------------------------------------------------------------------------------------------------


def test_the_readme_is_short() -> None:
    assert len(README.text.splitlines()) < README_MAX_LINES


@pytest.mark.parametrize("page", [README, INDEX], ids=repr)
def test_the_revisions_of_the_protocol_are_those_that_are_served(page: Document) -> None:
    oldest, newest = min(HANDSHAKE_PROTOCOL_VERSIONS), max(MODERN_PROTOCOL_VERSIONS)
    assert re.search(f"revision (of the protocol )?from {oldest} to {newest}", page.sentences)


def test_the_badges_are_true() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    oldest, newest = min(HANDSHAKE_PROTOCOL_VERSIONS), max(MODERN_PROTOCOL_VERSIONS)
    badges = dict(re.findall(r"^!\[([^\]]+)\]\(https://img\.shields\.io/badge/([^)]+)\)$", README.text, re.MULTILINE))
    assert [*badges] == [f"Python {pythons[0]} and newer", f"MCP {oldest} to {newest}", "licence MIT"]
    assert project["license"].startswith("MIT ")
    for words, address in badges.items():
        label, value, _ = address.replace("--", "\0").split("-")
        assert f"{label} {value}".replace("\0", "-").replace("_", " ").lower() == words.lower()


@pytest.mark.parametrize("page", [README, INDEX], ids=repr)
def test_the_extras_are_those_of_the_project(page: Document) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    named = {
        name
        for extra in re.findall(r"'(?:\.|mcp-toolbridge)\[(\w+)\]|extra `(\w+)`", page.text)
        for name in extra
        if name
    }
    assert named <= extras
    if page is INDEX:
        assert {code for row in page.table("extra") for code in codes(row[0])} == extras


@pytest.mark.parametrize("folder", [".", "clients", "deploying", "tools"])
def test_the_readme_links_every_page_of_the_guide(folder: str) -> None:
    pages = {path.relative_to(ROOT).as_posix() for path in (DOCS / folder).glob("*.md")} - {"docs/index.md"}
    assert pages <= {link.partition("#")[0] for link in README.links()}


def test_the_targets_of_make_that_the_readme_names_are_there() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {code.removeprefix("make ").split()[0] for code in codes(README.prose) if code.startswith("make ")}
    named |= {
        command.line.removeprefix("make ").split()[0]
        for command in README.commands()
        if command.line.startswith("make ")
    }
    assert {"demo", "test"} <= named <= set(targets)


# --- tools -----------------------------------------------------------------------------------------------------------


def offered(source: object) -> Tool:
    (made,) = tools_from(source)
    return made


async def called(source: object) -> ToolExecutionResult:
    box = ToolBox(source)
    (only,) = box
    return await execute(box, ToolExecutionRequest(only.specification.name, {}), InvocationContext())


def nothing() -> None: ...


def some_text() -> str:
    return "text"


def a_list() -> list[int]:
    return [1, 2]


def a_picture() -> list[Image | str]:
    return [Image(b"png"), "text"]


RETURNS: dict[str, tuple[Callable[[], Any], str, object]] = {
    "`str`": (some_text, "text", None),
    "a number, list, dict, dataclass, model, date, …": (a_list, "[1,2]", {"result": [1, 2]}),
    "`Image`, `Audio`, `File`, `bytes`, or a list with one of them": (a_picture, "text", None),
    "nothing": (nothing, "Success", None),
}


def test_every_kind_of_return_value_is_tried_here() -> None:
    assert [row[0] for row in RESULTS.table("a function returns")] == list(RETURNS)


@pytest.mark.anyio
@pytest.mark.parametrize("row", RESULTS.table("a function returns"), ids=lambda row: str(row[0]))
async def test_a_model_and_a_program_read_what_the_table_says(row: list[str]) -> None:
    function, text, structured = RETURNS[row[0]]
    result = await called(function)
    assert (result.text, result.structured_content) == (text, structured)
    schema = offered(function).specification.output_schema
    assert (row[2] != "nothing") is (structured is not None) is (schema is not None)


def test_the_number_of_threads_and_the_limits_of_a_tool_are_so() -> None:
    page = Document(DOCS / "tools" / "index.md")
    assert f"At most {DEFAULT_THREADS} functions run in threads at the same time; `set_thread_limit`" in page.sentences
    assert "@tool(timeout_seconds=10, max_output_chars=20_000)" in page.text
    policy = offered(tool(timeout_seconds=10, max_output_chars=20_000)(some_text)).policy
    assert (policy.timeout_seconds, policy.max_output_chars) == (10, 20_000)


@pytest.mark.parametrize(
    "name",
    [
        *(
            code
            for row in Document(DOCS / "tools" / "context.md").table("attribute or method")
            for code in codes(row[0])
        ),
        "blocking",
        "round",
        "has_listener",
    ],
)
def test_an_attribute_of_a_context_is_there(name: str) -> None:
    assert hasattr(InvocationContext, name)


# --- the command line ------------------------------------------------------------------------------------------------

TOOLS = """
from bridge import ToolError, tool

@tool
def add(a: int, b: int) -> int:
    return a + b

@tool
def fail() -> None:
    raise ToolError("no")
"""
CONFIGURATION = {"mcpServers": {"sums": {"command": "mcp-toolbridge", "args": ["serve", "tools.py"]}}}
TARGETS = {
    "`file.py[:object]`": ["tools.py", "tools.py:add"],
    "`directory/`: the Python files in it": ["folder/", "."],
    "`package.module[:object]`": ["tools", "tools:add"],
    "`mcp.json[#server]`": ["mcp.json", "'mcp.json#sums'"],
    "`server.mcpb`: the server of a [bundle](bundle.md)": ["sums.mcpb", "sums.mcpb#sums"],
    "the URL of an MCP server": ["URL"],
    "`-- command args…`, after all options": ["-- mcp-toolbridge serve tools.py"],
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A reader's: an empty home, and the commands on the path."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BRIDGE_", "XDG_", "PYTHON"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return kept | {"HOME": str(tmp_path), "PATH": path}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A working directory with a target of every kind."""
    made = tmp_path / "work"
    (made / "folder").mkdir(parents=True)
    for path in (made / "tools.py", made / "folder" / "tools.py"):
        path.write_text(TOOLS, encoding="utf-8")
    (made / "mcp.json").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
    start = {"command": "python", "args": ["-m", "bridge", "serve", "tools.py"]}
    server = {"type": "python", "entry_point": "tools.py", "mcp_config": start}
    write_bundle(made / "sums.mcpb", {"name": "sums", "version": "1", "server": server}, {"tools.py": TOOLS.encode()})
    return made


@contextmanager
def serving(directory: Path, environment: dict[str, str]) -> Iterator[tuple[ForkedPython | subprocess.Popen[str], str]]:
    """A server over HTTP, and its URL."""
    arguments = ["-m", "bridge", "serve", "tools.py", "--transport", "http", "--port", "0"]
    with forks.popen(arguments, cwd=directory, env=environment) as process:
        assert process.stderr is not None
        try:
            yield process, process.stderr.readline().strip().rpartition(" at ")[2]
        finally:
            process.terminate()


def test_the_commands_are_those_of_the_command_line() -> None:
    usages = [re.fullmatch(r"\[`bridge (\w+)\b(.*)`\]\(\1\.md\)", row[0]) for row in COMMAND_LINE.table("command")]
    assert all(usages)
    assert [usage[1] for usage in usages if usage] == list(COMMANDS)
    for usage in filter(None, usages):
        command = import_module(f"bridge.cli.{usage[1]}").command
        assert set(re.findall(r"--\w+", usage[2])) <= {option for each in command.params for option in each.opts}


def test_a_target_of_each_kind_that_the_table_names_is_tried_here() -> None:
    assert [row[0] for row in COMMAND_LINE.table("target")] == list(TARGETS)


@pytest.mark.parametrize("target", [target for targets in TARGETS.values() for target in targets])
def test_a_target_of_each_kind_is_listed(target: str, directory: Path, environment: dict[str, str]) -> None:
    with ExitStack() as stack:
        if target == "URL":
            _, target = stack.enter_context(serving(directory, environment))
        done = run_line(f"bridge list {target}", directory, environment)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "add"), done.stderr


def test_the_exit_codes_are_those_that_the_table_gives(directory: Path, environment: dict[str, str]) -> None:
    assert [row[0] for row in COMMAND_LINE.table("code")] == ["0", "1", "2", "130", "143, 129"]
    assert run_line("bridge call tools.py add a=1 b=2", directory, environment).returncode == 0
    assert run_line("bridge call tools.py fail", directory, environment).returncode == 1
    assert run_line("bridge call tools.py subtract a=1 b=2", directory, environment).returncode == 2
    with serving(directory, environment) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 130


# --- ready servers ---------------------------------------------------------------------------------------------------


def offered_by(path: str, environment: dict[str, str]) -> tuple[list[str], set[str]]:
    """The tools of a server, and its resources, templates and prompts."""
    done = run_line(f"bridge list --json {path}", ROOT, environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    keys = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
    return [each["name"] for each in found["tools"]], {each[key] for kind, key in keys.items() for each in found[kind]}


@pytest.mark.parametrize("row", SERVE.table("server"), ids=lambda row: str(row[0].strip("`")))
def test_a_ready_server_offers_the_tools_and_reads_the_environment_that_the_table_says(
    row: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    (path,) = codes(row[0])
    database = tmp_path / "data.db"
    database.touch()  # an empty file is an empty database
    values = {"_ROOT": str(tmp_path), "_FILE": str(database), "_CUSTOMER": "anna", "_WRITABLE": "1"}
    values["_POLL_SECONDS"] = "1"
    variables = codes(row[3])
    given = {name: value for name in variables for suffix, value in values.items() if name.endswith(suffix)}
    assert set(given) == set(variables)
    (tmp_path / "files").mkdir()
    given |= {"FILES_ROOT": str(tmp_path / "files")} if "FILES_ROOT" in given else {}  # without a file to list
    assert offered_by(path, environment | given) == (codes(row[1]), set(codes(row[2])))
    unwritable = {name: value for name, value in given.items() if not name.endswith("_WRITABLE")}
    assert offered_by(path, environment | unwritable)[0] == codes(row[1].partition("if writable")[0])
    source = (ROOT / path).read_text(encoding="utf-8")
    documented = dict(re.findall(r"^    ([A-Z_]+)   +(.+(?:\n     +.+)*)", source.split('"""')[1], re.MULTILINE))
    assert set(variables) <= set(documented)
    assert {name for name, words in documented.items() if "Required" in words} <= set(variables)
    assert set(re.findall(rf'"({Path(path).stem.upper()}_[A-Z_]+)"', source)) == set(documented)


def test_the_table_names_all_ready_servers() -> None:
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "servers").glob("*.py"))
    assert sorted(code for row in SERVE.table("server") for code in codes(row[0])) == files


# --- the container ---------------------------------------------------------------------------------------------------


def test_the_container_is_built_and_run_as_the_image_and_the_command_line_take_it() -> None:
    build, start, *_ = (shlex.split(command.line) for command in CONTAINER.commands() if "docker " in command.line)
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
