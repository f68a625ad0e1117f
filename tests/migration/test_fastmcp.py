"""A FastMCP server and its port, side by side: the same client gets the same answers."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest

from bridge import ClientHandlers, File, HttpTransport, Image, McpToolProvider, ServerConfig
from bridge.testing import TokenSigner
from bridge.tools import ElicitationAnswer
from tests.interop.packages import fastmcp_tasks_python, running
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

HERE = Path(__file__).parent
SERVERS = {"fastmcp": "Uvicorn running on", "bridge": "serving library at"}
TEA = {"title": "Tea", "author": "Kakuzo", "published": "1906-05-01", "copies": 1}


@pytest.fixture(scope="module")
def signer() -> TokenSigner:
    return TokenSigner("https://login.example", "library")


@pytest.fixture(scope="module")
def origins(signer: TokenSigner) -> Iterator[dict[str, str]]:
    """Both servers, each with a library of its own."""
    with ExitStack() as stack:
        found = {}
        for name, says in SERVERS.items():
            port = free_port()
            python = fastmcp_tasks_python() if name == "fastmcp" else sys.executable
            command = (python, str(HERE / f"library_{name}.py"), str(port))
            stack.enter_context(running(*command, says=says, PUBLIC_KEY=signer.public_key))
            found[name] = f"http://127.0.0.1:{port}"
        yield found


async def agree(question: object, context: object) -> ElicitationAnswer:
    return ElicitationAnswer("accept", {"value": True})


async def answers(origin: str, token: str, protocol: Literal["legacy", "2026-07-28"]) -> dict[str, Any]:
    """Use everything that a library has; return what a client sees of it."""
    transport = HttpTransport(f"{origin}/mcp", headers={"Authorization": f"Bearer {token}"})
    config = ServerConfig(name="library", transport=transport, required=True, protocol=protocol)
    seen: dict[str, Any] = {}
    async with McpToolProvider(config, handlers=ClientHandlers(elicitation=agree)) as library:

        async def call(name: str, **arguments: Any) -> Any:
            result = await library.call(name, arguments)
            return (result.is_error, result.text)

        tools = {each.name: each.specification for each in library.tools}
        seen["tools"] = sorted(tools)
        seen["parameters"] = {name: sorted(each.parameters.get("properties", {})) for name, each in tools.items()}
        seen["descriptions"] = {name: each.description for name, each in tools.items()}
        seen["added"] = (await library.call("add_book", {"book": TEA})).structured_content
        seen["added twice"] = await call("add_book", book=TEA)
        (book,) = (await library.call("find_books", {"author": "Kakuzo"})).data
        seen["found"] = (book.title, book.published, book.copies)
        seen["lent"] = [await call("lend", title="Tea") for _ in range(2)]
        seen["loans"] = (await library.call("my_loans")).structured_content
        seen["stock"] = await call("stocktake")
        (cover,) = (await library.call("cover", {"title": "Tea"})).content
        assert isinstance(cover, Image)
        seen["cover"] = (cover.data, cover.mime_type)
        seen["hidden"] = (await library.call("clear")).is_error
        seen["branch"] = await call("branch_opening_hours", day="Sunday")
        prompts = {each.name: each for each in library.prompts}
        seen["prompts"] = sorted(prompts)
        for name, argument in (("recommend", {"author": "Kakuzo"}), ("branch_directions", {"start": "home"})):
            (message,) = await library.prompts.render(name, argument)
            seen[name] = (message.role, message.content)
        for uri in ("library://books/Tea", "library://calls"):
            (contents,) = await library.resources.read(uri)
            assert isinstance(contents, File)
            seen[uri] = (contents.content, contents.mime_type)
        seen["discarded"] = await call("discard", title="Tea")
        async with httpx.AsyncClient() as client:
            seen["counted"] = (await client.get(f"{origin}/count")).json()
        seen["left"] = (await library.call("find_books", {"author": "Kakuzo"})).structured_content
    return seen


async def test_the_port_answers_as_the_original(origins: dict[str, str], signer: TokenSigner) -> None:
    token = signer.token("ada", scopes=["library"])
    original, port = [await answers(origin, token, "legacy") for origin in origins.values()]
    assert port == original
    assert (port["loans"], port["discarded"]) == ({"result": ["Tea"]}, (False, "discarded")), "it was all used"


async def test_in_the_modern_era_the_port_also_keeps_values_and_asks(
    origins: dict[str, str], signer: TokenSigner
) -> None:
    token = signer.token("bob", scopes=["library"])
    original, port = [await answers(origin, token, "2026-07-28") for origin in origins.values()]
    own = {"loans": {"result": ["Tea"]}, "discarded": (False, "discarded"), "left": {"result": []}}
    assert {name: port[name] for name in own} == own
    others = port.keys() - own.keys() - {"counted"}  # FastMCP's middleware does not count a call that failed
    assert {name: port[name] for name in others} == {name: original[name] for name in others}


def test_both_need_a_token(origins: dict[str, str], signer: TokenSigner) -> None:
    tokens = {"none": None, "wrong": TokenSigner().token("ada"), "no scope": signer.token("ada")}
    for name, origin in origins.items():
        for kind, token in tokens.items():
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            status = httpx.post(f"{origin}/mcp", json={}, headers=headers).status_code
            assert status == (403 if (name, kind) == ("bridge", "no scope") else 401), (name, kind)  # RFC 6750, 3.1


def test_the_port_is_not_longer() -> None:
    original, port = [
        sum(
            1
            for line in (HERE / f"library_{name}.py").read_text(encoding="utf-8").splitlines()
            if not line.startswith("# ")
        )
        for name in SERVERS
    ]
    assert port <= original
