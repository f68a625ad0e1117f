"""Middleware of mounted servers: around their own features, inside of that of the outer server, and live."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bridge import (
    DefinitionError,
    File,
    InvocationContext,
    Middleware,
    ResourceBox,
    Server,
    ToolBox,
    ToolError,
    ToolExecutionResult,
    filtered,
    prompt,
    resource,
    tool,
)
from bridge.middleware import CompleteRequest, GetPromptRequest, ReadResourceRequest
from bridge.server import Features, http_app, namespaced
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.testing import connected
from bridge.tools import Completion
from bridge.tools.tool import ToolExecutionRequest
from tests.server.http_server import answer, modern, modern_headers, open_session, request, whole_client
from tests.server.middleware.surrounded import CHANGED, ERAS, FEATURES, LOG, TOLD, Changing, Era, Json, Recording, add

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.anyio
VERSION = "io.github.mcp-toolbridge/version"


@pytest.fixture(autouse=True)
def _empty() -> None:
    LOG.clear()


@tool
async def plus(a: int, b: int) -> int:
    LOG.append("plus")
    return a + b


@resource("own://{day}", completions={"day": ["friday"]})
async def own_day(day: str) -> str:
    return f"own {day}"


@prompt(completions={"topic": ["coffee"]})
async def own_review(topic: str) -> str:
    return f"Own {topic}"


OWN = (plus, own_day, own_review)


def renamed(reply: Any) -> Any:
    """Return what `CHANGED` has, as the server has it that mounts the changing one as ``x``."""
    return [(f"x+{uri}", text) for uri, text in reply] if reply and isinstance(reply[0], tuple) else reply


REQUESTS: list[tuple[str, Json, Any]] = [
    ("tools/call", {"name": "x_add", "arguments": {"a": 2, "b": 3}}, CHANGED["tools/call"]),
    ("tools/call", {"name": "plus", "arguments": {"a": 2, "b": 3}}, ["5"]),
    ("resources/read", {"uri": "x+notes://monday"}, renamed(CHANGED["resources/read"])),
    ("resources/read", {"uri": "x+notes://today"}, [("x+notes://today", "buy milk, and bread")]),
    ("resources/read", {"uri": "own://a"}, [("own://a", "own a")]),
    ("prompts/get", {"name": "x_review", "arguments": {"topic": "tea"}}, CHANGED["prompts/get"]),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "x_review"}, "argument": {"name": "topic", "value": "t"}},
        ["tea", "bread"],
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "x+notes://{day}"}, "argument": {"name": "day", "value": "m"}},
        ["monday", "bread"],
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "own_review"}, "argument": {"name": "topic", "value": ""}},
        ["coffee"],
    ),
    ("tools/list", {}, ["plus", "x_add", "x_subtract"]),
    ("resources/list", {}, []),
    ("resources/templates/list", {}, ["own://{day}"]),
    ("prompts/list", {}, ["own_review"]),
]


@pytest.mark.parametrize("nested", [False, True])
def test_everything_of_a_mounted_server_is_surrounded_and_nothing_else(
    serving: Callable[..., str], nested: bool
) -> None:
    inner = Server(FEATURES, name="inner", middleware=[Changing()])
    if nested:
        between, inner = inner, Server(name="between")
        inner.mount(between)
    server = Server(OWN, name="outer")
    server.mount(inner, prefix="x")
    url = serving(http_app(server)) + "/mcp"
    with whole_client() as client:
        session = open_session(client, url)
        for method, params, told in REQUESTS:
            in_session = answer(client.post(url, json=request(method, params), headers=session))
            message = modern(request(method, params))
            alone = answer(client.post(url, json=message, headers=modern_headers(message)))
            for reply in (in_session, alone):
                found = TOLD[method](reply["result"])
                if method == "prompts/get":
                    found = (found[0], found[1])
                assert found == told, (method, params)


@pytest.mark.parametrize("protocol", ERAS)
async def test_the_outer_middleware_is_outside_and_each_sees_the_names_of_its_server(protocol: Era) -> None:
    inner = Server(FEATURES, name="inner", middleware=[Recording("inner")])
    between = Server(name="between", middleware=[Recording("between")])
    outer = Server(OWN, name="outer", middleware=[Recording("outer")])
    between.mount(inner, prefix="y")
    outer.mount(between, prefix="x")

    def around_it(*targets: str, runs: str | None, hooks: tuple[str, ...] = ("on_request",)) -> list[str]:
        names = ("outer", "between", "inner")
        begun = [f"{name} {hook} {target}" for name, target in zip(names, targets, strict=True) for hook in hooks]
        return [*begun, *([runs] if runs else ()), *(f"{name} end" for name in reversed(names) for _ in hooks)]

    async with connected(outer, protocol=protocol) as provider:
        assert provider.tools.find("x_y_add")
        LOG.clear()
        assert (await provider.call("x_y_add", {"a": 2, "b": 3})).text == "5"
        hooks = ("on_request", "call_tool")
        assert around_it("x_y_add", "y_add", "add", runs="add", hooks=hooks) == LOG
        LOG.clear()
        await provider.call("plus", {"a": 2, "b": 3})
        assert LOG == ["outer on_request plus", "outer call_tool plus", "plus", "outer end", "outer end"]
        LOG.clear()
        assert (await provider.resources.read("x+y+notes://today"))[0].content == "buy milk"
        assert around_it("x+y+notes://today", "y+notes://today", "notes://today", runs="today") == LOG
        LOG.clear()
        assert (await provider.resources.read("x+y+notes://monday"))[0].content == "notes of monday"
        assert around_it("x+y+notes://monday", "y+notes://monday", "notes://monday", runs=None) == LOG
        await provider.prompts.list()
        LOG.clear()
        await provider.prompts.render("x_y_review", {"topic": "it"})
        assert around_it("x_y_review", "y_review", "review", runs=None) == LOG
        LOG.clear()
        await provider.prompts.complete("x_y_review", "topic", "t")
        assert around_it("x_y_review", "y_review", "review", runs=None) == LOG
        LOG.clear()
        await provider.resources.list()
        listed = [each for each in LOG if each.startswith("inner") and "list" in each]
        assert listed == ["inner on_request resources/list", "inner on_request resources/templates/list"]


class Hiding(Middleware):
    """Leaves out tools by the end of their names, and describes the others."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self.seen: list[list[str]] = []

    async def list_tools(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        found = await call_next(request, context)
        self.seen.append([each.name for each in found])
        return [
            replace(each, specification=replace(each.specification, description=f"{context.lifespan} has it"))
            for each in found
            if each.name not in self._names
        ]


@pytest.mark.parametrize("protocol", ERAS)
async def test_changes_apply_to_the_middleware_of_what_is_mounted(protocol: Era) -> None:
    async def opened() -> AsyncIterator[str]:
        yield "the inner one"

    tools = ToolBox(add)
    hiding, deeper = Hiding("plus"), Hiding("deep")
    inner = Server(tools, name="inner", middleware=[hiding, Recording("inner")], lifespan=opened)
    outer = Server(OWN, name="outer")
    outer.mount(inner, prefix="x")
    texts = [tool(name="deep")(lambda: "deep"), tool(name="flat")(lambda: "flat")]
    third = Server(texts, name="third", middleware=[deeper])
    inner.mount(third, prefix="y")  # once it is mounted itself
    async with connected(outer, protocol=protocol) as provider:
        assert [each.name for each in provider.tools] == ["plus", "x_add", "x_y_flat"]
        assert provider.tools.get("x_add").specification.description == "the inner one has it"
        assert hiding.seen[-1] == ["add", "y_flat"]
        assert deeper.seen[-1] == ["deep", "flat"]
    tools.add(plus, tool(name="more")(lambda: "more"))
    async with connected(outer, protocol=protocol) as provider:
        assert [each.name for each in provider.tools] == ["plus", "x_add", "x_more", "x_y_flat"]
    LOG.clear()
    assert (await ToolBox(outer).call("x_plus", {"a": 1, "b": 1})).text == "2", "only its list leaves it out"
    assert LOG[1:3] == ["inner call_tool plus", "plus"]
    inner.disable("more")
    async with connected(outer, protocol=protocol) as provider:
        assert [each.name for each in provider.tools] == ["plus", "x_add", "x_y_flat"]


async def test_middleware_of_features_is_kept_where_they_are_combined() -> None:
    surrounded = replace(Features.of(add), middleware=(Recording("one"),))
    together = Features.of(surrounded, plus)
    assert together.middleware == ()
    box = ToolBox(Server(together, name="both"))
    assert (await box.call("add", a=1, b=2)).text == "3"
    assert LOG == ["one on_request add", "one call_tool add", "add", "one end", "one end"]
    LOG.clear()
    await box.call("plus", a=1, b=2)
    assert LOG == ["plus"]
    server = Server(surrounded, name="alone", middleware=[Recording("two")])
    assert [each.name for each in server.middleware if isinstance(each, Recording)] == ["two", "one"]
    for source in (namespaced(server, "x"), filtered(server, include={"add"})):
        LOG.clear()
        (name,) = [each.name for each in source.tools]
        await ToolBox(source).call(name, a=1, b=2)
        assert [each for each in LOG if "call_tool" in each] == ["two call_tool add", "one call_tool add"]


class Redirecting(Middleware):
    """Answers by another tool, resource, prompt and template than the request names, or by one that is missing."""

    def __init__(self, end: str = "") -> None:
        self._end = end

    async def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await call_next(ToolExecutionRequest("subtract" + self._end, request.arguments), context)

    async def read_resource(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await call_next(ReadResourceRequest("notes://today" if not self._end else "notes:gone"), context)

    async def get_prompt(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await call_next(GetPromptRequest("own_review" + self._end, {"topic": "x"}), context)

    async def complete(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        other = CompleteRequest("prompts", "own_review" + self._end, "topic", "")
        return await call_next(other, context)


ASKED: list[tuple[str, Json]] = [
    ("tools/call", {"name": "x_add", "arguments": {"a": 2, "b": 3}}),
    ("resources/read", {"uri": "x+notes://monday"}),
    ("prompts/get", {"name": "x_review", "arguments": {"topic": "tea"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "x_review"}, "argument": {"name": "topic", "value": "t"}},
    ),
]


def test_it_may_use_others_of_its_server_unless_the_caller_is_restricted(serving: Callable[..., str]) -> None:
    full, some = "full-full-full-full-full", "some-some-some-some-some"
    keys = ApiKeys(ApiKey("full", full), ApiKey("some", some, tools=("x_*",)))
    told: Json = {
        "tools/call": ["-1"],
        "resources/read": [("x+notes://today", "buy milk")],
        "prompts/get": ("A review.", ["Own x"]),
        "completion/complete": ["coffee"],
    }
    errors = ("no tool named 'subtract.gone'", "no resource 'x+notes://monday'", "no prompt 'own_review.gone'", None)
    for end in ("", ".gone"):
        server = Server(name="outer")
        server.mount(Server([*FEATURES, own_review], name="inner", middleware=[Redirecting(end)]), prefix="x")
        url = serving(http_app(server, auth=Auth(keys))) + "/mcp"
        with whole_client() as client:
            for (method, params), error in zip(ASKED, errors, strict=True):
                message = modern(request(method, params))
                replies = {
                    key: answer(
                        client.post(
                            url, json=message, headers={**modern_headers(message), "Authorization": f"Bearer {key}"}
                        )
                    )
                    for key in (full, some)
                }
                assert "permissions" in str(replies[some])
                if not end:
                    assert TOLD[method](replies[full]["result"]) == told[method]
                elif error is not None:
                    assert error in str(replies[full])
                else:
                    assert replies[full]["result"]["completion"]["values"] == []


class Refusing(Middleware):
    async def call_tool(self, *_: Any) -> Any:
        raise ToolError("not today")

    async def read_resource(self, *_: Any) -> Any:
        raise ToolError("not today")

    async def get_prompt(self, *_: Any) -> Any:
        raise ToolError("not today")

    async def complete(self, *_: Any) -> Any:
        raise ToolError("not today")


def test_it_refuses_with_a_text_for_the_client(serving: Callable[..., str]) -> None:
    server = Server(name="outer")
    server.mount(Server(FEATURES, name="inner", middleware=[Refusing()]), prefix="x")
    url = serving(http_app(server)) + "/mcp"
    with whole_client() as client:
        for method, params in ASKED:
            message = modern(request(method, params))
            assert "not today" in str(answer(client.post(url, json=message, headers=modern_headers(message))))


async def test_the_middleware_has_the_lifespan_of_its_server() -> None:
    seen: list[object] = []

    class Seeing(Middleware):
        async def on_request(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
            seen.append(context.lifespan)
            return await call_next(request, context)

    async def outer_lifespan() -> AsyncIterator[str]:
        yield "outer"

    async def inner_lifespan() -> AsyncIterator[str]:
        yield "inner"

    server = Server(OWN, name="outer", lifespan=outer_lifespan, middleware=[Seeing()])
    server.mount(Server(FEATURES, name="inner", lifespan=inner_lifespan, middleware=[Seeing()]), prefix="x")
    async with connected(server) as provider:
        for use in (
            lambda: provider.call("x_add", {"a": 1, "b": 2}),
            lambda: provider.resources.read("x+notes://today"),
            lambda: provider.prompts.render("x_review", {"topic": "it"}),
            lambda: provider.prompts.complete("x_review", "topic", "t"),
        ):
            seen.clear()
            await use()
            assert seen[-2:] == ["outer", "inner"]


def test_servers_that_mount_each_other_are_refused() -> None:
    one, two, three = (Server(tool(name=name)(lambda: ""), name=name) for name in ("one", "two", "three"))
    one.mount(two, prefix="x")
    with pytest.raises(DefinitionError, match="'one' cannot be mounted on the server 'two', which it has mounted"):
        two.mount(one)
    two.mount(three, prefix="y")
    for source, prefix in ((one, "z"), (filtered(one), None), ([one, plus], None)):
        with pytest.raises(DefinitionError, match="cannot be mounted on the server 'three', which it has mounted"):
            three.mount(source, prefix=prefix)
    assert [each.name for each in one.tools] == ["one", "x_two", "x_y_three"]


async def test_resources_that_are_only_found_are_surrounded() -> None:
    box = ResourceBox(own_day)

    class Instead(Middleware):
        async def read_resource(self, request: Any, *_: Any) -> ToolExecutionResult:
            return ToolExecutionResult((File(request.uri, "instead", "text/plain"),))

        async def complete(self, *_: Any) -> Completion:
            return Completion(("instead",), 1)

    server = Server(name="outer")
    server.mount(Server([box, plus], name="inner", middleware=[Instead()]), prefix="x")
    async with connected(server) as provider:
        (found,) = await provider.resources.read("x+own://any")
        assert (found.uri, found.content) == ("x+own://any", "instead")
        assert (await provider.resources.complete("x+own://{day}", "day", "")).values == ("instead",)
