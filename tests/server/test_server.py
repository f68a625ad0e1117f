from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, TextContent

from bridge.errors import ToolError
from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.server.auth.access import Access, ToolScopes
from bridge.server.observed import dispatch_of
from bridge.server.server import Server
from bridge.tools.context import InvocationContext
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.specification import ToolAnnotations
from bridge.tools.tool import ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from tests.server.memory import memory
from tests.server.tools import ADD, Waiting, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp_types import CallToolResult

    from bridge.tools.tool import Tool

MODES = ["legacy", "auto"]
DEADLINE_SECONDS = 60
SECRET = "the password is swordfish"

pytestmark = pytest.mark.anyio


async def call(server: Server, mode: Any, name: str, arguments: dict[str, Any] | None = None) -> CallToolResult:
    async with Client(memory(server), mode=mode) as client:
        try:
            return await client.call_tool(name, arguments or {})
        except MCPError as error:
            # Raised out of the client's task group, which would wrap it.
            refusal = error
    raise refusal


def published(*tools: Tool, **options: Any) -> Server:
    return Server(ToolBox(*tools), name="tests", **options)


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def raising(error: BaseException) -> Tool:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        raise error

    return made("fail", body)


def returning(result: ToolExecutionResult) -> Tool:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        return result

    return made("give", body)


@pytest.mark.parametrize("mode", MODES)
class TestInBothEras:
    async def test_a_server_says_who_it_is_and_what_it_can_do(self, mode: Any) -> None:
        server = published(ADD, version="1.2", title="The tests", instructions="Count on it.")
        async with Client(memory(server), mode=mode) as client:
            assert client.server_info is not None
            said = client.server_info.model_dump(by_alias=True, exclude_none=True)
            assert said == server.implementation == {"name": "tests", "version": "1.2", "title": "The tests"}
            capabilities = client.server_capabilities.model_dump(by_alias=True, exclude_none=True)
            assert capabilities == server.capabilities
            assert client.instructions == "Count on it."

    async def test_a_tool_is_listed_as_it_is(self, mode: Any) -> None:
        schema = {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"type": ["string", "null"], "default": None}},
            "if": {"required": ["x"]},
            "then": {"minProperties": 1},
        }
        output = {"type": "object", "properties": {"y": {"const": 1}}}
        tool = made(
            "whole",
            raising(ToolError("")).executor.execute,  # type: ignore[arg-type]  # never called
            title="Whole",
            parameters=schema,
            output_schema=output,
            annotations=ToolAnnotations(read_only=True, open_world=False),
            metadata={"team": "blue"},
            icons=({"src": "https://example.com/i.png"},),
        )
        async with Client(memory(published(tool)), mode=mode) as client:
            (listed,) = (await client.list_tools()).tools
        assert listed.model_dump(by_alias=True, exclude_none=True) == {
            "name": "whole",
            "title": "Whole",
            "description": "The tool whole.",
            "inputSchema": schema,
            "outputSchema": output,
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
            "_meta": {"team": "blue"},
            "icons": [{"src": "https://example.com/i.png"}],
        }

    async def test_a_list_comes_in_pages_where_a_size_is_given(self, mode: Any) -> None:
        server = published(*[made(f"t{number}", ADD.executor) for number in range(5)], page_size=2)  # type: ignore[arg-type]  # never called
        async with Client(memory(server), mode=mode) as client:
            found, cursor = [], None
            while True:
                page = await client.list_tools(cursor=cursor)
                found.append([tool.name for tool in page.tools])
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert found == [["t0", "t1"], ["t2", "t3"], ["t4"]]
            with pytest.raises(MCPError) as refused:
                await client.list_tools(cursor="nonsense")
        assert refused.value.code == INVALID_PARAMS

    async def test_a_call_gets_its_result(self, mode: Any) -> None:
        result = await call(published(ADD), mode, "add", {"a": 1, "b": 2})
        assert text(result) == "3"
        assert not result.is_error

    async def test_an_unknown_tool_is_an_error_of_the_protocol(self, mode: Any) -> None:
        with pytest.raises(MCPError) as refused:
            await call(published(ADD), mode, "ad")
        assert refused.value.code == INVALID_PARAMS
        assert refused.value.message == "there is no tool named 'ad'; did you mean 'add'?"

    async def test_an_authors_own_error_reaches_the_caller(self, mode: Any) -> None:
        result = await call(published(raising(ToolError("try again at noon"))), mode, "fail")
        assert result.is_error
        assert text(result) == "try again at noon"

    @pytest.mark.parametrize("error", [ValueError(SECRET), SystemExit(SECRET)])
    @pytest.mark.parametrize("propagate", [True, False])
    async def test_no_other_text_of_an_exception_does(
        self, mode: Any, error: BaseException, propagate: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = published(raising(error), policy=ExecutionPolicy(propagate=propagate, reveal_errors=True))
        try:
            said = str(await call(server, mode, "fail"))
        except MCPError as answer:
            said = str(answer.error)
        assert SECRET not in said
        assert isinstance(error, SystemExit) or SECRET in caplog.text

    async def test_an_exception_that_propagates_is_an_internal_error(self, mode: Any) -> None:
        server = published(raising(ValueError(SECRET)), policy=ExecutionPolicy(propagate=True))
        with pytest.raises(MCPError) as answer:
            await call(server, mode, "fail")
        assert answer.value.code == INTERNAL_ERROR
        assert SECRET not in str(answer.value.error)

    async def test_so_is_what_a_callback_raises(self, mode: Any) -> None:
        def veto(*_: Any) -> None:
            raise ToolError(SECRET)

        with pytest.raises(MCPError) as answer:
            await call(published(ADD, policy=ExecutionPolicy(before=(veto,))), mode, "add", {"a": 1, "b": 2})
        assert answer.value.code == INTERNAL_ERROR
        assert SECRET not in str(answer.value.error)

    @pytest.mark.parametrize("content", [{"x": object()}, {"x": "\ud800"}])
    async def test_a_result_that_cannot_be_written_is_a_failure_of_its_tool(self, mode: Any, content: Any) -> None:
        result = await call(published(returning(ToolExecutionResult((), content))), mode, "give")
        assert result.is_error
        assert text(result) == "the tool 'give' failed; its server's log says why"

    async def test_structured_content_arrives_with_its_nulls(self, mode: Any) -> None:
        content = {"a": None, "b": {"c": [None, 1]}}
        result = await call(published(returning(ToolExecutionResult((), content, metadata={"k": 1}))), mode, "give")
        assert result.structured_content == content
        assert result.meta is not None
        assert result.meta["k"] == 1

    async def test_a_call_that_takes_too_long_is_a_result(self, mode: Any) -> None:
        waiting = Waiting()
        result = await call(published(waiting.tool, policy=ExecutionPolicy(timeout_seconds=0.01)), mode, "wait")
        assert result.is_error
        assert text(result) == "'wait' did not finish within 0.01 seconds"
        assert waiting.cancelled.is_set()

    async def test_a_tool_sees_what_its_client_can_do(self, mode: Any) -> None:
        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            return dict(context.client_capabilities), dict(context.headers), context.caller, context.memory_id

        assert text(await call(published(made("look", body)), mode, "look")) == "({}, {}, None, None)"

    async def test_a_publisher_may_say_which_memory_a_call_belongs_to(self, mode: Any) -> None:
        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            return context.memory_id

        def memory_id_of(context: InvocationContext) -> Any:
            return f"after {context.memory_id}"

        server = published(made("look", body), memory_id_of=memory_id_of)
        assert text(await call(server, mode, "look")) == "after None"

    async def test_a_cancelled_call_is_cancelled(self, mode: Any) -> None:
        waiting = Waiting()
        async with Client(memory(published(waiting.tool)), mode=mode) as client:
            with anyio.fail_after(DEADLINE_SECONDS):
                async with anyio.create_task_group() as group:
                    group.start_soon(client.call_tool, "wait")
                    await waiting.started.wait()
                    group.cancel_scope.cancel()
                await waiting.cancelled.wait()


async def test_structured_content_of_no_object_is_kept_from_the_handshake_era() -> None:
    server = published(returning(ToolExecutionResult((), [1])))
    assert (await call(server, "auto", "give")).structured_content == [1]
    assert (await call(server, "legacy", "give")).structured_content is None


async def test_names_of_no_tools_are_not_kept_with_what_tools_ask_for() -> None:
    scopes = ToolScopes({"*": ["read"]})
    server = published(returning(ToolExecutionResult(())))
    with pytest.raises(ProtocolError, match="no tool named 'nothing'"):
        await server.call("nothing", {}, InvocationContext(), len, modern=True, access=Access(tool_scopes=scopes))
    with pytest.raises(ProtocolError, match="needs a scope"):
        await server.call("give", {}, InvocationContext(), len, modern=True, access=Access(tool_scopes=scopes))
    assert scopes.of.cache_info().currsize == 1


def test_making_a_publisher_does_not_import_the_sdk() -> None:
    program = (
        "import sys\n"
        "from bridge.server import Server\n"
        "from bridge.tools.toolbox import ToolBox\n"
        "server = Server(ToolBox(), name='n')\n"
        "server.catalog.page(modern=True), server.implementation, server.capabilities\n"
        "heavy = {'mcp', 'mcp_types', 'starlette', 'uvicorn'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_SECONDS)


def test_keys_that_are_too_short_are_refused() -> None:
    with pytest.raises(ValueError, match="has 5 bytes, and needs 32"):
        dispatch_of(published(ADD, state_keys=[b"short"]))


async def test_an_answer_refused_inside_a_task_group_is_the_clients_fault(caplog: pytest.LogCaptureFixture) -> None:
    refusals = [CallRefused(ProtocolError(-32602, f"a malformed answer {number}")) for number in (1, 2)]
    group = BaseExceptionGroup("tasks", [refusals[0], BaseExceptionGroup("more", [refusals[1]])])
    with pytest.raises(ProtocolError, match="a malformed answer 1"):
        await published(raising(group)).call("fail", {}, InvocationContext(), dict, modern=True)
    assert caplog.records == []


class Panic(BaseException):
    """BaseException of a library, which is not meant to be caught."""


@pytest.mark.parametrize("mode", MODES)
async def test_a_panic_of_a_tool_ends_its_call_and_nothing_else(mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = published(raising(Panic(SECRET)), ADD)
    async with Client(memory(server), mode=mode) as client:
        with pytest.raises(MCPError, match=r"^the request for 'fail' failed; the server's log says why$"):
            await client.call_tool("fail", {})
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert SECRET in caplog.text


@pytest.mark.parametrize("mode", MODES)
async def test_once_a_drain_has_ended_the_calls_no_further_one_is_run(mode: str) -> None:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        raise AssertionError("it was run")

    server = published(made("run", body))
    server.running.end()
    with pytest.raises(MCPError, match="the server ends: 'run' was not run; call it again in 1 second") as refused:
        await call(server, mode, "run")
    assert (refused.value.code, refused.value.data) == (-32005, {"retryAfterSeconds": 1})
