"""Tags, versions and switches of tools, resources and prompts, as clients see them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge import DefinitionError, NameClashError, Server, ToolBox, filtered, prompt, resource, tool
from bridge.server import Features, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.testing import connected
from bridge.tools.labels import version_order
from tests.server.http_server import answer, modern, modern_headers, open_session, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS = "io.github.mcp-toolbridge"
PUBLIC_KEY, FULL_KEY = "public-public-public", "full-full-full-full-full"


@tool(tags={"public", "math"})
async def add(a: int, b: int) -> int:
    return a + b


@tool(tags={"admin"})
async def drop() -> str:
    return "dropped"


@tool(name="convert", version="1.9")
async def convert_1() -> str:
    return "1.9"


@tool(name="convert", version="1.10", tags={"public"})
async def convert_10(to: str = "") -> str:
    return f"1.10{to}"


@tool(name="convert", version="2.0b1")
def convert_2(to: str = "") -> str:
    return f"2.0b1{to}"


@resource("notes://{name}", version="1", tags={"public"})
async def note_1(name: str) -> str:
    return f"old {name}"


@resource("notes://{name}", name="note", version="2")
async def note_2(name: str) -> str:
    return f"new {name}"


@prompt(name="ask", version="1", tags={"public"})
async def ask_1() -> str:
    return "old"


@prompt(name="ask", version="2", enabled=True)
def ask_2() -> str:
    return "new"


@tool(enabled=False)
async def later() -> str:
    return "later"


ALL = (add, drop, convert_1, convert_10, convert_2, note_1, note_2, ask_1, ask_2, later)


class Client:
    """Sends requests in one era."""

    def __init__(self, origin: str, era: str, key: str = "") -> None:
        self._url, self._is_modern = f"{origin}/mcp", era == "modern"
        self._client = httpx.Client(timeout=40, headers={"authorization": f"Bearer {key}"} if key else {})
        self._headers = {} if self._is_modern else open_session(self._client, self._url)

    def close(self) -> None:
        self._client.close()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        message = request(method, params)
        if self._is_modern:
            message = modern(message)
        headers = modern_headers(message) if self._is_modern else self._headers
        return answer(self._client.post(self._url, json=message, headers=headers))

    def names(self) -> list[str]:
        tools = [each["name"] for each in self.send("tools/list")["result"]["tools"]]
        prompts = [each["name"] for each in self.send("prompts/list")["result"]["prompts"]]
        return [*tools, *prompts]

    def text_of_call(self, name: str, meta: dict[str, Any], **arguments: Any) -> str:
        text: str = self.send("tools/call", name=name, arguments=arguments, _meta=meta)["result"]["content"][0]["text"]
        return text


@pytest.fixture(params=["handshake", "modern"])
def client_of(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Create clients of one era, which are closed at the end of the test."""
    with ExitStack() as stack:

        def client_of(origin: str, key: str = "") -> Client:
            client = Client(origin, request.param, key)
            stack.callback(client.close)
            return client

        yield client_of


def test_labels_are_in_meta_and_the_newest_version_is_listed(
    serving: Callable[..., str], client_of: Callable[..., Client]
) -> None:
    client = client_of(serving(http_app(Server(ALL, name="labels"))))
    assert client.names() == ["add", "drop", "convert", "ask"]
    metas = {each["name"]: each.get("_meta") for each in client.send("tools/list")["result"]["tools"]}
    assert metas["add"] == {f"{OURS}/tags": ["math", "public"]}
    assert metas["convert"] == {f"{OURS}/version": "2.0b1", f"{OURS}/versions": ["2.0b1", "1.10", "1.9"]}
    (template,) = client.send("resources/templates/list")["result"]["resourceTemplates"]
    assert (template["name"], template["_meta"][f"{OURS}/versions"]) == ("note", ["2", "1"])


def test_each_version_is_used_where_a_request_names_it(
    serving: Callable[..., str], client_of: Callable[..., Client]
) -> None:
    client = client_of(serving(http_app(Server(ALL, name="labels"))))
    assert client.text_of_call("convert", {}) == "2.0b1"
    for version, text in (("1.9", "1.9"), ("1.10", "1.10"), ("2.0b1", "2.0b1")):
        assert client.text_of_call("convert", {f"{OURS}/version": version}) == text
        assert client.text_of_call("convert", {"fastmcp": {"version": version}}) == text, "FastMCP's clients"
    assert client.text_of_call("convert", {f"{OURS}/version": "1.10"}, to="!") == "1.10!"
    refused = client.send("tools/call", name="convert", arguments={"to": "x"}, _meta={f"{OURS}/version": "1.9"})
    assert refused["result"]["isError"], "the older version takes no argument"
    old = {f"{OURS}/version": "1"}
    read = client.send("resources/read", uri="notes://a", _meta=old)["result"]["contents"]
    assert [each["text"] for each in read] == ["old a"]
    assert client.send("resources/read", uri="notes://a")["result"]["contents"][0]["text"] == "new a"
    assert client.send("prompts/get", name="ask", _meta=old)["result"]["messages"][0]["content"]["text"] == "old"
    assert client.send("prompts/get", name="ask")["result"]["messages"][0]["content"]["text"] == "new"
    assert client.text_of_call("add", old, a=1, b=2) == "3", "it has no versions"


def test_an_unknown_version_is_refused_with_the_known_ones(
    serving: Callable[..., str], client_of: Callable[..., Client]
) -> None:
    client = client_of(serving(http_app(Server(ALL, name="labels"))))
    unknown = {f"{OURS}/version": "3"}
    for method, params, message in (
        ("tools/call", {"name": "convert"}, "the tool 'convert' has no version '3'; there is 2.0b1, 1.10, 1.9"),
        ("resources/read", {"uri": "notes://a"}, "the resource 'notes://a' has no version '3'; there is 2, 1"),
        ("prompts/get", {"name": "ask"}, "the prompt 'ask' has no version '3'; there is 2, 1"),
    ):
        error = client.send(method, **params, _meta=unknown)["error"]
        assert (error["code"], error["message"]) == (-32602, message)


def test_a_key_for_tags_sees_what_has_them_in_the_newest_such_version(
    serving: Callable[..., str], client_of: Callable[..., Client]
) -> None:
    keys = ApiKeys(ApiKey("guest", PUBLIC_KEY, tags=frozenset({"public"})), ApiKey("ops", FULL_KEY))
    origin = serving(http_app(Server(ALL, name="labels"), auth=Auth(keys)))
    guest, ops = client_of(origin, PUBLIC_KEY), client_of(origin, FULL_KEY)
    assert guest.names() == ["add", "convert", "ask"]
    assert guest.text_of_call("convert", {}) == "1.10"
    assert (
        "there is 1.10"
        in guest.send("tools/call", name="convert", _meta={f"{OURS}/version": "1.9"})["error"]["message"]
    )
    assert guest.send("tools/call", name="drop")["error"]["code"] == -32602
    assert guest.send("resources/read", uri="notes://a")["result"]["contents"][0]["text"] == "old a"
    assert guest.send("prompts/get", name="ask")["result"]["messages"][0]["content"]["text"] == "old"
    assert ops.text_of_call("drop", {}) == "dropped"
    assert ops.text_of_call("convert", {}) == "2.0b1"


def test_tags_select_for_a_server_and_may_be_combined() -> None:
    server = Server(ALL, name="labels")
    assert [each.name for each in filtered(server, tags={"public"}).tools] == ["add", "convert"]
    assert [each.name for each in filtered(server, tags={"public", "admin"}, without_tags={"math"}).tools] == [
        "drop",
        "convert",
    ]
    assert [each.name for each in filtered([add, note_1, ask_1, drop], tags=["public"])] == ["add", "note_1", "ask"]
    public = filtered(server, tags={"public"})
    server.tools.add(tool(name="more", tags={"public"})(lambda: ""))
    assert "more" in public.tools
    with pytest.raises(DefinitionError, match="tags must be a list of texts"):
        filtered(server, tags="public")


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_what_is_not_enabled_is_hidden_until_it_is(protocol: Any) -> None:
    server = Server(ALL, name="labels")
    async with connected(server, protocol=protocol) as provider:

        async def until(*names: str) -> None:
            with anyio.fail_after(30):
                while tuple(each.name for each in provider.tools) != names:
                    changed = anyio.Event()
                    end = provider.tools.on_change(changed.set)
                    if tuple(each.name for each in provider.tools) != names:
                        await changed.wait()
                    end()

        await until("add", "drop", "convert")
        server.enable("later")
        await until("add", "drop", "convert", "later")
        assert (await provider.call("later")).text == "later"
        server.disable(tags={"admin", "math"})
        await until("convert", "later")
        server.enable("drop")
        await until("drop", "convert", "later")
        assert server.features.prompts is not None
        server.disable("ask")
        assert len(server.features.prompts) == 0
        with pytest.raises(
            DefinitionError, match=r"there is no tool, resource or prompt 'dorp'; did you mean 'drop'\?"
        ):
            server.enable("dorp")


@pytest.mark.anyio
async def test_switches_of_one_server_do_not_concern_others() -> None:
    tools = ToolBox(add, drop)
    first, second = Server(tools, name="first"), Server(tools, name="second")
    first.disable("add")
    outer = Server(convert_1, name="outer")
    outer.mount(first, prefix="x")
    assert [each.name for each in (*first.tools, *second.tools)] == ["drop", "add", "drop"]
    assert [each.name for each in outer.tools] == ["convert", "x_drop"]
    first.enable("add")
    assert [each.name for each in outer.tools] == ["convert", "x_add", "x_drop"]
    outer.disable("x_add", tags={"admin"})
    tools.add(tool(name="new", tags={"admin"})(lambda: ""))
    assert [each.name for each in outer.tools] == ["convert"]
    assert "new" in first.tools


def test_a_box_has_switches_and_versions() -> None:
    tools, changes = ToolBox(ALL), list[int]()
    tools.on_change(lambda: changes.append(len(tools)))
    tools.disable("add")
    assert "add" not in tools
    with pytest.raises(NameClashError):
        tools.add(add)
    tools.enable("add")
    tools.enable("add")
    assert changes == [2, 3], "nothing has changed the second time"
    assert [each.version for each in tools.all_versions if each.name == "convert"] == ["2.0b1", "1.10", "1.9"]
    tools.remove("convert")
    assert [each.name for each in tools.all_versions] == ["add", "drop"]
    with pytest.raises(DefinitionError, match="there is no 'ad' among the tools; did you mean 'add'"):
        tools.disable("ad")


def test_versions_of_a_name_have_to_differ() -> None:
    unversioned = tool(name="convert")(lambda: "")
    for others in ([convert_1, convert_1], [convert_1, unversioned], [unversioned, convert_1]):
        with pytest.raises(NameClashError):
            ToolBox(*others)
        with pytest.raises(NameClashError):
            Features.of(*(ToolBox(each) for each in others))


def test_versions_are_sorted_as_numbers() -> None:
    versions = ["1.9", "v2", "1.10", "2.0.1", "2.0b1", "2024-01-02", "2.0"]
    assert sorted(versions, key=version_order) == ["1.9", "1.10", "2.0b1", "v2", "2.0", "2.0.1", "2024-01-02"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tags": "public"}, "tags must be a set of texts"),
        ({"tags": {1}}, "tags must be a set of texts"),
        ({"version": 2}, "version must be text, such as '2.0', not 2"),
        ({"enabled": None}, "enabled must be True or False"),
    ],
)
def test_wrong_labels_are_refused(settings: dict[str, Any], problem: str) -> None:
    for decorate in (tool, prompt, lambda **given: resource("a://b", **given)):
        with pytest.raises(DefinitionError, match=problem):
            decorate(**settings)
