"""A caller of one profile finds nothing of another: whatever it sends, it gets the answer to a name that nobody has."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge import Server, ServerConfig, TaskPolicy, prompt, resource, tool
from bridge.client import MemoryTransport
from bridge.events import event
from bridge.gateway import Gateway
from bridge.resources.box import ResourceBox
from bridge.server import Extension, http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.profiles import Profile
from bridge.skills import skills_in
from bridge.tools import Spill
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.toolbox import ToolBox
from bridge.wire.extension import TASKS
from tests.gateway.test_calls import served
from tests.server.auth.guarded import bearer
from tests.server.http_server import HEADERS, call, events, initialize, modern, modern_headers, notification, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60
BOB, ROOT = "bob-bob-bob-bob-bob-bob", "root-root-root-root-root"
SECRET, NOTHING = "zebra", "gecko"
"""Part of all names of the other profile, and of names that nobody has."""
MIX = "com.example/mix"
SKILL = "---\nname: {0}\ndescription: About {0}s\n---\n\nText of the {0}.\n"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Build:
    """A build of a project."""

    project: str


def server(word: str, folder: Path, box: ToolBox, resources: ResourceBox) -> Server:
    """Return a server whose names and contents have a word."""

    @tool(name=word)
    async def named(text: str = "") -> str:
        """Return a text."""
        return f"{word} {text}"

    @tool(name=f"{word}_large")
    async def large() -> str:
        """Return a long text."""
        return f"{word} " * 10_000

    @tool(name=f"{word}_job", task=TaskPolicy())
    async def job() -> str:
        """Run as a task."""
        return word

    @resource(f"{word}://{{name}}", name=f"{word}_template", completions={"name": [word]})
    async def template(name: str) -> str:
        """Read a name."""
        return f"{word} {name}"

    @resource(f"{word}://listed/it", name=f"{word}_listed")
    async def listed() -> str:
        """Read."""
        return word

    @prompt(name=f"{word}_prompt", completions={"topic": [word]})
    async def asked(topic: str = "") -> str:
        """Ask."""
        return f"{word} {topic}"

    @event(f"{word}.built")
    def built(build: Build) -> bool:
        """A build has finished."""
        return True

    path = folder / word / word
    path.mkdir(parents=True)
    (path / "SKILL.md").write_text(SKILL.format(word), encoding="utf-8")
    box.add(named, large, job)
    resources.add(template, listed)
    mixer = Extension(id=MIX, settings={"of": word}, methods={f"mix/{word}": lambda *_: {"mixed": word}})
    return Server(
        [box, resources, asked, built, skills_in(folder / word)],
        name=word,
        extensions=[mixer],
        policy=ExecutionPolicy(spill=Spill(chars=1000)) if word == "local" else None,
    )


class World:
    """A gateway with a server that a profile does not have."""

    def __init__(self, folder: Path) -> None:
        self.boxes = {word: ToolBox() for word in (SECRET, "mouse")}
        self.resources = {word: ResourceBox() for word in self.boxes}
        self.servers = {word: server(word, folder, self.boxes[word], self.resources[word]) for word in self.boxes}
        self.origin = ""

    async def open(self, stack: AsyncExitStack) -> None:
        configs = [
            ServerConfig(name=word, transport=MemoryTransport(each), extensions={MIX: {}}, protocol="2026-07-28")
            for word, each in self.servers.items()
        ]
        gateway = await stack.enter_async_context(Gateway(configs))
        profiles = [
            Profile(name=SECRET, servers=(SECRET,)),
            Profile(name="mouse", servers=("mouse",)),
            Profile(name="found", servers=("mouse",), listing="search"),
            Profile(name="asked", rename={"mouse_mouse": "squeak"}, approval=("squeak", "mouse_*"), listing="search"),
            Profile(name="coded", servers=("mouse",), approval=("mouse_*",), listing="code"),
            Profile(name="part", include=("mouse_mouse", "mouse+mouse://listed/it"), rename={"mouse_mouse": "squeak"}),
        ]
        keys = ApiKeys(ApiKey("bob", BOB, profiles=("mouse", "found", "part")), ApiKey("root", ROOT))
        policy = ExecutionPolicy(spill=Spill(chars=1000))
        whole = Server(gateway.features, name="gate", policy=policy)
        self.origin = await stack.enter_async_context(served(http_app(whole, auth=keys, profiles=profiles)))


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    found = World(tmp_path_factory.mktemp("skills"))
    async with AsyncExitStack() as stack:
        await found.open(stack)
        yield found


class Client:
    """A client of one profile, in one era."""

    def __init__(self, world: World, http: httpx.AsyncClient, profile: str, key: str, era: str) -> None:
        self.url, self._http, self._key, self._era = f"{world.origin}/mcp/{profile}", http, bearer(key), era
        self.session: dict[str, str] | None = None

    async def send(self, message: dict[str, Any]) -> httpx.Response:
        """Send a request."""
        if self._era == "modern":
            whole = modern(message, {"extensions": {TASKS.id: {}, MIX: {}}, "elicitation": {}})
            return await self._http.post(self.url, json=whole, headers=modern_headers(whole) | self._key)
        if self.session is None:
            answer = await self._http.post(self.url, json=initialize(), headers=HEADERS | self._key)
            version = {"mcp-protocol-version": "2025-11-25"}
            self.session = HEADERS | self._key | version | {"mcp-session-id": answer.headers["mcp-session-id"]}
            await self._http.post(self.url, json=notification("notifications/initialized"), headers=self.session)
        return await self._http.post(self.url, json=message, headers=self.session)

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return the response."""
        answer = await self.send(message)
        if answer.headers["content-type"].startswith("text/event-stream"):
            return [*events(iter(answer.text.splitlines()))][-1]
        found: dict[str, Any] = answer.json()
        return found


def probes(word: str) -> list[dict[str, Any]]:
    """Return requests about what a word names, in all forms that a gateway has for names and URIs."""
    names = [word, f"{word}_{word}", f"{word}_{word}_job", f"{word}_{word}_large", f"{word}_{word}_prompt"]
    uris = [
        *(f"{word}://listed/it", f"{word}+{word}://listed/it", f"{word}+{word}://other", f"{word}+any://x", f"{word}://x"),
        *(f"{word}+{word}://{{name}}", f"skill://{word}/SKILL.md", f"{word}+skill://{word}/SKILL.md", f"ui://{word}/x"),
    ]  # fmt: skip
    argument = {"name": "name", "value": ""}
    found = [call(name, {"text": "x"}) for name in names]
    found += [call("call_tool", {"name": name, "arguments": {}}) for name in names]
    found += [call("search_tools", {"query": word}), call("run_code", {"code": f"{word}_{word}()"})]
    found += [request("prompts/get", {"name": name}) for name in names]
    for method in (
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "skills/get",
        "resources/directory/read",
    ):
        found += [request(method, {"uri": uri}) for uri in uris]
    for uri in uris:
        ref = {"type": "ref/resource", "uri": uri}
        found.append(request("completion/complete", {"ref": ref, "argument": argument}))
        found.append(request(f"mix/{word}", {"uri": uri}))
    for name in names:
        ref = {"type": "ref/prompt", "name": name}
        found.append(request("completion/complete", {"ref": ref, "argument": {"name": "topic", "value": ""}}))
    for method in ("events/poll", "events/subscribe", "events/unsubscribe"):
        for name in (f"{word}.built", f"{word}_{word}.built"):
            delivery = {"mode": "webhook", "url": "https://example.com/hook"}
            found.append(request(method, {"name": name, "arguments": {}, "delivery": delivery}))
    found.append(request(f"mix/{word}", {}))
    return found


@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_a_tool_with_approval_runs_in_no_way_without_it(world: World, era: str) -> None:
    ways = {
        "asked": [
            *(call(name, {"text": "x"}) for name in ("squeak", "mouse_mouse")),
            *(call(name) for name in ("mouse_mouse_job", "mouse_mouse_large")),
            *(call("call_tool", {"name": name, "arguments": {}}) for name in ("squeak", "mouse_mouse_job")),
        ],
        "coded": [
            call("mouse_mouse", {"text": "x"}),
            call("run_code", {"code": "await mouse_mouse(text='x')"}),
        ],
    }
    with anyio.fail_after(DEADLINE_SECONDS):
        async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http:
            for profile, messages in ways.items():
                client = Client(world, http, profile, ROOT, era)
                for message in messages:
                    answer = await client.ask(message)
                    text = json.dumps(answer.get("result", {}).get("content"))
                    assert "mouse x" not in text, (message, answer)
                    assert "mouse mouse" not in text, (message, answer)
                    assert text != '[{"type": "text", "text": "mouse"}]', (message, answer)
                    if task := answer.get("result", {}).get("taskId"):
                        state: Any = {}
                        while state.get("status") not in {"input_required", "failed", "completed"}:
                            state = (await client.ask(request("tasks/get", {"taskId": task})))["result"]
                        assert state["status"] != "completed" or state["result"]["isError"], state


LISTS = (
    *("tools/list", "resources/list", "resources/templates/list", "prompts/list", "skills/list", "events/list"),
    "server/discover",
)


def comparable(text: str) -> str:
    """Return an answer without what differs from one request to the next."""
    return re.sub(r'"(id|.*?requestId)":\s*("[^"]*"|\d+)', "", text.replace(SECRET, NOTHING))


@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize("profile", ["mouse", "found", "part"])
async def test_whatever_a_caller_names_of_another_profile_does_not_exist(world: World, profile: str, era: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http:
            client = Client(world, http, profile, BOB, era)
            for method in LISTS:
                answer = await client.send(request(method))
                assert SECRET not in answer.text, method
            for secret, nothing in zip(probes(SECRET), probes(NOTHING), strict=True):
                found, expected = await client.send(secret), await client.send(nothing)
                assert (found.status_code, comparable(found.text)) == (
                    expected.status_code,
                    comparable(expected.text),
                ), secret


async def test_requests_of_extensions_pass_unless_a_profile_selects_single_items(world: World) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http:
            for profile, passes in (("mouse", True), ("found", True), ("part", False)):
                answer = await Client(world, http, profile, BOB, "modern").ask(request("mix/mouse", {}))
                assert ("result" in answer, "Method not found" in str(answer)) == (passes, not passes)


async def test_a_profile_has_its_own(world: World) -> None:
    """The other tests could not fail if nothing were found."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http:
            client = Client(world, http, SECRET, ROOT, "modern")
            for message in (
                call(f"{SECRET}_{SECRET}", {"text": "x"}),
                request("resources/read", {"uri": f"{SECRET}+{SECRET}://listed/it"}),
                request("resources/read", {"uri": f"{SECRET}+{SECRET}://other"}),
                request("prompts/get", {"name": f"{SECRET}_{SECRET}_prompt"}),
                request("skills/get", {"uri": f"{SECRET}+skill://{SECRET}/SKILL.md"}),
                request(f"mix/{SECRET}", {}),
            ):
                assert message in probes(SECRET)
                answer = await client.ask(message)
                assert SECRET in json.dumps(answer.get("result")), (message, answer)
            for method in LISTS:
                assert SECRET in (await client.send(request(method))).text, method


@pytest.mark.parametrize("profile", ["mouse", "found", "part"])
async def test_tasks_kept_results_and_sessions_are_of_their_profile_alone(world: World, profile: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http:
            owner = Client(world, http, SECRET, ROOT, "modern")
            task = (await owner.ask(call(f"{SECRET}_{SECRET}_job")))["result"]["taskId"]
            large = await owner.ask(call(f"{SECRET}_{SECRET}_large"))
            (uri,) = set(re.findall(r"kept-result:///[\w-]+", json.dumps(large)))
            assert SECRET in (await owner.send(request("resources/read", {"uri": uri}))).text
            assert "error" not in await owner.ask(request("tasks/get", {"taskId": task}))
            for key in (BOB, ROOT):  # the caller who has them, too
                client = Client(world, http, profile, key, "modern")
                for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                    answer = await client.ask(request(method, {"taskId": task, "inputResponses": {}}))
                    assert answer["error"]["message"].startswith(("there is no task", "Method not found")), answer
                for message in (
                    request("resources/read", {"uri": uri}),
                    call("read_result", {"uri": uri}),
                    request("resources/subscribe", {"uri": uri}),
                ):
                    assert SECRET not in (await client.send(message)).text
            session = Client(world, http, SECRET, ROOT, "handshake")
            assert "result" in await session.ask(request("tools/list"))
            session.url = f"{world.origin}/mcp/{profile}"
            for method in ("POST", "GET", "DELETE"):
                response = await http.request(method, session.url, headers=session.session, json=request("tools/list"))
                assert response.status_code == 404, (method, response.text)


@pytest.mark.parametrize("profile", ["mouse", "found", "part"])
async def test_changes_and_updates_of_another_profile_are_not_announced(world: World, profile: str) -> None:
    secret = f"{SECRET}+{SECRET}://listed/it"
    own = "mouse+mouse://listed/it"
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": [secret, own],
    }
    whole = modern(request("subscriptions/listen", {"notifications": wanted}))
    headers = modern_headers(whole) | bearer(BOB)

    @tool(name="quagga")
    async def quagga() -> str:
        """Bray."""
        return SECRET

    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http,
            http.stream("POST", f"{world.origin}/mcp/{profile}", json=whole, headers=headers) as stream,
        ):
            lines = (line async for line in stream.aiter_lines() if line.startswith("data: "))
            acknowledged = json.loads((await anext(lines)).removeprefix("data: "))
            assert acknowledged["params"]["notifications"]["resourceSubscriptions"] == [own]
            world.boxes[SECRET].add(quagga)
            world.resources[SECRET].updated(f"{SECRET}://listed/it")
            client = Client(world, http, SECRET, ROOT, "modern")
            while "quagga" not in (await client.send(request("tools/list"))).text:
                pass
            world.boxes[SECRET].remove("quagga")
            while "quagga" in (await client.send(request("tools/list"))).text:
                pass
            world.resources["mouse"].updated("mouse://listed/it")
            last = json.loads((await anext(lines)).removeprefix("data: "))
            assert (last["method"], last["params"]["uri"]) == ("notifications/resources/updated", own)
