"""Resources, prompts and completions that fail, are over a limit, or need a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client, MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from bridge import InvocationContext, ToolError, prompt, resource
from bridge.protocol.messages import ProtocolError
from bridge.server import Server
from bridge.server.auth.access import Access, ToolScopes
from bridge.server.changes import Change, Changes
from bridge.server.features import Features
from bridge.server.limits import Limits, Rate
from bridge.tools.execution import ExecutionPolicy
from tests.server.memory import memory
from tests.server.stdio_process import StdioProcess, modern_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.anyio
DEADLINE_SECONDS = 60
FAILING = """
from bridge import prompt, resource
from bridge.errors import ResourceNotFoundError, UnknownToolError


@resource("x://unknown")
def unknown() -> str:
    raise UnknownToolError("other")


@prompt
def absent() -> str:
    raise ResourceNotFoundError


@prompt(completions={"name": ["a\\ud800", "ab"]})
def named(name: str) -> str:
    return name
"""


def values(text: str, others: Mapping[str, str], context: InvocationContext) -> Iterator[str]:
    if text == "refuse":
        raise ToolError("not these")
    if text == "fail":
        raise ValueError("a secret")
    yield from (f"{text}{number}" for number in range(3))


@resource("x://{name}", completions={"name": values})
def by_name(name: str) -> str:
    return name * 1000


@prompt(completions={"name": values}, timeout_seconds=30)
def greeting(name: str) -> str:
    return name * 1000


async def error_of(request: Any) -> tuple[int, str]:
    with pytest.raises(MCPError) as caught:
        await request
    return caught.value.error.code, caught.value.error.message


PROMPT = PromptReference(type="ref/prompt", name="greeting")
TEMPLATE = ResourceTemplateReference(type="ref/resource", uri="x://{name}")


async def test_completions_fail_like_what_they_belong_to() -> None:
    async with Client(memory(Server([by_name, greeting], name="tests"))) as client:
        assert (await client.complete(PROMPT, {"name": "name", "value": "a"})).completion.values == ["a0", "a1", "a2"]
        for ref in (PROMPT, TEMPLATE):
            assert await error_of(client.complete(ref, {"name": "name", "value": "refuse"})) == (-32603, "not these")
            code, message = await error_of(client.complete(ref, {"name": "name", "value": "fail"}))
            assert code == -32603
            assert "secret" not in message


async def test_limits_hold_for_results_and_completions() -> None:
    limits = Limits(max_result_bytes=100, tool_rates={"greeting": Rate(2, 1000)})
    async with Client(memory(Server([by_name, greeting], name="tests", limits=limits))) as client:
        code, message = await error_of(client.read_resource("x://a"))
        assert code == -32603
        assert "bytes, and may have 100" in message
        assert "may have 100" in (await error_of(client.get_prompt("greeting", {"name": "a"})))[1]
        await client.complete(PROMPT, {"name": "name", "value": "a"})
        code, message = await error_of(client.complete(PROMPT, {"name": "name", "value": "a"}))
        assert code == -32005
        assert "try again in" in message


async def test_the_policy_holds_for_reads_and_prompts() -> None:
    seen: list[str] = []

    @resource("x://slow")
    async def slow() -> str:
        await anyio.sleep_forever()
        return ""

    policy = ExecutionPolicy(timeout_seconds=0.05, before=(lambda request, _: seen.append(request.name),))
    async with Client(memory(Server([slow], name="tests", policy=policy))) as client:
        with anyio.fail_after(DEADLINE_SECONDS):
            code, message = await error_of(client.read_resource("x://slow"))
    assert (code, seen) == (-32603, ["slow"])
    assert "0.05 seconds" in message


def test_completions_need_the_scope_of_their_prompt() -> None:
    publisher = Server([by_name, greeting], name="tests")
    assert publisher.prompts is not None
    assert publisher.resources is not None
    access = Access(tool_scopes=ToolScopes({"*": {"read"}}))
    with pytest.raises(ProtocolError, match="needs a scope"):
        publisher.prompts.completed("greeting", access)
    with pytest.raises(ProtocolError, match="needs a scope"):
        publisher.resources.completed("x://{name}", access)


def test_every_request_over_stdio_is_answered(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING, encoding="utf-8")
    with StdioProcess(command=["-m", "bridge", "serve", str(tmp_path / "failing.py")]) as server:
        server.send(modern_request(1, "resources/read", uri="x://unknown"))
        server.send(modern_request(2, "prompts/get", name="absent"))
        ref, argument = {"type": "ref/prompt", "name": "named"}, {"name": "name", "value": "a"}
        server.send(modern_request(3, "completion/complete", ref=ref, argument=argument))
        answers = {each["id"]: each for each in (server.receive(), server.receive(), server.receive())}
    assert [answers[each]["error"]["code"] for each in (1, 2)] == [-32603, -32603]
    assert answers[3]["result"]["completion"]["values"] == ["ab"]


async def test_a_change_during_a_notification_is_notified() -> None:
    """A thread adds a change just when the loop takes the pending ones."""
    features = Features.of([by_name])
    assert features.resources is not None
    changes, seen, again = Changes(features), list[Change](), anyio.Event()

    def listen(news: frozenset[Change]) -> None:
        seen.extend(news)
        if Change("resources", "x://c") in news:
            again.set()

    changes.listen(listen)
    await anyio.to_thread.run_sync(features.resources.updated, "x://a")
    await anyio.to_thread.run_sync(features.resources.updated, "x://b")
    await anyio.to_thread.run_sync(features.resources.updated, "x://c")
    with anyio.fail_after(DEADLINE_SECONDS):
        await again.wait()
    assert {each.uri for each in seen} == {"x://a", "x://b", "x://c"}
