"""Scripts call tools as their caller would, in both eras, and nothing in them runs twice."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import ElicitResult

from bridge import InvocationContext, ToolBox, tool
from bridge.errors import DefinitionError, MissingExtraError
from bridge.server import CodeLimits, Server, ServerToolSearch, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.code import script as scripts
from bridge.server.limits import Limits, Rate
from bridge.server.results.costs import costs
from bridge.telemetry.current import enabled
from bridge.tools import Spill
from bridge.tools.execution import ExecutionPolicy
from tests.server import http_server as http
from tests.server.auth.guarded import talking
from tests.server.code.running import DEADLINE_SECONDS, failure, get_rate, run, server_of, texts_of
from tests.server.memory import memory
from tests.server.test_observed import Watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams

    from bridge.tools.calls import ToolExecutionRequest

pytestmark = pytest.mark.anyio


@tool
async def delete_invoice(number: int, reason: str = "") -> dict[str, int]:
    """Delete an invoice."""
    return {"deleted": number}


@tool
async def read_log(lines: int) -> str:
    """Read the log."""
    return "\n".join(f"line {number}" for number in range(lines))


class Ledger:
    """Tools that count what was done, and ask."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    @tool
    async def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        return f"paid {amount}"

    @tool
    async def confirm(self, amount: int, context: InvocationContext) -> bool:
        """Ask the user about a payment."""
        answer = await context.elicit(f"Pay {amount}?", bool)
        return bool(answer.data)


@pytest.fixture(params=["memory legacy", "memory auto", "http legacy", "http auto"])
def connecting(request: pytest.FixtureRequest, serving: Callable[..., str]) -> Callable[..., Any]:
    """Connect a client to a server over one of the transports, in one of the eras."""
    transport, mode = request.param.split()

    @asynccontextmanager
    async def connect(server: Server, **options: Any) -> AsyncIterator[Client]:
        to: Any = memory(server) if transport == "memory" else f"{serving(http_app(server))}/mcp"
        async with Client(to, mode=mode, **options) as client:
            yield client

    return connect


async def test_clients_list_two_tools_and_call_the_others_by_scripts(connecting: Callable[..., Any]) -> None:
    async with connecting(server_of(get_rate, delete_invoice)) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["search_tools", "run_code"]
        found = await client.call_tool("search_tools", {"query": "exchange rate", "limit": 1})
        (described,) = texts_of(found)
        assert described.startswith('async def get_rate(currency: str) -> float:\n    """Look up an exchange rate.\n\n')
        assert described.endswith('    currency: Code of the currency."""')
        code = 'import asyncio\na, b = await asyncio.gather(get_rate("USD"), get_rate(currency="CHF"))\nprint(a)\na + b'
        result = await client.call_tool("run_code", {"code": code})
        assert texts_of(result) == ["6.0", "printed:\n3.0\n"]


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(MissingExtraError, match=r"mcp-toolbridge\[code\]"):
        ServerToolSearch(mode="code")


@pytest.mark.parametrize("limit", ["max_seconds", "max_memory_bytes", "max_calls", "max_output_chars", "max_scripts"])
def test_limits_are_positive(limit: str) -> None:
    with pytest.raises(DefinitionError, match=limit):
        CodeLimits(**{limit: 0})


async def test_calls_of_a_script_run_together() -> None:
    both = anyio.Event()
    waiting = 0

    @tool
    async def meet() -> str:
        """Wait for another call."""
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            await both.wait()
        return "met"

    async with Client(memory(server_of(meet))) as client:
        assert await run(client, "import asyncio\nawait asyncio.gather(meet(), meet())") == '["met","met"]'


async def test_failures_are_exceptions_and_wrong_calls_are_found_before_anything_runs() -> None:
    ledger = Ledger()
    async with Client(memory(server_of(get_rate, ledger))) as client:
        caught = 'try:\n    await get_rate("dollars")\nexcept RuntimeError as error:\n    text = str(error)\ntext'
        assert await run(client, caught) == "there is no currency 'dollars'"
        uncaught = await failure(client, 'await pay(1)\nawait get_rate("dollars")')
        assert "its 2 calls of tools may have had effects" in uncaught
        assert "RuntimeError: there is no currency 'dollars'" in uncaught
        for wrong in ('await get_rate("CHF", 2)', "await get_rate(currency=5)", "await no_such()", "pay(2)", "1 +"):
            assert "was not run" in await failure(client, f"await pay(2)\n{wrong}") or wrong == "1 +"
        assert "no_such" in await failure(client, "eval('no_such(1)')")
        assert "1 validation" not in await failure(client, "await pay(**{'amount': 'x'})")
    assert ledger.paid == [1]


async def test_tools_are_called_under_their_own_names_for_the_policy_records_and_limits() -> None:
    seen: list[str] = []

    async def before(request: ToolExecutionRequest, context: InvocationContext) -> None:
        seen.append(request.name)

    limits = Limits(tool_rates={"get_*": Rate(1, 3600)})
    watched = Watched()
    with enabled(watched.observer):
        server = server_of(get_rate, delete_invoice, policy=ExecutionPolicy(before=(before,)), limits=limits)
        async with Client(memory(server)) as client:
            code = 'await delete_invoice(1)\nawait get_rate("USD")\nawait get_rate("USD")'
            assert "again in" in await failure(client, code)
    assert seen == ["run_code", "delete_invoice", "get_rate"]
    assert [(each["tool"], each["outcome"]) for each in watched.records] == [
        ("delete_invoice", "ok"),
        ("get_rate", "ok"),
        ("get_rate", "refused"),
        ("run_code", "tool_error"),
    ]
    spans = {name: (span.context.span_id, span.parent) for span in watched.finished for name in [span.name]}
    outer, _ = spans["tools/call run_code"]
    _, parent = spans["tools/call delete_invoice"]
    assert parent is not None
    assert parent.span_id == outer


def test_scripts_have_the_tools_and_scopes_of_their_caller(serving: Callable[..., str]) -> None:
    keys = ApiKeys(
        ApiKey("some", "key-of-ada-0123456789", tools=("get_*", "search_tools", "run_code"), scopes=frozenset()),
        ApiKey("all", "key-of-bob-0123456789", scopes=frozenset({"write"})),
        ApiKey("reads", "key-of-cyd-0123456789", scopes=frozenset()),
    )
    auth = Auth(keys, tool_scopes={"delete_*": ["write"]})
    origin = serving(http_app(server_of(get_rate, delete_invoice), auth=auth))
    call = http.call("run_code", {"code": "await delete_invoice(1)"})
    for kind in ("modern", "handshake", "sse"):
        seen = {}
        for key in ("ada", "bob", "cyd"):
            with talking(kind, origin, f"key-of-{key}-0123456789") as peer:
                seen[key] = peer.ask(call)["result"]["content"][0]["text"]
        assert seen["bob"] == '{"deleted":1}'
        assert "delete_invoice" in seen["ada"]
        assert "not run" in seen["ada"]
        assert "needs a scope" in seen["cyd"]


async def test_questions_reach_the_client_and_nothing_runs_twice(connecting: Callable[..., Any]) -> None:
    ledger = Ledger()
    asked: list[str] = []

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"value": True})

    code = """
import asyncio
print("begun")
await pay(1)
first, second, _ = await asyncio.gather(confirm(2), confirm(3), pay(4))
if first and second:
    await pay(5)
third = await confirm(6)
[first, second, third]
"""
    async with connecting(server_of(ledger), elicitation_callback=answer) as client:
        result = await client.call_tool("run_code", {"code": code})
        assert texts_of(result) == ["[true,true,true]", "printed:\nbegun\n"]
    assert ledger.paid == [1, 4, 5]
    assert sorted(asked) == ["Pay 2?", "Pay 3?", "Pay 6?"]


async def test_a_script_with_too_much_data_cannot_wait_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "MAX_STATE_CHARS", 100_000)

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        raise AssertionError("it is not asked")

    async with Client(memory(server_of(Ledger())), elicitation_callback=answer) as client:
        assert "too much data" in await failure(client, "x = 'a' * 200_000\nawait confirm(1)\nlen(x)")


async def test_progress_and_whole_results_reach_scripts() -> None:
    @tool
    async def work(steps: int, context: InvocationContext) -> str:
        """Work."""
        for step in range(steps):
            await context.progress(step + 1, steps)
        return "x" * 5000

    shown: list[tuple[float, str | None]] = []

    async def show(progress: float, total: float | None, message: str | None) -> None:
        shown.append((progress, message))

    policy = ExecutionPolicy(spill=Spill(chars=1000))
    server = server_of(work, read_log, policy=policy)
    async with Client(memory(server)) as client:
        code = "len(await work(2)) + len(await work(1))"
        assert await run(client, code, progress_callback=show) == "10000"
        assert "left out" in await run(client, "await read_log(500)")
    assert shown == [(1, "work: 1 of 2"), (2, "work: 2 of 2"), (3, "work: 1 of 1")]
    assert costs(server)["estimatedTokensSaved"]["code"] == server.savings.of("code")["run_code"] > 2000


async def test_calls_that_are_not_awaited_are_cancelled_and_named() -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        await anyio.sleep_forever()
        return ""

    async with Client(memory(server_of(wait))) as client:
        result = await client.call_tool("run_code", {"code": "held = [wait()]\n1"})
        assert texts_of(result) == [
            "1",
            "cancelled, since the script ended without awaiting them: wait",
        ]


async def test_changes_of_tools_apply_to_the_next_script() -> None:
    tools = ToolBox(get_rate)
    server = Server(tools, name="tests", tool_search=ServerToolSearch(mode="code"))
    async with Client(memory(server)) as client:
        assert "not run" in await failure(client, "await delete_invoice(1)")
        tools.add(delete_invoice)
        assert json.loads(await run(client, "await delete_invoice(1)")) == {"deleted": 1}
        with pytest.raises(MCPError):
            await client.call_tool("call_tool", {"name": "get_rate"})


async def test_a_tool_that_is_removed_while_it_asks_fails_its_call() -> None:
    ledger = Ledger()
    tools = ToolBox(ledger)
    server = Server(tools, name="tests", tool_search=ServerToolSearch(mode="code"))

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        tools.remove("confirm")
        return ElicitResult(action="accept", content={"value": True})

    async with Client(memory(server), mode="auto", elicitation_callback=answer) as client:
        assert "there is no tool 'confirm' any more" in await failure(client, "await pay(1)\nawait confirm(2)")
    assert ledger.paid == [1]
