"""Identity of the caller: headers and ``_meta`` from suppliers, and no user's data is sent for another."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from bridge import Caller, DefinitionError, InvocationContext, ToolBox, ToolError, connect, tool
from bridge.client import HttpTransport, McpToolProvider, ServerConfig, StdioTransport
from bridge.client.auth.ready import NO_AUTH
from bridge.gateway import Gateway
from bridge.server.http.app import http_app
from bridge.server.server import Server
from tests.client.foreign import ForeignServer
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.types import Receive, Scope, Send

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

USERS = [f"user{number}" for number in range(12)]
CALLS = 8


@tool
async def whoami(context: InvocationContext, nonce: int) -> str:
    """Return the caller."""
    await anyio.lowlevel.checkpoint()
    return f"{context.headers.get('authorization')} {nonce}"


@dataclass
class Journal:
    """Headers that a server received with each request, such as session and key."""

    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)

    def keys(self) -> list[str | None]:
        return [request.get("authorization") for request in self.requests]


@contextmanager
def journalled() -> Iterator[Journal]:
    """A server over HTTP with a journal."""
    journal, app = Journal(), http_app(Server(ToolBox(whoami), name="whoami"))

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        journal.requests.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, receive, send)

    outer = Starlette(routes=[Mount("/", app=note)], lifespan=app.router.lifespan_context)
    outer.state = app.state
    with serving(outer) as origin:
        journal.url = f"{origin}/mcp"
        yield journal


@pytest.fixture
def journal() -> Iterator[Journal]:
    with journalled() as journal:
        yield journal


def key_of_the_caller(server: str, context: InvocationContext) -> Mapping[str, str]:
    assert server == "far"
    return {"Authorization": context.caller.name} if context.caller is not None else {}


def context_of(user: str) -> InvocationContext:
    return InvocationContext(caller=Caller(user))


def far(journal: Journal, **headers: str) -> ServerConfig:
    return ServerConfig(name="far", transport=HttpTransport(journal.url, headers=headers, kind="http"))


@pytest.mark.parametrize("pin", ["auto", "legacy"])
async def test_nothing_of_one_user_is_sent_for_another_however_many_call_at_once(journal: Journal, pin: Any) -> None:
    transport = HttpTransport(journal.url, kind="http", headers={"authorization": "nobody"})
    config = ServerConfig(name="far", transport=transport, protocol=pin)
    answers: dict[tuple[str, int], str] = {}

    async def call(user: str, nonce: int) -> None:
        answers[user, nonce] = (await provider.call("whoami", {"nonce": nonce}, context=context_of(user))).text

    async with McpToolProvider([config], headers_supplier=key_of_the_caller) as provider:
        async with anyio.create_task_group() as tasks:
            for nonce in range(CALLS):
                for user in USERS:
                    tasks.start_soon(call, user, nonce)
        unknown = await provider.call("whoami", {"nonce": 0})
    assert answers == {(user, nonce): f"{user} {nonce}" for user in USERS for nonce in range(CALLS)}
    assert unknown.text == "nobody 0"
    whose: dict[str, set[str]] = {}
    for request in journal.requests:
        whose.setdefault(request.get("mcp-session-id", ""), set()).add(request["authorization"])
    without_session = whose.pop("")
    assert without_session == {"nobody", *USERS}
    assert all(len(users) == 1 for users in whose.values())
    assert len(whose) == (1 + len(USERS) if pin == "legacy" else 0)


async def test_the_headers_of_a_call_stand_before_those_that_are_configured(journal: Journal) -> None:
    config = far(journal, AUTHORIZATION="configured", **{"X-Kept": "yes"})
    async with McpToolProvider(config, headers_supplier=key_of_the_caller) as provider:
        assert (await provider.call("whoami", {"nonce": 1}, context=context_of("ada"))).text == "ada 1"
    assert set(journal.keys()) == {"configured", "ada"}
    assert {request["x-kept"] for request in journal.requests} == {"yes"}


async def test_one_user_keeps_one_connection(journal: Journal) -> None:
    config = far(journal)
    async with McpToolProvider(config, headers_supplier=key_of_the_caller) as provider:
        for nonce in range(3):
            await provider.call("whoami", {"nonce": nonce}, context=context_of("ada"))
    discoveries = [each for each in journal.requests if each.get("mcp-method") == "server/discover"]
    assert [each.get("authorization") for each in discoveries] == [None, "ada"]


async def test_tools_are_listed_with_the_headers_for_nobody(journal: Journal) -> None:
    async def supplier(server: str, context: InvocationContext) -> Mapping[str, str]:
        return {"Authorization": context.caller.name if context.caller else "the service"}

    async with McpToolProvider(far(journal), headers_supplier=supplier):
        assert set(journal.keys()) == {"the service"}


async def test_a_supplier_that_knows_only_callers_leaves_the_list_to_the_configuration(journal: Journal) -> None:
    def supplier(server: str, context: InvocationContext) -> Mapping[str, str]:
        return {"Authorization": context.caller.name}  # type: ignore[union-attr]  # nobody calls, and it fails

    async with McpToolProvider(far(journal), headers_supplier=supplier) as provider:
        assert set(journal.keys()) == {None}
        assert (await provider.call("whoami", {"nonce": 1}, context=context_of("ada"))).text == "ada 1"


async def test_without_headers_a_call_is_not_made(journal: Journal) -> None:
    def supplier(server: str, context: InvocationContext) -> Mapping[str, str]:
        if context.caller is None:
            raise ToolError("log in first")
        return {"Authorization": 5}  # type: ignore[dict-item]  # it is no text

    async with McpToolProvider(far(journal), headers_supplier=supplier) as provider:
        result = await provider.call("whoami", {"nonce": 1})
        assert (result.is_error, result.text) == (True, "log in first")
        result = await provider.call("whoami", {"nonce": 1}, context=context_of("ada"))
        assert (result.is_error, "must be text" in result.text) == (True, True)


async def test_what_is_supplied_for_a_call_goes_with_it_in_meta() -> None:
    def supplier(server: str, context: InvocationContext) -> Mapping[str, Any]:
        return {"tenant": context.memory_id}

    async with McpToolProvider(ForeignServer("f").config(), meta_supplier=supplier) as provider:
        context = InvocationContext(memory_id={"id": 7})
        told = json.loads((await provider.call("f", context=context)).text)
        assert told["tenant"] == {"id": 7}


# --- servers that receive no headers ---------------------------------------------------------------------------------


def near(name: str = "near") -> ServerConfig:
    return ServerConfig(name=name, transport=StdioTransport("server"))


async def test_headers_of_calls_are_refused_if_no_server_is_reached_over_http() -> None:
    with pytest.raises(DefinitionError, match=r"none of the servers is reached over HTTP: 'near', 'other'; leave them"):
        McpToolProvider([near(), near("other")], headers_supplier=key_of_the_caller)
    with pytest.raises(DefinitionError, match=r"headers_supplier, or forward_headers of a gateway"):
        Gateway([near()], forward_headers=["x-tenant"])
    with pytest.raises(DefinitionError, match=r"headers for calls have no effect"):
        connect([near()], headers_supplier=key_of_the_caller)
    McpToolProvider(headers_supplier=key_of_the_caller)
    McpToolProvider([near(), far(Journal("http://127.0.0.1:9/mcp"))], headers_supplier=key_of_the_caller)


@pytest.mark.parametrize("option", ["auth", "caller_auths"])
async def test_credentials_are_refused_for_a_server_that_is_not_reached_over_http(option: Any) -> None:
    given: Any = {option: lambda config: NO_AUTH if config.name == "near" else None}
    with pytest.raises(DefinitionError, match=rf"{option} returned credentials for the server 'near', which is not"):
        McpToolProvider([near("other"), near()], **given)
    McpToolProvider([near("other")], **given)
