"""Tasks of servers in programs without an event loop, and for models that do not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio
import pytest

import bridge
from bridge import DefinitionError, McpToolProvider, ai_service
from bridge.client import ClientHandlers, DetachedTools
from bridge.testing import ScriptedChatModel
from bridge.tools import ElicitationAnswer
from bridge.tools.tool import ToolExecutionRequest
from tests.client.conftest import RemoteServer
from tests.client.tasks.test_remote_tasks import SERVED, by_name, http_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge import ChatRequest


@pytest.fixture(scope="module")
def server() -> Iterator[RemoteServer]:
    server = RemoteServer(SERVED)
    anyio.run(server.start)
    yield server
    server.kill()


def test_a_blocking_program_starts_tasks_and_takes_them_up(server: RemoteServer) -> None:
    with bridge.connect(http_config(server), handlers=ClientHandlers(elicitation=by_name)) as servers:
        assert servers.call("add", a=1, b=2).text == "3"
        task = servers.start("greet")
        assert (task.server, task.tool) == ("there", "greet")
        assert list(task.status().questions) == ["first"]
        task.answer({"first": ElicitationAnswer("accept", {"name": "Grace"})})
        again = servers.task(str(task))
        assert (again.result().text, again.id) == ("Grace Lovelace", task.id)
        task.cancel()
        assert task.status().status == "completed"
        with pytest.raises(DefinitionError):
            servers.task("nonsense")


class Assistant(Protocol):
    """Answers."""

    async def ask(self, message: str) -> str: ...


@pytest.mark.anyio
@pytest.mark.usefixtures("deadline")
@pytest.mark.parametrize("wait_seconds", [0, 30])
async def test_a_model_is_given_the_task_and_looks_at_it(server: RemoteServer, wait_seconds: int) -> None:
    seen: list[str] = []

    def replies(request: ChatRequest) -> ToolExecutionRequest | str:
        if len(request.messages) == 1:
            return ToolExecutionRequest("greet", {}, "1")
        seen.append(str(request.messages[-1].text))
        if len(request.messages) == 3:
            arguments = {"task": seen[0].split()[-1], "wait_seconds": wait_seconds}
            return ToolExecutionRequest("look_at_task", arguments, "2")
        return "done"

    handlers = ClientHandlers(elicitation=by_name)
    async with McpToolProvider([http_config(server)], handlers=handlers) as provider:
        service = ai_service(Assistant, chat_model=ScriptedChatModel(replies), tools=[DetachedTools(provider)])
        assert await service.ask("greet") == "done"
    assert seen[0].startswith("The call goes on as the task task:there/greet/")
    assert seen[1] == ("Ada Lovelace" if wait_seconds else "input_required: Your first name?")


@pytest.mark.anyio
@pytest.mark.usefixtures("deadline")
async def test_a_model_that_looks_at_no_task_is_told_so(server: RemoteServer) -> None:
    async with McpToolProvider([http_config(server)]) as provider:
        tools = bridge.ToolBox(await DetachedTools(provider).provide_tools(None))  # type: ignore[arg-type]  # unused
        for text, problem in {"x": "is not the text of a task", "task:there/add/x": "there is no task 'x'"}.items():
            result = await tools.call("look_at_task", task=text)
            assert result.is_error
            assert problem in result.text
        direct = await tools.call("add_directly", a=1, b=2)
        assert direct.structured_content == {"result": 3}
        failing = (await tools.call("fail")).text
        assert failing is not None
        failed = await tools.call("look_at_task", task=failing.split()[-1], wait_seconds=30)
        assert (failed.is_error, failed.text) == (True, "it failed")
