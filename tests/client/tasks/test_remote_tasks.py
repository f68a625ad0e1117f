"""Calls that become tasks of a server: waited for, cancelled, answered, started and resumed."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.abc import SocketAttribute

from bridge import DefinitionError, InvocationContext, ServerConfig, StdioTransport
from bridge.client import ClientHandlers, HttpTransport, McpToolProvider, ReconnectPolicy
from bridge.errors import OutcomeUnknownError, ServerRefusedError, UnknownToolError
from bridge.tools import ElicitationAnswer
from tests.client.conftest import RemoteServer, forked
from tests.client.http_client import sent_by

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from anyio.abc import SocketStream

    from bridge.tools.questions import Elicitation, UrlElicitation
    from tests.client.reports import Reports

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

SERVED = "tests/client/tasks/served_tasks.py:TOOLS"
SOON = ReconnectPolicy(first_delay_seconds=0.01, max_delay_seconds=0.05)
ROUTES = ["http", "http by the client", "stdio"]


@pytest.fixture(scope="module")
def tasks_server() -> Iterator[RemoteServer]:
    server = RemoteServer(SERVED)
    anyio.run(server.start)
    yield server
    server.kill()


@pytest.fixture(params=ROUTES)
def config(request: pytest.FixtureRequest, tasks_server: RemoteServer) -> ServerConfig:
    """The server by each transport, over HTTP with own connections and without."""
    if request.param == "stdio":
        return ServerConfig(name="there", transport=forked("-m", "bridge", "serve", SERVED))
    return sent_by(http_config(tasks_server), own=request.param == "http")


def http_config(server: RemoteServer, **settings: Any) -> ServerConfig:
    return ServerConfig(name="there", transport=HttpTransport(server.url), **settings)


@asynccontextmanager
async def provided(config: ServerConfig, **options: Any) -> AsyncIterator[McpToolProvider]:
    async with McpToolProvider([config], reconnect=SOON, **options) as provider:
        yield provider


async def by_name(question: Elicitation | UrlElicitation, _context: InvocationContext) -> ElicitationAnswer:
    return ElicitationAnswer("accept", {"name": "Ada" if "first" in question.message else "Lovelace"})


class Progress:
    """Progress of a call."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, float | None, str | None]] = []
        self.came = anyio.Event()

    async def report(self, *report: Any) -> None:
        self.reports.append(report)
        self.came.set()

    @property
    def context(self) -> InvocationContext:
        return InvocationContext().fork(self.report)


class Gate:
    """Lets functions of a server wait for the test."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._is_open = anyio.Event()

    def open(self) -> None:
        """Release all of them."""
        self._is_open.set()

    async def hold(self, stream: SocketStream) -> None:
        """Let one function wait."""
        async with stream:
            await self._is_open.wait()
            with suppress(anyio.BrokenResourceError):  # of a server that was killed
                await stream.send(b"here")


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        gate = Gate(listener.extra(SocketAttribute.local_port))
        tasks.start_soon(listener.serve, gate.hold)
        yield gate
        tasks.cancel_scope.cancel()


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_a_call_returns_the_result_of_its_task(config: ServerConfig) -> None:
    async with provided(config) as provider:
        assert (await provider.call("add", a=1, b=2)).structured_content == {"result": 3}
        assert (await provider.call("add_directly", a=1, b=2)).structured_content == {"result": 3}
        failed = await provider.call("fail")
        assert (failed.is_error, failed.text) == (True, "it failed")
        crashed = await provider.call("crash")
        assert crashed.is_error
        assert "the server's log says why (-32603)" in crashed.text


async def test_the_status_message_is_the_progress_of_the_call(config: ServerConfig, gate: Gate) -> None:
    progress = Progress()
    results: list[str] = []

    async with provided(config) as provider, anyio.create_task_group() as calls:

        async def call() -> None:
            results.append((await provider.call("wait_for", port=gate.port, context=progress.context)).text)

        calls.start_soon(call)
        await progress.came.wait()
        gate.open()
    assert results == ["here"]
    assert progress.reports == [(1, None, "waiting")]


async def test_cancelling_the_call_cancels_the_task(config: ServerConfig, reports: Reports) -> None:
    progress = Progress()
    async with provided(config) as provider:
        async with anyio.create_task_group() as calls:
            calls.start_soon(partial(provider.call, "hold", port=reports.port, context=progress.context))
            await progress.came.wait()  # so the client knows the task
            calls.cancel_scope.cancel()
        await reports.wait_for("cancelled")


async def test_a_call_without_an_answer_for_too_long_cancels_its_task(
    tasks_server: RemoteServer, reports: Reports
) -> None:
    async with provided(http_config(tasks_server, max_call_seconds=1.5)) as provider:
        result = await provider.call("hold", port=reports.port)
    assert result.is_error
    assert "no answer within 1.5 seconds" in result.text
    assert "it was cancelled" in result.text
    await reports.wait_for("cancelled")


async def test_answers_about_a_task_restart_the_limit_without_progress(
    tasks_server: RemoteServer, reports: Reports
) -> None:
    async with provided(http_config(tasks_server, timeout_seconds=0.3, max_call_seconds=0.9)) as provider:
        result = await provider.call("hold", port=reports.port)
    assert "no answer within 0.9 seconds" in result.text


async def test_questions_of_a_task_are_answered_by_the_handlers(config: ServerConfig) -> None:
    async with provided(config, handlers=ClientHandlers(elicitation=by_name)) as provider:
        assert (await provider.call("greet")).text == "Ada Lovelace"


async def test_a_question_that_nobody_can_answer_ends_the_call_and_its_task(tasks_server: RemoteServer) -> None:
    async def refuses(_question: object, _context: object) -> ElicitationAnswer:
        raise ValueError

    async with provided(http_config(tasks_server), handlers=ClientHandlers(elicitation=refuses)) as provider:
        result = await provider.call("greet")
    assert result.is_error
    assert "it requests input that cannot be provided: the handler of the request failed" in result.text


# --- restarts --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def lasting(tmp_path: Path) -> AsyncIterator[RemoteServer]:
    """A server whose tasks outlive it."""
    server = RemoteServer(SERVED, "--task-store", str(tmp_path / "tasks.db"))
    await server.start()
    yield server
    server.kill()


@pytest.mark.parametrize("own", [True, False])
async def test_a_call_goes_on_through_a_restart_of_the_server(lasting: RemoteServer, gate: Gate, *, own: bool) -> None:
    results, progress = [], Progress()
    async with provided(sent_by(http_config(lasting), own=own)) as provider, anyio.create_task_group() as calls:

        async def call() -> None:
            results.append((await provider.call("wait_again", port=gate.port, context=progress.context)).text)

        calls.start_soon(call)
        await progress.came.wait()  # so the client knows the task
        lasting.kill()
        await lasting.start()
        gate.open()
    assert results == ["here"]


async def test_a_task_that_the_restarted_server_does_not_know_has_an_unknown_outcome(reports: Reports) -> None:
    server = RemoteServer(SERVED)
    await server.start()
    results, progress = [], Progress()
    try:
        async with provided(http_config(server)) as provider, anyio.create_task_group() as calls:

            async def call() -> None:
                results.append(await provider.call("hold", port=reports.port, context=progress.context))

            calls.start_soon(call)
            await progress.came.wait()
            server.kill()
            await server.start()
    finally:
        server.kill()
    assert results[0].is_error
    assert "there is no task" in results[0].text
    assert "the outcome is unknown" in results[0].text


async def test_an_unfinished_task_of_a_function_that_may_not_run_twice_says_so_after_a_restart(
    lasting: RemoteServer, reports: Reports
) -> None:
    async with provided(http_config(lasting)) as provider:
        task = await provider.start("hold", port=reports.port)
        await reports.wait_for("started")
        lasting.kill()
        await lasting.start()
        with pytest.raises(ServerRefusedError, match="its outcome is unknown"):
            await task.result()


# --- tasks that are started ------------------------------------------------------------------------------------------


async def test_a_started_task_is_taken_up_by_another_provider_from_its_text(
    config: ServerConfig, tasks_server: RemoteServer, gate: Gate
) -> None:
    async with provided(config) as provider:
        task = await provider.start("wait_for", port=gate.port)
        assert str(task) == f"task:there/wait_for/{task.id}"
        assert (await task.status()).status == "working"
        if isinstance(config.transport, StdioTransport):  # which has the tasks of this process
            gate.open()
            assert (await provider.task(str(task)).result()).text == "here"
            return
    async with provided(http_config(tasks_server)) as provider:
        again = provider.task(str(task))
        with anyio.move_on_after(0.05):
            await again.result()
        assert (await again.status()).status == "working"
        gate.open()
        assert (await again.result()).text == "here"


async def test_a_started_task_is_cancelled(config: ServerConfig, reports: Reports) -> None:
    async with provided(config) as provider:
        task = await provider.start("hold", port=reports.port)
        await reports.wait_for("started")
        await task.cancel()
        await reports.wait_for("cancelled")
        with pytest.raises(OutcomeUnknownError, match="the task was cancelled"):
            await task.result()
        assert (await task.status()).status == "cancelled"
        await task.cancel()


async def test_questions_of_a_started_task_are_answered_by_the_program(config: ServerConfig) -> None:
    handlers = ClientHandlers(elicitation=by_name)
    async with provided(config, handlers=handlers) as provider:
        task = await provider.start("greet")
        state = await task.status()
        assert list(state.questions) == ["first"]
        assert state.questions["first"]["params"]["message"] == "Your first name?"
        await task.answer({"first": ElicitationAnswer("accept", {"name": "Grace"})})
        assert (await task.result()).text == "Grace Lovelace"


async def test_a_call_that_is_answered_directly_is_a_task_that_has_ended(config: ServerConfig) -> None:
    async with provided(config) as provider:
        task = await provider.start("add_directly", a=1, b=2)
        assert (await task.result()).structured_content == {"result": 3}
        assert (await task.status()).status == "completed"
        await task.cancel()
        assert str(task) == "task:there/add_directly/"
        with pytest.raises(OutcomeUnknownError, match="has answered this call directly"):
            await provider.task(str(task)).result()


async def test_texts_and_tools_that_are_no_tasks_are_refused(tasks_server: RemoteServer) -> None:
    async with provided(http_config(tasks_server), resources=True) as provider:
        with pytest.raises(DefinitionError, match="is not the text of a task"):
            provider.task("there/add")
        with pytest.raises(DefinitionError, match="the task is one of the server 'elsewhere', which is not here"):
            provider.task("task:elsewhere/add/x")
        with pytest.raises(OutcomeUnknownError, match="there is no task 'x'"):
            await provider.task("task:there/add/x").status()
        with pytest.raises(UnknownToolError):
            await provider.start("ad")
        with pytest.raises(DefinitionError, match="cannot be started: call it"):
            await provider.start("list_resources")
        assert (await (await provider.start("add", a=1)).result()).is_error
