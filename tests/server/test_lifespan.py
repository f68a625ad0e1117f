"""Lifespans of servers: open before the first request is answered, and closed after the last one."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from starlette.applications import Starlette

from bridge import DefinitionError, Depends, InvocationContext, lifespan, prefixed, prompt, resource
from bridge.server import Features, Server, http_app, mount
from bridge.testing import connected
from tests.server import http_server
from tests.server.http_server import answer, call, modern, modern_headers, open_session, whole_client
from tests.server.stdio_process import StdioProcess
from tests.server.stdio_process import call as modern_call

LOG: list[str] = []
FAILURES: dict[str, Exception] = {}


@pytest.fixture(autouse=True)
def _empty() -> None:
    LOG.clear()
    FAILURES.clear()


@lifespan
async def app() -> AsyncIterator[str]:
    if "open" in FAILURES:
        raise FAILURES["open"]
    LOG.append("open")
    yield "pool"
    LOG.append("closed")
    if "close" in FAILURES:
        raise FAILURES["close"]


async def session(context: InvocationContext) -> AsyncIterator[str]:
    LOG.append("session")
    yield f"session of {context.lifespan}"
    LOG.append("end")


Session = Annotated[str, Depends(session)]


async def use(db: Session, context: InvocationContext[str]) -> str:
    return f"{db}, {context.lifespan}"


def use_in_thread(context: InvocationContext) -> str:
    return str(context.lifespan)


@resource("notes://{name}")
async def note(name: str, context: InvocationContext) -> str:
    return f"{name}: {context.lifespan}"


@prompt
def review(context: InvocationContext) -> str:
    return f"review: {context.lifespan}"


TOOLS = (use, use_in_thread, note, review)
USED = ["open", "session", "end", "closed"]


def text_of(reply: Any) -> str:
    text: str = answer(reply)["result"]["content"][0]["text"]
    return text


def called(client: httpx.Client, url: str, name: str) -> str:
    message = modern(call(name))
    return text_of(client.post(url, json=message, headers=modern_headers(message)))


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_it_is_open_while_a_client_is_connected(protocol: Any) -> None:
    async with connected(*TOOLS, protocol=protocol) as provider:
        assert LOG == ["open"]
        assert (await provider.call("use")).text == "session of pool, pool"
        assert (await provider.call("use_in_thread")).text == "pool"
        assert (await provider.resources.read("notes://x"))[0].content == "x: pool"
        assert (await provider.prompts.render("review"))[0].content.text == "review: pool"  # type: ignore[union-attr]
    assert LOG == USED


@pytest.mark.anyio
async def test_it_is_found_behind_transforms() -> None:
    async with connected(prefixed([use], "x_")) as provider:
        assert (await provider.call("x_use")).text == "session of pool, pool"
    assert LOG == USED


@pytest.mark.parametrize("http", ["h11", "direct"])
def test_it_is_open_while_an_http_server_runs(serving: Callable[..., str], http: str) -> None:
    served = http_app(Features.of(*TOOLS))
    assert LOG == []
    url = serving(served, http=http) + "/mcp"
    with whole_client() as client:
        assert LOG == ["open"]
        assert called(client, url, "use") == "session of pool, pool"
        assert called(client, url, "use_in_thread") == "pool"
        assert text_of(client.post(url, json=call("use"), headers=open_session(client, url))) == "session of pool, pool"
    assert "closed" not in LOG


def test_it_is_closed_when_an_http_server_ends() -> None:

    with http_server.serving(http_app(Features.of(*TOOLS))) as origin, httpx.Client() as client:
        assert called(client, f"{origin}/mcp", "use") == "session of pool, pool"
    assert LOG == USED


def test_a_mounted_app_opens_it_with_the_others_own() -> None:

    @asynccontextmanager
    async def outer(_: object) -> AsyncIterator[None]:
        LOG.append("outer")
        yield
        LOG.append("outer ends")

    parent = Starlette(lifespan=outer)
    mount(parent, "/tools", [use])
    mount(parent, "/more", [use_in_thread])
    with http_server.serving(parent) as origin, httpx.Client() as client:
        assert called(client, f"{origin}/tools", "use") == "session of pool, pool"
        assert called(client, f"{origin}/more", "use_in_thread") == "pool"
    assert LOG == ["outer", "open", "session", "end", "closed", "outer ends"]


@pytest.mark.anyio
async def test_it_is_open_over_sse(serving: Callable[..., str]) -> None:
    origin = serving(http_app([use]))
    async with sse_client(f"{origin}/sse") as streams, ClientSession(*streams) as client:
        await client.initialize()
        result = await client.call_tool("use", {})
        assert result.content[0].text == "session of pool, pool"  # type: ignore[union-attr]


# --- of the server ----------------------------------------------------------------------------------------------------


async def of_server() -> AsyncIterator[str]:
    LOG.append("server")
    yield "of the server"
    LOG.append("server ends")


def foreign() -> Any:
    """Return a function of a module without a lifespan."""
    names: dict[str, Any] = {"InvocationContext": InvocationContext}
    source = "async def foreign(context: InvocationContext) -> str:\n    return context.lifespan"
    exec(source, names)
    return names["foreign"]


@pytest.mark.anyio
async def test_functions_of_other_modules_get_that_of_the_server() -> None:
    async with connected(foreign(), use, lifespan=of_server) as provider:
        assert (await provider.call("foreign")).text == "of the server"
        assert (await provider.call("use")).text == "session of pool, pool"
    assert ["server", *USED, "server ends"] == LOG


def test_an_http_server_has_one_of_its_own(serving: Callable[..., str]) -> None:
    url = serving(http_app(Server([foreign()], name="bridge", lifespan=lifespan(of_server))), http="direct") + "/mcp"
    with whole_client() as client:
        assert called(client, url, "foreign") == "of the server"
    with pytest.raises(TypeError, match="'lifespan'"):
        http_app(Server([use], name="notes"), lifespan=of_server)  # type: ignore[call-arg]  # what is refused
    with pytest.raises(DefinitionError, match="a lifespan is an async generator function"):
        http_app(Server([use], name="bridge", lifespan=foreign()))


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_one_that_cannot_be_opened_ends_the_start_with_its_reason() -> None:
    FAILURES["open"] = OSError("no database")
    served = http_app([use])
    with pytest.raises(OSError, match="no database"):
        async with served.router.lifespan_context(served):
            pass
    FAILURES.clear()
    async with served.router.lifespan_context(served):
        assert LOG == ["open"]


@pytest.mark.anyio
async def test_one_that_cannot_be_closed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    FAILURES["close"] = OSError("the disk is full")
    async with connected(use) as provider:
        assert (await provider.call("use")).text == "session of pool, pool"
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == ["bridge.tools"]
    assert LOG == USED


# --- a process --------------------------------------------------------------------------------------------------------

PROGRAM = """
import atexit
import sys
import bridge
from bridge import InvocationContext, lifespan

def say(text):
    print(text, file=sys.stderr, flush=True)

@lifespan
async def app():
    say("opened")
    if "broken" in sys.argv:
        raise OSError("no database")
    yield "pool"
    say("closed")
    if "stuck" in sys.argv:
        raise OSError("the disk is full")

async def use(context: InvocationContext) -> str:
    say("used")
    return context.lifespan

atexit.register(say, "exit")
if __name__ == "__main__":
    bridge.run(use)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "pooled.py"
    file.write_text(PROGRAM, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("ended_by", ["input", "signal"])
@pytest.mark.parametrize("settings", [[], ["stuck"]])
def test_it_is_open_over_stdio(program: str, ended_by: str, settings: list[str]) -> None:
    with StdioProcess(command=[program, *settings]) as server:
        assert server.answer(modern_call(1, "use"))["result"]["content"][0]["text"] == "pool"
        if ended_by == "input":
            server.close_input()
        else:
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        said = [line for line in server.log().splitlines() if line in ("opened", "used", "closed", "exit")]
        assert said == ["opened", "used", "closed", "exit"]
        assert ("the disk is full" in server.log()) == bool(settings)


def test_a_process_whose_lifespan_cannot_be_opened_ends_with_the_reason(program: str) -> None:
    with StdioProcess(command=[program, "broken"]) as server:
        assert server.receive_line() == b""
        assert server.process.wait(30) == 1
        assert "OSError: no database\nthe lifespan 'app' (pooled.py:10) could not be opened" in server.log()
