"""The synchronous facade, in a program without an event loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

import bridge
from bridge import (
    DefinitionError,
    InvocationContext,
    McpToolProvider,
    Server,
    ServerConfig,
    StdioTransport,
    ToolBox,
    portal,
    tool,
)
from bridge.client import ClientHandlers, ConnectionState, MemoryTransport
from bridge.errors import ServerUnavailableError
from bridge.events import EventType
from bridge.server import EventOptions
from bridge.skills import skills_in
from bridge.tools import Elicitation, ElicitationAnswer
from tests.client.foreign import ForeignServer
from tests.client.scripted import listed, scripted_config
from tests.client.test_provider import NOWHERE, add, memory_config
from tests.client.test_remote_features import SERVED as SERVED_FEATURES
from tests.processes import ROOT, serving
from tests.skills.written import instructions, write_skill

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from bridge import ToolExecutionResult

ADD = listed("add", description="Add two numbers.")
UNKNOWN = "there is no tool named 'tel'; did you mean 'tell'?"
RESULTS = {"add": {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A typical configuration."""
    transport = scripted_config([ADD], RESULTS).transport
    assert isinstance(transport, StdioTransport)
    server = {"command": transport.command, "args": [arg.replace("${", "$${") for arg in transport.args]}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"calculator": server}}))
    return path


def test_a_program_calls_the_tools_of_a_file_that_it_has(file: Path) -> None:
    with bridge.connect(file) as servers:
        assert [each.name for each in servers.tools] == ["add"]
        result = servers.call("add", a=1, b=2)
        assert (result.text, result.structured_content, result.is_error) == ("3", {"result": 3}, False)
        (status,) = servers.status()
        assert (status.name, status.tools) == ("calculator", ("add",))
        assert status.connection.state is ConnectionState.READY
    (status,) = servers.status()
    assert status.connection.state is ConnectionState.CLOSED


@pytest.mark.parametrize("delivery", ["push", "poll"])
def test_a_program_subscribes_to_events_and_may_interrupt_its_wait(delivery: Any) -> None:
    server = Server([EventType(name="number"), add], name="numbers", events=EventOptions(poll_seconds=0.01))
    config = ServerConfig(name="numbers", transport=MemoryTransport(server), protocol="2026-07-28")
    with bridge.connect([config]) as servers:
        assert [each.name for each in servers.list_events()] == ["number"]
        with servers.subscribe("number", delivery=delivery) as numbers:
            assert numbers.cursor is not None
            server.emit("number", {"value": 1})
            server.emit("number", {"value": 2})
            assert [next(numbers).data["value"], next(numbers).data["value"]] == [1, 2]
            assert servers.call("add", a=1, b=2).text == "3"
            cursor = numbers.cursor
        server.emit("number", {"value": 3})
        with servers.subscribe("number", cursor=cursor, delivery=delivery) as numbers:
            for each in numbers:
                assert each.data == {"value": 3}
                break
            assert numbers.gaps == 0
        with pytest.raises(DefinitionError, match="there is no event 'x'"), servers.subscribe("x"):
            raise AssertionError("there is none")
        assert server.events.shares.taken == 0


def test_a_subscription_without_its_block_names_what_to_do() -> None:
    server = Server([EventType(name="number")], name="numbers")
    with bridge.connect([ServerConfig(name="numbers", transport=MemoryTransport(server))]) as servers:
        numbers = servers.subscribe("number")
        for use in (lambda: next(numbers), lambda: numbers.__exit__(None, None, None)):
            with pytest.raises(DefinitionError, match=r"'number' has not begun: begin it by a block, with subscribe"):
                use()
        with pytest.raises(DefinitionError, match="the name of an event must be text"):
            servers.subscribe(3)  # type: ignore[arg-type]  # a wrong one


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    write_skill(tmp_path, "refunds", {})
    config = ServerConfig(name="docs", transport=MemoryTransport(Server(skills_in(tmp_path), name="docs")))
    with bridge.connect([config]) as servers:
        wrong: Any = servers
        with pytest.raises(DefinitionError, match=r"the skill must be a Skill, .* not 'refunds'"):
            wrong.read_skill("refunds")
        with pytest.raises(DefinitionError, match="the URI of a resource must be text"):
            wrong.watch_resource(3, print)
        with pytest.raises(DefinitionError, match="the listener of a resource must be a function of the URI"):
            wrong.watch_resource("skill://refunds/SKILL.md", None)
        with pytest.raises(DefinitionError, match="is not the text of a task"):
            wrong.task(3)


@pytest.mark.parametrize("delivery", ["push", "poll"])
@pytest.mark.parametrize("way", ["exit", "close", "remove"])
def test_an_iteration_in_another_thread_ends_with_the_subscription_or_the_provider(delivery: Any, way: str) -> None:
    server = Server([EventType(name="number")], name="numbers", events=EventOptions(poll_seconds=0.01))
    config = ServerConfig(name="numbers", transport=MemoryTransport(server), protocol="2026-07-28")
    with bridge.connect([config]) as servers, ThreadPoolExecutor(1) as threads:
        with servers.subscribe("number", delivery=delivery) as numbers:
            has_begun = threading.Event()

            def iterated() -> list[int]:
                found = []
                for each in numbers:
                    found.append(each.data["value"])
                    has_begun.set()
                return found

            iterating = threads.submit(iterated)
            server.emit("number", {"value": 1})
            assert has_begun.wait(30)
            if way == "close":
                servers.close()
            elif way == "remove":
                servers.remove("numbers")
            if way != "exit":
                assert iterating.result(timeout=30) == [1]
        assert iterating.result(timeout=30) == [1]
        assert next(numbers, None) is None
    assert server.events.shares.taken == 0


def test_a_program_reads_skills(tmp_path: Path) -> None:
    write_skill(tmp_path, "refunds", {"a.md": "An example."})
    config = ServerConfig(name="docs", transport=MemoryTransport(Server(skills_in(tmp_path), name="docs")))
    with bridge.connect([config]) as servers:
        (skill,) = servers.list_skills()
        assert servers.read_skill(skill).content == instructions("refunds")
        assert servers.read_skill(skill, skill.uri_of("a.md")).content == "An example."


@tool
def tell(name: str, context: str = "none") -> str:
    """Tell both."""
    return f"{name} {context}"


async def call_in_each_way(call: Callable[..., Awaitable[ToolExecutionResult]]) -> list[str]:
    ways = [
        await call("tell", name="ada"),
        await call("tell", {"context": "here"}, name="ada"),
        await call("tell", {"name": "ada", "context": "there"}, context=InvocationContext()),
        await call("tell", '{"name": "ada"}'),
        await call("tel"),
    ]
    with pytest.raises(DefinitionError, match="arguments of 'tell' are given as text and as keywords"):
        await call("tell", "{}", name="ada")
    return [result.text for result in ways]


@pytest.mark.anyio
async def test_a_box_and_both_providers_are_called_in_the_same_ways() -> None:
    with bridge.connect(memory_config("one", tell)) as servers:
        in_thread = await call_in_each_way(
            lambda *given, **more: anyio.to_thread.run_sync(partial(servers.call, *given, **more))
        )
    async with McpToolProvider(memory_config("one", tell)) as provider:
        assert in_thread == await call_in_each_way(provider.call)
    assert in_thread == await call_in_each_way(ToolBox(tell).call)
    assert in_thread == ["ada none", "ada here", "ada there", "ada none", UNKNOWN]


def test_a_failure_is_a_result() -> None:
    with bridge.connect(memory_config("one", add)) as servers:
        unknown, wrong = servers.call("ad"), servers.call("add", a="x")
    assert (unknown.is_error, unknown.text) == (True, "there is no tool named 'ad'; did you mean 'add'?")
    assert wrong.is_error
    assert servers.call("add", a=1, b=2).text == "the server 'one', calling 'add': the connection is not open"


def test_a_required_server_that_is_not_there_is_raised_where_it_is_connected_to() -> None:
    with pytest.raises(ServerUnavailableError, match="command not found:"):
        bridge.connect(ServerConfig(name="gone", transport=NOWHERE, required=True))


def test_many_threads_call_at_once() -> None:
    with bridge.connect(memory_config("one", add)) as servers, ThreadPoolExecutor(8) as threads:
        results = threads.map(lambda n: servers.call("add", a=n, b=n).text, range(64))
        assert list(results) == [str(2 * n) for n in range(64)]


def test_servers_are_added_removed_and_listed_again() -> None:
    foreign = ForeignServer("f")
    with bridge.connect([]) as servers:
        servers.add([memory_config("one", add), foreign.config()])
        foreign.names.append("g")
        servers.refresh()
        assert [each.name for each in servers.tools] == ["one_add", "foreign_f", "foreign_g"]
        servers.remove("one")
        assert [each.name for each in servers.tools] == ["f", "g"]
        assert [each.name for each in servers.list_resources("foreign")] == ["a", "b"]
        assert servers.read_resource("file:///a.txt")[0].inline() == bridge.Text("inside")


def test_what_a_server_asks_is_answered_by_the_handlers_that_were_given() -> None:
    @tool
    async def order(context: InvocationContext) -> str:
        """Ask for a dish."""
        form = {"type": "object", "properties": {"dish": {"type": "string"}}}
        answer = await context.elicit("What would you like?", form, key="dish")
        return str(answer.content and answer.content["dish"])

    async def fill_in(question: Any, context: InvocationContext) -> ElicitationAnswer:
        assert isinstance(question, Elicitation)
        return ElicitationAnswer("accept", {"dish": "soup"})

    handlers = ClientHandlers(elicitation=fill_in)
    with bridge.connect(memory_config("one", order), handlers=handlers) as servers:
        assert servers.call("order").text == "soup"


def test_closing_again_does_nothing() -> None:
    servers = bridge.connect(memory_config("one", add))
    servers.close()
    servers.close()


@pytest.mark.anyio
async def test_it_can_be_used_in_a_worker_thread_of_an_event_loop_and_outlives_it() -> None:
    servers = await anyio.to_thread.run_sync(bridge.connect, memory_config("one", add))
    assert (await anyio.to_thread.run_sync(lambda: servers.call("add", a=1, b=2))).text == "3"
    with anyio.from_thread.start_blocking_portal() as other:
        assert other.call(anyio.to_thread.run_sync, lambda: servers.call("add", a=2, b=2)).text == "4"
    await anyio.to_thread.run_sync(servers.close)


def test_in_the_thread_that_would_have_to_answer_it_says_so() -> None:
    with bridge.connect(memory_config("one", add)) as servers:

        async def call() -> None:
            servers.call("add", a=1, b=2)

        with pytest.raises(RuntimeError, match="use its asynchronous form"):
            portal.run_in_portal(call)


def test_a_program_that_closes_nothing_ends_with_its_servers(file: Path, tmp_path: Path) -> None:
    program = f"import bridge; print(bridge.connect({str(file)!r}).call('add', a=1, b=2).text)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


FORKED = """
import os, sys
from bridge import ServerConfig, StdioTransport, connect

transport = StdioTransport(sys.executable, args=("-m", "bridge", "serve", sys.argv[1]))
with connect([ServerConfig(name="served", transport=transport)]) as servers:
    child = os.fork()
    if child == 0:
        try:
            servers.call("add", a=1, b=2)
        except RuntimeError as error:
            print(error, flush=True)
            servers.close()
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print(servers.call("add", a=1, b=2).text)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_is_told_to_connect_by_itself() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, "tests/client/served.py:TOOLS"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    said, result = done.stdout.splitlines()
    assert (said.partition(": ")[2], result) == ("call connect() in each process after the fork", "3"), done.stderr


def test_resources_and_prompts_are_used_without_an_event_loop() -> None:
    changed = threading.Event()
    with (
        serving("-m", "bridge", "serve", SERVED_FEATURES, "--transport", "http", "--port", "0") as server,
        bridge.connect(f"{server.origin}/mcp") as servers,
    ):
        assert "titles" in {each.name for each in servers.list_resources()}
        assert servers.read_resource("notes://milk")[0].inline() == bridge.Text("2 litres")
        assert servers.complete_resource("notes://{title}{?style}", "title", "mi").values == ("milk",)
        assert "review" in {each.name for each in servers.list_prompts()}
        assert servers.render_prompt("review", {"code": "x"})[0] == bridge.PromptMessage("Review this python: x")
        assert servers.complete_prompt("review", "language", "pe").values == ("perl",)
        stop = servers.watch_resource("notes://milk", lambda _: changed.set())
        servers.call("change", title="milk", text="2 litres")
        assert changed.wait(20)
        stop()
