"""Answers, refusals and errors of middleware."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge import Caller, DefinitionError, InvocationContext, Middleware, ToolError
from bridge.errors import ResourceNotFoundError, ServerRefusedError, UnknownToolError
from bridge.middleware import ProtocolError
from bridge.server import Features, Server, http_app
from bridge.server.auth.access import EVERYTHING, Access, ToolScopes
from bridge.server.exchange import LocalOrigin
from bridge.server.limits import Limits, Rate
from bridge.server.observed import dispatch_of
from bridge.testing import connected
from bridge.tools.tool import ToolExecutionRequest
from tests.server.http_server import answer, modern, modern_headers, request, whole_client

if TYPE_CHECKING:
    from collections.abc import Callable

from tests.server.middleware.surrounded import (
    ERAS,
    FEATURES,
    LOCAL,
    LOG,
    REQUESTS,
    Answering,
    Changing,
    Era,
    Json,
    Recording,
    add,
    answered,
)


def replies(url: str, client: Any, method: str, params: Json) -> Json:
    message = modern(request(method, params))
    reply: Json = answer(client.post(url, json=message, headers=modern_headers(message)))
    return reply


def test_middleware_answers_in_place_of_functions_and_for_what_does_not_exist(serving: Callable[..., str]) -> None:
    limits = Limits(tool_rates={"add": Rate(1, 3600)})
    server = Server(Features.of(*FEATURES), name="bridge", middleware=[Answering()], limits=limits)
    url = serving(server.http_app()) + "/mcp"
    with whole_client() as client:
        for name in ("add", "nothing", "nothing"):
            result = replies(url, client, "tools/call", {"name": name, "arguments": {"a": 1, "b": 2}})["result"]
            assert result["content"][0]["text"] == f"instead of {name}"
        again = replies(url, client, "tools/call", {"name": "add"})["result"]
        assert again["isError"], "limits apply outside of middleware"
        for uri in ("notes://today", "none://x"):
            result = replies(url, client, "resources/read", {"uri": uri})["result"]
            assert result["contents"] == [{"uri": uri, "text": "instead", "mimeType": "text/plain"}]
        result = replies(url, client, "prompts/get", {"name": "nothing"})["result"]
        assert result["messages"][0]["content"]["text"] == "instead of nothing"
    assert LOG == []


@pytest.mark.anyio
async def test_callers_of_a_part_are_not_answered_for_the_rest() -> None:
    server = Server(Features.of(*FEATURES), name="part", middleware=[Answering()])
    origin = LocalOrigin(Access(tools=("subtract", "day_of")), Caller("ada"))
    expected = {
        "tools/call": ({"name": "add"}, "there is no tool named 'add'"),
        "resources/read": ({"uri": "notes://today"}, "there is no resource 'notes://today'"),
        "prompts/get": ({"name": "review"}, "there is no prompt 'review'"),
    }
    for method, (params, message) in expected.items():
        exchange = dispatch_of(server).modern(modern(request(method, params)), origin)
        assert json.loads(await answered(exchange))["error"]["message"].startswith(message)
    for name in ("subtract", "nothing"):  # the second for those alone from whom nothing is hidden
        exchange = dispatch_of(server).modern(modern(request("tools/call", {"name": name})), origin)
        assert ("instead of" in (await answered(exchange)).decode()) == (name == "subtract")
    scoped = LocalOrigin(Access(tool_scopes=ToolScopes({"add": ["write"], "secret*": ["write"]})), Caller("bob"))
    for name in ("add", "secret", "nothing"):
        exchange = dispatch_of(server).modern(modern(request("tools/call", {"name": name})), scoped)
        assert ("instead of" in (await answered(exchange)).decode()) == (name == "nothing")


class Refusing(Middleware):
    """Refuses everything."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def on_request(self, *_: Any) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (ToolError("not today"), "not today", -32603),
        (ProtocolError(-32050, "not today", {"hint": 1}), "not today", -32050),
        (ValueError("a secret"), None, -32603),
    ],
)
def test_middleware_refuses_every_kind(
    serving: Callable[..., str], error: Exception, text: str | None, code: int
) -> None:
    url = serving(http_app(Server(Features.of(*FEATURES), name="bridge", middleware=[Refusing(error)]))) + "/mcp"
    with whole_client() as client:
        for method, params in REQUESTS:
            reply = replies(url, client, method, params)
            if method == "tools/call" and not isinstance(error, ProtocolError):
                assert reply["result"]["isError"]
                message = reply["result"]["content"][0]["text"]
            else:
                assert (reply["error"]["code"], reply["error"].get("data", {}).get("hint")) == (
                    code,
                    1 if code == -32050 else None,
                )
                message = reply["error"]["message"]
            assert message == text if text else "secret" not in message


class Seeing(Middleware):
    """Stores the errors of what it surrounds."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    async def on_request(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        try:
            return await call_next(request, context)
        except BaseException as error:
            self.errors.append(error)
            raise


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ERAS)
async def test_failures_are_raised_through_middleware_and_answered_as_without_it(protocol: Era) -> None:
    seeing = Seeing()
    async with (
        connected(*FEATURES, protocol=protocol, middleware=[seeing]) as provider,
        connected(*FEATURES, protocol=protocol) as plain,
    ):
        for name, arguments in [("fail", {"text": "no"}), ("fail", {"text": ""}), ("add", {"a": "x"})]:
            with_it, without = [await each.call(name, arguments) for each in (provider, plain)]
            assert (with_it.text, with_it.is_error) == (without.text, True)
        assert [type(each).__name__ for each in seeing.errors] == ["ToolError", "ValueError", "ArgumentsError"]
        for each in (provider, plain):
            with pytest.raises(ResourceNotFoundError):
                await each.resources.read("none://x")
            with pytest.raises(ServerRefusedError, match="topic"):
                await each.prompts.render("review")
        for each in (provider, plain):
            with pytest.raises(ServerRefusedError, match="there is no tool named 'ad'; did you mean 'add'"):
                await each.connections["memory"].call_tool("ad", {}, context=InvocationContext())
        assert isinstance(seeing.errors[-1], UnknownToolError)


class Renaming(Middleware):
    """Calls another tool, and reads what the notes of the name in place of ``old`` are."""

    async def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await call_next(ToolExecutionRequest("subtract", request.arguments), context)


@pytest.mark.anyio
async def test_another_tool_may_run_within_what_the_caller_may_call() -> None:
    server = Server(Features.of(*FEATURES), name="renamed", middleware=[Renaming()])
    message = modern(request("tools/call", {"name": "add", "arguments": {"a": 5, "b": 2}}))
    for patterns, text in ((None, "3"), (("add",), "there is no tool named 'subtract'")):
        access = EVERYTHING if patterns is None else Access(tools=patterns)
        reply = json.loads(await answered(dispatch_of(server).modern(message, LocalOrigin(access))))
        assert text in json.dumps(reply)


class Wrong(Middleware):
    """Returns what is no result."""

    async def on_request(self, *_: Any) -> str:
        return "text"


@pytest.mark.anyio
async def test_a_wrong_result_is_an_error_of_the_server_that_names_the_middleware(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(Features.of(*FEATURES), name="wrong", middleware=[Wrong()])
    for method, params in REQUESTS:
        caplog.clear()
        reply = json.loads(await answered(dispatch_of(server).modern(modern(request(method, params)), LOCAL)))
        assert "'text'" not in json.dumps(reply)
        assert "returned 'text'; return a" in caplog.text
        assert "Wrong.on_request" in caplog.text


@pytest.mark.parametrize("given", [Recording, [Recording], ["no"], [add]])
def test_middleware_is_objects_of_its_class(given: Any) -> None:
    with pytest.raises(DefinitionError, match="middleware"):
        Server([add], name="wrong", middleware=given)


def test_a_method_of_middleware_takes_three_arguments() -> None:
    class Short(Middleware):
        async def call_tool(self, request: Any) -> Any:  # type: ignore[override]  # what is refused
            return request

    with pytest.raises(DefinitionError, match=r"the method call_tool of Short is called with 3 arguments, the request"):
        Server([add], name="wrong", middleware=[Short()])


def test_a_server_has_its_own_middleware() -> None:
    with pytest.raises(TypeError, match="'middleware'"):
        http_app(Server([add], name="own"), middleware=[Changing()])  # type: ignore[call-arg]  # what is refused
