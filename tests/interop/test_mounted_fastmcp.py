"""A server written with FastMCP, mounted on one of ours in the same process."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge import ClientHandlers, InvocationContext, Server, tool
from bridge.gateway import from_mcp
from bridge.testing import connected
from bridge.tools import Elicitation, ElicitationAnswer, UrlElicitation
from tests.interop.packages import fastmcp_python
from tests.server.middleware.surrounded import ERAS, LOG, Era, Recording

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@tool
async def add(a: int, b: int) -> int:
    return a + b


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[None]:
    """Find FastMCP where it is installed, behind the packages of this Python."""
    (packages,) = Path(fastmcp_python()).parents[1].glob("lib/python*/site-packages")
    sys.path.append(str(packages))
    yield
    sys.path.remove(str(packages))


def fast(log: list[str]) -> Any:
    """Return a server of FastMCP with everything that one can have, which logs its lifespan."""
    from fastmcp import Context, FastMCP  # type: ignore[import-not-found]  # noqa: PLC0415 - installed elsewhere
    from fastmcp.exceptions import ToolError  # type: ignore[import-not-found]  # noqa: PLC0415 - likewise

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[dict[str, str]]:
        log.append("open")
        yield {"pool": "a pool"}
        log.append("close")

    server = FastMCP("fast", lifespan=lifespan)

    async def use(context: Context) -> str:
        return str(context.lifespan_context["pool"])

    def fail() -> str:
        raise ToolError("on purpose")

    async def order(context: Context) -> str:
        answer = await context.elicit("What would you like?", response_type=str)
        return f"{answer.action}: {getattr(answer, 'data', None)}"

    async def grow(context: Context) -> str:
        server.tool(lambda: "grown", name="grown")
        return "more"

    # Their annotations are texts in this module, which FastMCP could not resolve inside of a function.
    for function in (use, order, grow):
        function.__annotations__["context"] = Context
    for each in (use, fail, order, grow):
        server.tool(each, tags={"fast"})
    server.resource("notes://all", mime_type="text/plain")(lambda: "milk")
    server.resource("notes://{title}", name="note")(lambda title: f"about {title}")
    server.prompt(lambda code: f"Review {code}", name="review")
    return server


async def answer(question: Elicitation | UrlElicitation, _: InvocationContext) -> ElicitationAnswer:
    assert isinstance(question, Elicitation)
    (field,) = question.schema["properties"]
    return ElicitationAnswer("accept", {field: "soup"})


@pytest.mark.parametrize("protocol", ERAS)
async def test_everything_of_it_is_served_within_our_middleware_and_its_own_lifespan(protocol: Era) -> None:
    log: list[str] = []
    mounted, server = Server(from_mcp(fast(log)), name="mounted", middleware=[Recording("ours")]), Server(add, name="o")
    server.mount(mounted, prefix="x")
    for _ in range(2):  # it is opened anew
        log.clear()
        async with connected(server, protocol=protocol, handlers=ClientHandlers(elicitation=answer)) as provider:
            assert log == ["open"]
            names = [each.name for each in provider.tools]
            assert names[:5] == ["add", "x_use", "x_fail", "x_order", "x_grow"]
            assert provider.tools.get("x_use").tags == {"fast"}
            LOG.clear()
            assert (await provider.call("x_use")).text == "a pool"
            assert LOG == ["ours on_request use", "ours call_tool use", "ours end", "ours end"]
            failed = await provider.call("x_fail")
            assert (failed.is_error, "on purpose" in failed.text) == (True, True)
            assert (await provider.call("x_order")).text == "accept: soup"

            listed = {each.name: provider.resources.key_of(each) for each in await provider.resources.list()}
            assert set(listed.values()) == {"x+notes://all", "x+notes://{title}"}
            for uri, content in (("x+notes://all", "milk"), ("x+notes://tea", "about tea")):
                LOG.clear()
                (found,) = await provider.resources.read(uri)
                assert (found.uri, found.content) == (uri, content)
                assert [f"ours on_request {uri.removeprefix('x+')}", "ours end"] == LOG
            await provider.prompts.list()
            LOG.clear()
            (message,) = await provider.prompts.render("x_review", {"code": "it"})
            assert getattr(message.content, "text", "") == "Review it"
            assert LOG == ["ours on_request review", "ours end"]
        assert log == ["open", "close"]
