"""Clients of a server with tool search list two tools, and find and call the others, over every transport."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp_types import ElicitResult, TextContent

from bridge import ToolBox, ToolSpecification, tool, tools_from
from bridge.errors import DefinitionError, NameClashError
from bridge.server import Server, ServerToolSearch, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.limits import Limits, Rate
from bridge.server.results.costs import costs
from bridge.telemetry.current import enabled
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.tool import Tool
from tests.server import http_server as http
from tests.server.auth.guarded import talking
from tests.server.memory import memory
from tests.server.tasks.client import TaskClient
from tests.server.test_observed import Watched
from tests.server.tools import ADD, GREET, made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from mcp.client import ClientRequestContext
    from mcp_types import CallToolResult, ElicitRequestParams

    from bridge.tools.calls import ToolExecutionRequest
    from bridge.tools.context import InvocationContext

pytestmark = pytest.mark.anyio

OWN = ["search_tools", "call_tool"]
DEADLINE_SECONDS = 60
SEARCH = ServerToolSearch()


@tool(annotations={"destructiveHint": True})
async def delete_invoice(number: int, reason: str = "") -> dict[str, int]:
    """Delete an invoice.

    Args:
        number: Its number.
        reason: A reason for the books.
    """
    return {"deleted": number}


@tool
async def list_invoices() -> list[str]:
    """List all invoices."""
    return ["1", "2"]


@tool(always_visible=True)
async def whoami() -> str:
    """Tell who calls."""
    return "you"


LOADED = Tool(
    ToolSpecification(name="loaded", description="Is always there.", metadata={"anthropic/alwaysLoad": True}),
    lambda request, context: "here",
)
BOX = (delete_invoice, list_invoices, whoami, LOADED, GREET, ADD)


def server_of(*tools: object, search: ServerToolSearch = SEARCH, **options: Any) -> Server:
    return Server(ToolBox(*tools), name="tests", tool_search=search, **options)


@pytest.fixture(params=["memory legacy", "memory auto", "http legacy", "http auto", "sse legacy", "stateless legacy"])
def connecting(request: pytest.FixtureRequest, serving: Callable[..., str]) -> Callable[..., Any]:
    """Connect a client to a server over one of the transports, in one of the eras."""
    transport, mode = request.param.split()

    @asynccontextmanager
    async def connect(server: Server, **options: Any) -> AsyncIterator[Client]:
        to: Any = memory(server)
        if transport != "memory":
            is_stateless = transport == "stateless"
            origin = serving(http_app(server, stateless=is_stateless, sse=not is_stateless))
            to = sse_client(f"{origin}/sse") if transport == "sse" else f"{origin}/mcp"
        async with Client(to, mode=mode, **options) as client:
            yield client

    return connect


async def listed(client: Client) -> list[str]:
    return [each.name for each in (await client.list_tools()).tools]


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def found(client: Client, query: str, **options: Any) -> list[dict[str, Any]]:
    result = await client.call_tool("search_tools", {"query": query, **options})
    assert not result.is_error
    names: list[dict[str, Any]] = json.loads(text_of(result))
    return names


async def names_found(client: Client, query: str) -> list[str]:
    return [each["name"] for each in await found(client, query, detail="name")]


async def test_two_tools_are_listed_beside_those_that_are_pinned(connecting: Callable[..., Any]) -> None:
    async with connecting(server_of(*BOX, search=ServerToolSearch(always=("gr*",)))) as client:
        assert await listed(client) == [*OWN, "whoami", "loaded", "greet"]


async def test_a_tool_that_is_not_listed_is_not_found_either() -> None:
    hidden = replace(tools_from(delete_invoice)[0], listed=False)
    async with Client(memory(server_of(hidden, list_invoices))) as client:
        assert await names_found(client, "delete an invoice") == ["list_invoices"]
        assert (await client.call_tool("delete_invoice", {"number": 5})).structured_content == {"deleted": 5}


async def test_a_tool_is_found_and_called_as_if_directly(connecting: Callable[..., Any]) -> None:
    async with connecting(server_of(*BOX)) as client:
        (first, *_) = await found(client, "get rid of an invoice")
        assert first["name"] == "delete_invoice"
        assert first["description"] == "Delete an invoice."
        assert first["inputSchema"]["properties"]["number"]["type"] == "integer"
        assert first["annotations"] == {"destructiveHint": True}
        through = await client.call_tool("call_tool", {"name": "delete_invoice", "arguments": {"number": 5}})
        assert through == await client.call_tool("delete_invoice", {"number": 5})
        assert through.structured_content == {"deleted": 5}


@pytest.mark.parametrize("arguments", [{}, {"number": "five"}, {"number": 1, "dryRun": True}])
async def test_arguments_are_validated_as_those_of_a_direct_call(
    connecting: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    async with connecting(server_of(*BOX)) as client:
        through = await client.call_tool("call_tool", {"name": "delete_invoice", "arguments": arguments})
        assert through.is_error
        assert through == await client.call_tool("delete_invoice", arguments)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"name": "list_invoices"}, "1"),
        ({"name": "delete_invoice", "arguments": '{"number": 7}'}, '{"deleted":7}'),
        ({"name": "delete_invoices"}, "there is no tool 'delete_invoices'; did you mean 'delete_invoice'?"),
        ({"name": "zzz"}, "there is no tool 'zzz'; search_tools finds tools"),
        ({"name": "call_tool", "arguments": {"name": "whoami"}}, "there is no tool 'call_tool'"),
        ({"name": "delete_invoice", "arguments": "{"}, "arguments"),
        ({"name": "delete_invoice", "arguments": [7]}, "arguments"),
        ({"name": 5}, "5"),
        ({}, "name"),
    ],
)
async def test_what_a_call_may_name(arguments: dict[str, Any], answer: str) -> None:
    async with Client(memory(server_of(*BOX))) as client:
        result = await client.call_tool("call_tool", arguments)
        assert isinstance(result.content[0], TextContent)
        assert answer in result.content[0].text


async def test_a_search_returns_the_asked_number_and_detail() -> None:
    async with Client(memory(server_of(*BOX))) as client:
        assert await found(client, "list invoices", limit=1, detail="name") == [{"name": "list_invoices"}]
        assert [set(each) for each in await found(client, "invoices", detail="description")] == [
            {"name", "description"},
            {"name", "description"},
        ]
        result = await client.call_tool("search_tools", {"query": "zebra"})
        assert text_of(result) == "no tool fits 'zebra'; use other words"
        assert (await client.call_tool("search_tools", {"query": "x", "limit": 0})).is_error


async def test_changes_are_found_at_once_and_the_list_stays(connecting: Callable[..., Any]) -> None:
    tools = ToolBox(ADD)
    server = Server(tools, name="tests", tool_search=SEARCH)
    async with connecting(server) as client:
        assert await listed(client) == OWN
        tools.add(list_invoices)
        assert await names_found(client, "invoice") == ["list_invoices"]
        tools.replace([ADD])
        assert (await client.call_tool("search_tools", {"query": "invoice"})).content == [
            TextContent(type="text", text="no tool fits 'invoice'; use other words")
        ]
        assert await listed(client) == OWN


async def test_clients_are_notified_of_pinned_tools_alone() -> None:
    tools = ToolBox(ADD)
    async with Client(memory(Server(tools, name="tests", tool_search=SEARCH))) as client:
        async with client.listen(tools_list_changed=True) as subscription:
            tools.add(list_invoices)
            for _ in range(3):
                assert await listed(client) == OWN
            tools.add(whoami)
            with anyio.fail_after(DEADLINE_SECONDS):
                await anext(aiter(subscription))
            assert await listed(client) == [*OWN, "whoami"]
        async with client.listen(tools_list_changed=True) as subscription:
            tools.remove("list_invoices")
            with anyio.move_on_after(0.2) as waited:
                await anext(aiter(subscription))
            assert waited.cancelled_caught


async def test_short_lists_stay_whole_in_the_mode_auto() -> None:
    tools = ToolBox(list_invoices)
    search = ServerToolSearch(mode="auto", max_listed_tokens=200)
    async with Client(memory(Server(tools, name="tests", tool_search=search))) as client:
        assert await listed(client) == ["list_invoices"]
        async with client.listen(tools_list_changed=True) as subscription:
            tools.add(*(made(f"page_{number}", ADD.executor.execute) for number in range(20)))  # type: ignore[arg-type]
            with anyio.fail_after(DEADLINE_SECONDS):
                await anext(aiter(subscription))
        assert await listed(client) == OWN
        assert await names_found(client, "invoice") == ["list_invoices"]


async def test_questions_progress_and_the_rounds_of_both_eras_reach_the_client(connecting: Callable[..., Any]) -> None:
    async def work(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        await context.progress(1, 2)
        answer = await context.elicit("Who?", GREETED, key="name")
        await context.progress(2, 2)
        return f"{arguments['greeting']} {answer.content['name']}" if answer.content else ""

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    shown: list[float] = []

    async def show(progress: float, total: float | None, message: str | None) -> None:
        shown.append(progress)

    async with connecting(server_of(made("work", work)), elicitation_callback=answer) as client:
        arguments = {"name": "work", "arguments": {"greeting": "Hello"}}
        result = await client.call_tool("call_tool", arguments, progress_callback=show)
        if result.is_error:  # without a session, a client of the handshake era cannot be asked
            assert "cannot ask" in text_of(result)
            return
        assert text_of(result) == "Hello Ada"
        assert shown[-1] == 2


GREETED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


async def test_limits_of_a_tool_apply() -> None:
    limits = Limits(tool_rates={"list_*": Rate(1, 3600)}, tool_result_bytes={"add": 5})
    async with Client(memory(server_of(*BOX, limits=limits))) as client:
        call = {"name": "list_invoices"}
        assert not (await client.call_tool("call_tool", call)).is_error
        assert "again in" in text_of(await client.call_tool("call_tool", call))
        assert "may have 5" in text_of(
            await client.call_tool("call_tool", {"name": "add", "arguments": {"a": 1, "b": 2}})
        )
        assert (await client.call_tool("search_tools", {"query": "invoice"})).is_error is False


async def test_the_policy_sees_the_real_tool() -> None:
    seen: list[str] = []

    async def before(request: ToolExecutionRequest, context: InvocationContext) -> None:
        seen.append(request.name)

    async with Client(memory(server_of(*BOX, policy=ExecutionPolicy(before=(before,))))) as client:
        await client.call_tool("call_tool", {"name": "list_invoices"})
    assert seen == ["list_invoices"]


async def test_records_have_the_real_name() -> None:
    watched = Watched()
    with enabled(watched.observer):
        async with Client(memory(server_of(*BOX))) as client:
            await client.call_tool("call_tool", {"name": "delete_invoice", "arguments": {"number": 3}})
            await client.call_tool("call_tool", {"name": "nosuch", "arguments": {}})
    assert [(each["tool"], each["outcome"]) for each in watched.records] == [
        ("delete_invoice", "ok"),
        ("call_tool", "tool_error"),
    ]


async def test_definitions_that_are_not_listed_are_counted_as_saved() -> None:
    watched = Watched()
    with enabled(watched.observer):
        server = server_of(*BOX)
        async with Client(memory(server)) as client:
            await client.list_tools()
            await client.call_tool("search_tools", {"query": "invoice"})
    hidden = sum(each.specification.estimated_tokens for each in server.tools if each.name not in ("whoami", "loaded"))
    assert server.savings.of("search") == {"search_tools": hidden}
    assert costs(server)["estimatedTokensSaved"] == {"search": hidden}
    assert watched.observer.savings["tests", "search"]() == {"search_tools": hidden}


def test_calls_become_tasks(serving: Callable[..., str]) -> None:
    @tool(task=True)
    async def slow() -> str:
        """Take a while."""
        return "done"

    origin = serving(http_app(server_of(slow, ADD)))
    with TaskClient(origin) as client:
        result = client.send("tools/call", http.call("call_tool", {"name": "slow"})["params"])
        assert result["resultType"] == "task"


def test_callers_find_and_call_only_their_own(serving: Callable[..., str]) -> None:
    keys = ApiKeys(
        ApiKey("some", "key-of-ada-0123456789", tools=("list_*", "add"), scopes=frozenset()),
        ApiKey("all", "key-of-bob-0123456789", scopes=frozenset({"write"})),
        ApiKey("reads", "key-of-cyd-0123456789", scopes=frozenset()),
    )
    auth = Auth(keys, tool_scopes={"delete_*": ["write"]})
    origin = serving(http_app(server_of(*BOX), auth=auth))
    search = http.call("search_tools", {"query": "invoice", "detail": "name"})
    call = http.call("call_tool", {"name": "delete_invoice", "arguments": {"number": 1}})
    for kind in ("modern", "handshake", "sse"):
        seen = {}
        for key in ("ada", "bob", "cyd"):
            with talking(kind, origin, f"key-of-{key}-0123456789") as peer:
                answer = peer.ask(search)["result"]["content"][0]["text"]
                seen[key] = sorted(each["name"] for each in json.loads(answer))
                if key == "bob":
                    assert peer.ask(call)["result"]["structuredContent"] == {"deleted": 1}
                elif key == "ada":
                    assert "no tool 'delete_invoice'" in peer.ask(call)["result"]["content"][0]["text"]
                else:
                    assert peer.send(call).status_code == 403
        assert seen == {
            "ada": ["list_invoices"],
            "bob": ["delete_invoice", "list_invoices"],
            "cyd": ["list_invoices"],
        }


def test_headers_that_repeat_arguments_are_not_asked_for(serving: Callable[..., str]) -> None:
    parameters = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

    async def where(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        return str(arguments["region"])

    origin = serving(http_app(server_of(made("where", where, parameters=parameters))))
    with TaskClient(origin, capabilities={}) as client:
        assert client.call("where", region="eu")["code"] == -32020
        through = http.call("call_tool", {"name": "where", "arguments": {"region": "eu"}})
        assert client.send("tools/call", through["params"])["content"][0]["text"] == "eu"


async def test_embeddings_rank_and_words_do_where_they_fail(caplog: pytest.LogCaptureFixture) -> None:
    fails = False

    async def embed(texts: Sequence[str]) -> list[tuple[float, float]]:
        if fails:
            raise OSError("the endpoint is down")
        return [(1.0, 0.0) if "invoice" in text or text == "Rechnung" else (0.0, 1.0) for text in texts]

    async with Client(memory(server_of(*BOX, search=ServerToolSearch(embed=embed)))) as client:
        assert set((await names_found(client, "Rechnung"))[:2]) == {"delete_invoice", "list_invoices"}
        fails = True
        assert "list_invoices" in await names_found(client, "invoices")
    assert "ranked by words alone" in caplog.text


def test_a_tool_of_the_same_name_is_refused_and_later_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def own(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        return "own"

    with pytest.raises(NameClashError, match="search_tools"):
        server_of(ADD, made("search_tools", own))
    tools = ToolBox(ADD)
    server = Server(tools, name="tests", tool_search=SEARCH)
    tools.add(made("call_tool", own))
    assert "left out 'call_tool'" in caplog.text
    assert server.views.of().tools.get("call_tool").source != "a Tool made by hand"


@pytest.mark.parametrize(
    "options", [{"mode": "all"}, {"max_listed_tokens": 0}, {"always": "add"}, {"embed": "model"}, {"embed_query": 1}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        ServerToolSearch(**options)
