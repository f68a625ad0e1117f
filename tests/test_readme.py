"""What the README says is so: its Python runs and does what the text tells, its tables and links are those of the code.

The commands of its consoles are in test_readme_commands.py.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from mcp import Client
from mcp_types import ElicitResult
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette

import bridge
from bridge import (
    Image,
    InvocationContext,
    SystemMessage,
    Tool,
    ToolBox,
    ToolExecutionRequest,
    ToolExecutionResult,
    execute,
    tool,
    tools_from,
)
from bridge.cli import COMMANDS
from bridge.models.scripted import ScriptedChatModel
from bridge.server import mount
from bridge.tools.threads import DEFAULT_THREADS
from tests import options_table
from tests.markdown import README, ROOT, codes
from tests.server import http_server
from tests.server.stdio_process import StdioProcess, modern_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams

ADD = "def add("
WEATHER = "def weather("
CANCEL = "def cancel("
ACCOUNT = "class Account"
BOOK = "def book("
RUN = "bridge.run("
MOUNT = "mount(app"
CONNECT = "bridge.connect("
ASSISTANT = "class Assistant"
CLERK = "class Clerk"
GUARD = "auth = Auth("
BLOCKS = [ADD, RUN, MOUNT, CONNECT, ASSISTANT, WEATHER, CANCEL, ACCOUNT, BOOK, CLERK, GUARD]
"""A text of each Python block, in order."""


def names_after(fragment: str, **continued: object) -> dict[str, Any]:
    """Run a block in a fresh namespace, with what the text says that it continues; gives its names."""
    names: dict[str, Any] = {"__name__": "readme", **continued}
    exec(compile(README.block(fragment), "README.md", "exec", dont_inherit=True), names)
    return names


def offered(source: object) -> Tool:
    (made,) = tools_from(source)
    return made


async def called(source: object, **arguments: Any) -> ToolExecutionResult:
    box = source if isinstance(source, ToolBox) else ToolBox(source)
    (only,) = box
    return await execute(box, ToolExecutionRequest(only.specification.name, arguments), InvocationContext())


# --- Python blocks ---------------------------------------------------------------------------------------------------


def test_every_python_block_is_run_here() -> None:
    assert [README.block(fragment) for fragment in BLOCKS] == [block.text for block in README.blocks("python")]


@pytest.mark.anyio
async def test_the_first_function_is_a_tool_and_stays_a_function() -> None:
    add = names_after(ADD)["add"]
    assert (await called(add, a=1, b=2)).text == "3"
    assert add(1, 2) == 3


def test_a_file_that_ends_with_run_is_a_server(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text(README.block(ADD) + README.block(RUN), encoding="utf-8")
    with StdioProcess(command=[sys.executable, str(file)]) as server:
        described = server.answer(modern_request(1, "server/discover"))["result"]
        assert described["instructions"] == "Sums of whole numbers."
        assert described["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "tools"
        assert server.add() == 5


@pytest.mark.anyio
@pytest.mark.parametrize("framework", [Starlette, FastAPI])
async def test_mounted_in_an_application_tools_answer_the_official_client(framework: Callable[[], Starlette]) -> None:
    app = framework()
    names_after(MOUNT, app=app, add=names_after(ADD)["add"])
    with http_server.serving(app) as origin:
        for mode in ("legacy", "2026-07-28"):
            async with Client(f"{origin}/tools", mode=mode) as client:
                result = await client.call_tool("add", {"a": 1, "b": 2})
                assert result.structured_content == {"result": 3}


def test_an_app_asks_for_the_keys_that_it_was_given() -> None:
    app = names_after(GUARD, add=names_after(ADD)["add"])["app"]
    with http_server.serving(app) as origin:
        assert httpx.post(f"{origin}/mcp", json={}).status_code == 401
        key = {"authorization": "Bearer a-random-one-instead-of-this"}
        assert httpx.post(f"{origin}/mcp", json={}, headers=key).status_code != 401


def test_what_stands_explicitly_describes_the_tool() -> None:
    described = offered(names_after(WEATHER)["weather"]).specification
    properties = described.parameters["properties"]
    assert described.description == "Looks up the weather of one day"
    assert described.annotations is not None
    assert described.annotations.read_only is True
    assert {name: schema["description"] for name, schema in properties.items()} == {
        "city": "The city's name, in English",
        "daysAhead": "0 is today",
    }
    assert described.parameters["required"] == ["city"]


@pytest.mark.anyio
async def test_the_message_of_a_tool_error_reaches_the_model() -> None:
    cancel = names_after(CANCEL)["cancel"]
    refused = await called(cancel, booking="17")
    assert (refused.is_error, refused.text) == (True, "booking numbers look like B-12345; list_bookings tells yours")
    assert (await called(cancel, booking="B-12345")).text == "Success"


@pytest.mark.anyio
async def test_the_methods_of_an_object_are_tools_of_that_object() -> None:
    box = names_after(ACCOUNT)["box"]
    assert (await called(box, amount=2)).text == "2"
    assert (await called(box, amount=3)).text == "5"


@pytest.mark.anyio
@pytest.mark.parametrize(("mode", "runs"), [("legacy", 1), ("2026-07-28", 2)])
async def test_a_question_is_asked_in_both_eras_and_the_function_runs_again_in_the_modern_one(
    mode: str, runs: int
) -> None:
    names = names_after(BOOK)
    rounds: list[int] = []
    asked: list[str] = []

    @tool
    async def book(nights: int, context: InvocationContext) -> str:
        rounds.append(context.round)
        text: str = await names["book"](nights, context)
        return text

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"view": "sea"})

    told: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    app = Starlette()
    mount(app, "/tools", ToolBox(book))
    with http_server.serving(app) as origin:
        async with Client(f"{origin}/tools", mode=mode, elicitation_callback=answer) as client:
            result = await client.call_tool("book", {"nights": 2}, progress_callback=note)
    assert result.structured_content is None
    assert [json.loads(block.model_dump_json())["text"] for block in result.content] == ["2 nights"]
    assert (asked, len(rounds), told) == (["Which view?"], runs, [1, 2])


# --- promises in the text --------------------------------------------------------------------------------------------


def test_the_tools_of_servers_are_called_without_an_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools.py").write_text(README.block(ADD), encoding="utf-8")
    entry = {"command": sys.executable, "args": ["-m", "bridge", "serve", str(tmp_path / "tools.py")]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names_after(CONNECT)
    assert capsys.readouterr().out == "3\n"


def test_a_model_implements_an_interface_with_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel([ToolExecutionRequest("add", {"a": 1, "b": 2}), "It is 3."])
    monkeypatch.setattr("bridge.models.openai.OpenAiChatModel", lambda _: model)
    names = names_after(ASSISTANT, add=names_after(ADD)["add"])
    assert names["answer"] == "It is 3."
    assert model.requests[-1].messages[-1].text == "3"


@pytest.mark.anyio
async def test_a_service_remembers_each_customer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedChatModel(["Hello, Ada.", "You are Ada.", "I do not know you."])
    clerk = names_after(CLERK, add=names_after(ADD)["add"], model=model)["clerk"]
    await clerk.ask("ada", "Hotel Sol", "I am Ada.")
    result = await clerk.ask("ada", "Hotel Sol", "Who am I?")
    assert (result.content, result.tool_executions) == ("You are Ada.", ())
    await clerk.ask("bob", "Hotel Sol", "Who am I?")
    assert [len(request.messages) for request in model.requests] == [2, 4, 2]
    assert model.requests[0].messages[0] == SystemMessage("You are the clerk of Hotel Sol. Be brief.")


def nothing() -> None: ...


def some_text() -> str:
    return "text"


def a_list() -> list[int]:
    return [1, 2]


def a_picture() -> list[Image | str]:
    return [Image(b"png"), "text"]


RETURNS: dict[str, tuple[Callable[[], Any], str, object]] = {
    "`str`": (some_text, "text", None),
    "a number, list, dict, dataclass, model, date …": (a_list, "[1,2]", {"result": [1, 2]}),
    "`Image`, `Audio`, `File`, bytes, or a list with one of them": (a_picture, "text", None),
    "nothing": (nothing, "Success", None),
}


def test_every_kind_of_return_value_is_tried_here() -> None:
    assert [row[0] for row in README.table("a function returns")] == list(RETURNS)


@pytest.mark.anyio
@pytest.mark.parametrize("row", README.table("a function returns"), ids=lambda row: str(row[0]))
async def test_a_model_and_a_program_read_what_the_table_says(row: list[str]) -> None:
    function, text, structured = RETURNS[row[0]]
    result = await called(function)
    assert (result.text, result.structured_content) == (text, structured)
    schema = offered(function).specification.output_schema
    assert bool(row[2]) is (structured is not None) is (schema is not None)


def test_what_bounds_time_and_output_is_so() -> None:
    policy = offered(tool(timeout_seconds=10, max_output_chars=20_000)(some_text)).policy
    assert (policy.timeout_seconds, policy.max_output_chars) == (10, 20_000)
    assert "`@tool(timeout_seconds=10, max_output_chars=20_000)`" in README.sentences
    assert f"at most {DEFAULT_THREADS} threads together (`set_thread_limit`)" in README.sentences
    assert "run_in_thread" in signature(tool).parameters


@pytest.mark.parametrize("name", ["blocking", "cancelled", "elicit", "progress", "round"])
def test_what_the_text_says_of_a_context_is_there(name: str) -> None:
    assert re.search(rf"`?\bcontext\.{name}\b|`{name}`", README.text)
    assert hasattr(InvocationContext(), name)


def test_the_names_that_the_text_imports_are_public() -> None:
    imported = re.findall(r"^from bridge import (.+)$", README.text, re.MULTILINE)
    assert {name for line in imported for name in line.split(", ")} <= set(bridge.__all__)
    assert {"prefixed", "renamed", "filtered"} <= set(bridge.__all__) & set(codes(README.prose))


def test_the_revisions_of_the_protocol_are_those_that_are_served() -> None:
    oldest, newest = min(HANDSHAKE_PROTOCOL_VERSIONS), max(MODERN_PROTOCOL_VERSIONS)
    assert f"revision of the protocol from {oldest} to {newest}" in README.sentences
    assert f"({oldest} to {max(HANDSHAKE_PROTOCOL_VERSIONS)})" in README.sentences


# --- tables, links ---------------------------------------------------------------------------------------------------


def test_the_table_of_options_is_the_options_of_serve() -> None:
    assert options_table.written(README.text) == README.text, "make reference"


def test_the_commands_are_those_of_the_command_line() -> None:
    usages = re.findall(r"^    bridge (\w+) (.+?)  ", README.text, re.MULTILINE)
    assert [name for name, _ in usages] == list(COMMANDS)
    for name, usage in usages:
        command = import_module(f"bridge.cli.{name}").command
        assert set(re.findall(r"--\w+", usage)) <= {option for each in command.params for option in each.opts}


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"(?:mcp-toolbridge|`)\[(\w+)\]", README.text)
    assert set(named) <= set(project["optional-dependencies"])
    assert [re.match(r"\w+", each)[0] for each in project["optional-dependencies"]["speed"]] == ["httptools", "uvloop"]  # type: ignore[index]  # every requirement has a name


@pytest.mark.parametrize("target", [link for link in README.links() if not link.startswith("https://")])
def test_a_link_leads_to_a_file(target: str) -> None:
    assert (ROOT / target).is_file()


@pytest.mark.parametrize("path", [code for code in codes(README.prose) if re.fullmatch(r"\w+/[\w/]*\.py", code)])
def test_a_file_that_the_text_names_exists(path: str) -> None:
    assert (ROOT / path).is_file()
