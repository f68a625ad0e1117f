"""Nothing crosses callers: each sees itself alone in lists, reads, prompts, completions, and notifications."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import File, InvocationContext, McpToolProvider, ResourceBox, Server, prompt, resource, tool
from bridge.client import parse_config
from bridge.errors import DefinitionError, ResourceNotFoundError, ServerError
from bridge.gateway import Gateway
from bridge.gateway.credentials.store import Credential, CredentialKey
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.http.app import http_app
from tests.gateway.credentials.connected import ADA, BOB
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from anyio.abc import ObjectReceiveStream


pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60
LARGE_BYTES = 300_000
KEYS = {"ada": ADA, "bob": BOB}
OF_BOB = ("whoami", "shown", "me", "named", "large", "page", "greet")
ERAS = ("2026-07-28", "legacy")


def seen(context: InvocationContext) -> str:
    """Return whom the server sees."""
    assert context.caller is not None
    return context.caller.name


@tool
async def whoami(context: InvocationContext, nonce: int = 0) -> str:
    """Return the caller."""
    return f"{seen(context)} {nonce}"


@tool
def erase() -> str:
    """Erase."""
    return "erased"


@resource("who://me")
async def me(context: InvocationContext) -> str:
    """Return the caller."""
    return seen(context)


@resource("who://secret")
async def secret(context: InvocationContext) -> str:
    """Return the caller."""
    return seen(context)


@resource("who://large")
async def large(context: InvocationContext) -> str:
    """Return the caller, many times."""
    return f"{seen(context)} " * LARGE_BYTES


@resource("ui://me", mime_type="text/html;profile=mcp-app")
async def page(context: InvocationContext) -> str:
    """Return the page of the caller."""
    return f"<p>{seen(context)}</p>"


@tool(metadata={"ui": {"resourceUri": "ui://me"}})
async def shown(context: InvocationContext) -> str:
    """Return the caller, beside its page."""
    return seen(context)


def names(text: str, _: Mapping[str, str], context: InvocationContext) -> list[str]:
    """Return the caller as the only value."""
    return [f"{text}{seen(context)}"]


@resource("who://named/{name}", completions={"name": names})
async def named(name: str, context: InvocationContext) -> str:
    """Return the caller."""
    return f"{name} {seen(context)}"


@prompt(completions={"name": names})
async def greet(context: InvocationContext, name: str = "") -> str:
    """Greet the caller."""
    return f"{name} {seen(context)}"


@prompt
def plan() -> str:
    """Plan."""
    return "a plan"


@resource("local://tick")
def tick() -> str:
    """Return the time."""
    return "tick"


def text_of(file: File) -> str:
    """Return the text of a resource."""
    return str(file.content)


async def until(uri: str, changes: ObjectReceiveStream[str]) -> list[str]:
    """Receive changes until one of a resource; return those before it."""
    before = []
    while (change := await changes.receive()) != uri:
        before.append(change)
    return before


@dataclass
class Isolated:
    """A gateway whose callers have credentials of their own, in front of a server that says whom it sees."""

    origin: str
    resources: ResourceBox
    """The resources of the server."""
    local: ResourceBox
    """The resources of the gateway itself."""
    gateway: Gateway
    loop: asyncio.AbstractEventLoop | None = None

    async def forget(self, name: str) -> None:
        """Disconnect a caller."""
        assert self.gateway.broker is not None
        assert self.loop is not None
        forgetting = self.gateway.broker.forget(CredentialKey("key", name, "notes"))
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(forgetting, self.loop))

    @asynccontextmanager
    async def reached(self, name: str, era: str) -> AsyncIterator[McpToolProvider]:
        """Reach the gateway as a caller."""
        entry = {"url": f"{self.origin}/mcp", "headers": {"Authorization": f"Bearer {KEYS[name]}"}, "protocol": era}
        async with McpToolProvider({"mcpServers": {"gateway": entry}}) as provider:
            yield provider


@contextmanager
def isolated(**settings: Any) -> Iterator[Isolated]:
    resources = ResourceBox(me, secret, named, large, page)
    upstream = Auth(
        ApiKeys(
            ApiKey("ada", "of-ada-with-enough-characters"),
            ApiKey("bob", "of-bob-with-enough-characters", tools=OF_BOB),
        )
    )
    local = ResourceBox(tick)
    with serving(
        http_app(Server([whoami, erase, shown, resources, greet, plan], name="notes"), auth=upstream)
    ) as server:
        entry = {"url": f"{server}/mcp", "auth": {"type": "secret", "per": "caller"}, **settings}
        servers = parse_config({"mcpServers": {"notes": entry}}).servers.values()
        gateway = Gateway(servers, local=Server(local, name="local"))
        found = Isolated("", resources, local, gateway)

        @asynccontextmanager
        async def opened() -> AsyncIterator[None]:
            found.loop = asyncio.get_running_loop()
            async with gateway:
                assert gateway.broker is not None
                for name in KEYS:
                    credential = Credential(kind="secret", secret=f"of-{name}-with-enough-characters")
                    await gateway.broker.save(CredentialKey("key", name, "notes"), credential)
                yield

        tools = {"bob": (*OF_BOB, "tick")}  # Bob sees nothing else of the gateway
        auth = Auth(ApiKeys(*(ApiKey(name, key, tools=tools.get(name)) for name, key in KEYS.items())))
        app = http_app(Server(gateway.features, name="gateway", lifespan=opened), auth=auth)
        with serving(app) as origin:
            found.origin = origin
            yield found


@pytest.fixture(scope="module")
def gateway() -> Iterator[Isolated]:
    with isolated() as gateway:
        yield gateway


@pytest.mark.parametrize("era", ERAS)
async def test_each_caller_lists_reads_renders_and_completes_as_itself(gateway: Isolated, era: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with gateway.reached("ada", era) as ada, gateway.reached("bob", era) as bob:
            assert [each.name for each in ada.tools if each.listed] == ["whoami", "erase", "shown"]
            assert [each.name for each in bob.tools if each.listed] == ["whoami", "shown"]
            listed = {
                name: (
                    [each.name for each in await provider.resources.list()],
                    [each.name for each in await provider.prompts.list()],
                )
                for name, provider in (("ada", ada), ("bob", bob))
            }
            assert listed == {
                "ada": (["tick", "me", "secret", "large", "page", "named"], ["greet", "plan"]),
                "bob": (["tick", "me", "large", "page", "named"], ["greet"]),
            }
            for name, provider in (("ada", ada), ("bob", bob)):
                info = provider.connections["gateway"].server_info
                assert info is not None
                assert {"tools", "resources", "prompts"} <= info.capabilities.keys()
                assert (await provider.call("whoami", {"nonce": 7})).text == f"{name} 7"
                (file,) = await provider.resources.read("who://me")
                assert text_of(file) == name
                (file,) = await provider.resources.read("who://named/x")
                assert text_of(file) == f"x {name}"
                (message,) = await provider.prompts.render("greet", {"name": "hi"})
                assert message.content.text == f"hi {name}"  # type: ignore[union-attr]  # text
                assert (await provider.prompts.complete("greet", "name", "to ")).values == (f"to {name}",)
                completion = await provider.resources.complete("who://named/{name}", "name", "of ")
                assert completion.values == (f"of {name}",)
            with pytest.raises(ResourceNotFoundError):
                await bob.resources.read("who://secret")
            with pytest.raises(DefinitionError):
                await bob.prompts.render("plan")


@pytest.mark.parametrize("era", ERAS)
async def test_each_caller_streams_large_reads_and_opens_apps_as_itself(gateway: Isolated, era: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with gateway.reached("ada", era) as ada, gateway.reached("bob", era) as bob:
            read: dict[tuple[str, str], str] = {}

            async def reads(name: str, provider: McpToolProvider, uri: str) -> None:
                (file,) = await provider.resources.read(uri)
                read[name, uri] = text_of(file)

            async with anyio.create_task_group() as tasks:
                for name, provider in (("ada", ada), ("bob", bob)):
                    app = provider.tools.get("shown").specification.metadata["ui"]["resourceUri"]
                    assert (await provider.call("shown", {})).text == name
                    for uri in ("who://large", app):
                        tasks.start_soon(reads, name, provider, uri)
            assert read == {
                ("ada", "who://large"): "ada " * LARGE_BYTES,
                ("bob", "who://large"): "bob " * LARGE_BYTES,
                ("ada", app): "<p>ada</p>",
                ("bob", app): "<p>bob</p>",
            }


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("settings", [{}, {"listPer": "caller"}], ids=["refused", "configured"])
async def test_new_content_is_announced_to_the_caller_over_whose_connection_it_was(
    era: str, settings: dict[str, Any]
) -> None:
    with anyio.fail_after(DEADLINE_SECONDS), isolated(**settings) as gateway, ExitStack() as streams:
        async with gateway.reached("ada", era) as ada, gateway.reached("bob", era) as bob:
            changes: dict[str, Any] = {}
            received: dict[str, Any] = {}
            stops: list[Any] = []
            for name, provider in (("ada", ada), ("bob", bob)):
                changes[name], received[name] = anyio.create_memory_object_stream[str](10)
                streams.enter_context(changes[name])
                streams.enter_context(received[name])
                stops += [
                    await provider.resources.watch(uri, changes[name].send_nowait)
                    for uri in ("local://tick", "who://me", "who://named/x")
                ]
            gateway.resources.updated("who://me")
            for name in KEYS:
                await until("who://me", received[name])
            await gateway.forget("bob")  # whose subscription ends with it
            gateway.resources.updated("who://named/x")
            await until("who://named/x", received["ada"])
            gateway.local.updated("local://tick")
            assert "who://named/x" not in await until("local://tick", received["bob"])
            with pytest.raises(ServerError, match=r"not connected|does not announce|there is no resource"):
                await bob.resources.watch("who://named/y", changes["bob"].send_nowait)
            for stop in stops:
                stop()


async def test_a_changed_list_is_announced_to_its_caller_alone(gateway: Isolated) -> None:
    changes: list[Any] = []
    caller_features = gateway.gateway.features.caller_features
    assert caller_features is not None
    stop = caller_features.on_change(lambda *change: changes.append(change))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with gateway.reached("ada", "2026-07-28") as ada, gateway.reached("bob", "2026-07-28") as bob:
            assert len([*ada.tools]) + len([*bob.tools]) == 5
            assert gateway.gateway.broker is not None
            await gateway.forget("bob")
            bobs = ("key", "bob")
            assert changes == [(feature, None, bobs) for feature in ("tools", "resources", "prompts")]
    stop()
