"""Tools, resources and prompts, and middleware around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from bridge import (
    File,
    InvocationContext,
    Middleware,
    PromptMessage,
    ToolError,
    ToolExecutionResult,
    prompt,
    resource,
    tool,
)
from bridge.middleware import GetPromptRequest, ReadResourceRequest, method_of, target_of
from bridge.server.auth.access import EVERYTHING
from bridge.server.exchange import LocalOrigin, ServedExchange
from bridge.tools import Completion
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Callable


Json = dict[str, Any]
Era = Literal["legacy", "2026-07-28"]
ERAS: tuple[Era, ...] = ("legacy", "2026-07-28")
DEADLINE_SECONDS = 60
LOG: list[str] = []


@tool
async def add(a: int, b: int) -> int:
    LOG.append("add")
    return a + b


@tool
async def subtract(a: int, b: int) -> int:
    return a - b


@tool
def fail(text: str) -> str:
    raise (ToolError(text) if text else ValueError("a secret"))


@resource("notes://today")
async def today() -> str:
    LOG.append("today")
    return "buy milk"


@resource("notes://{day}", completions={"day": ["monday", "tuesday"]})
def day_of(day: str) -> str:
    return f"notes of {day}"


@prompt(description="A review.", completions={"topic": ["tea", "milk"]})
async def review(topic: str) -> str:
    return f"Review {topic}"


FEATURES = (add, subtract, fail, today, day_of, review)


class Recording(Middleware):
    """Records every request, before and after it is run."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def _around(self, hook: str, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        LOG.append(f"{self.name} {hook} {target_of(request) or method_of(request)}")
        try:
            return await call_next(request, context)
        finally:
            LOG.append(f"{self.name} end")

    async def on_request(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await self._around("on_request", request, context, call_next)

    async def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await self._around("call_tool", request, context, call_next)


class Changing(Middleware):
    """Changes the requests and results of every kind."""

    async def call_tool(
        self, request: ToolExecutionRequest, context: InvocationContext, call_next: Callable[..., Any]
    ) -> ToolExecutionResult:
        changed = ToolExecutionRequest(request.name, {**request.arguments_by_name(), "b": 40})
        result = await call_next(changed, context)
        return ToolExecutionResult((*result.content, *result.content), {"result": 1})

    async def read_resource(
        self, request: ReadResourceRequest, context: InvocationContext, call_next: Callable[..., Any]
    ) -> ToolExecutionResult:
        result = await call_next(ReadResourceRequest("notes://today"), context)
        (block,) = result.content
        assert isinstance(block, File)
        assert isinstance(block.content, str)
        return ToolExecutionResult((File(request.uri, f"{block.content}, and bread", "text/plain"),))

    async def get_prompt(
        self, request: GetPromptRequest, context: InvocationContext, call_next: Callable[..., Any]
    ) -> ToolExecutionResult:
        result = await call_next(GetPromptRequest(request.name, {"topic": "bread"}), context)
        return ToolExecutionResult((), value=(*result.value, PromptMessage("Be brief.")))

    async def complete(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Completion:
        completion = await call_next(request, context)
        return Completion((*completion.values, "bread"), None)

    async def list_tools(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return [each for each in await call_next(request, context) if each.name != "fail"]

    async def list_resources(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return [each for each in await call_next(request, context) if each.uri != "notes://today"]

    async def list_resource_templates(
        self, request: Any, context: InvocationContext, call_next: Callable[..., Any]
    ) -> Any:
        return [each for each in await call_next(request, context) if "day" not in str(each.uri_template)]

    async def list_prompts(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return (*await call_next(request, context),)[1:]


REQUESTS: list[tuple[str, Json]] = [
    ("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}),
    ("resources/read", {"uri": "notes://monday"}),
    ("prompts/get", {"name": "review", "arguments": {"topic": "tea"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "topic", "value": "t"}},
    ),
    ("tools/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("prompts/list", {}),
]
"""A request of each kind."""


TOLD: dict[str, Callable[[Json], Any]] = {
    "tools/call": lambda result: [block["text"] for block in result["content"]],
    "resources/read": lambda result: [(each["uri"], each["text"]) for each in result["contents"]],
    "prompts/get": lambda result: (
        result["description"],
        [each["content"]["text"] for each in result["messages"]],
    ),
    "completion/complete": lambda result: result["completion"]["values"],
    "tools/list": lambda result: [each["name"] for each in result["tools"]],
    "resources/list": lambda result: [each["uri"] for each in result["resources"]],
    "resources/templates/list": lambda result: [each["uriTemplate"] for each in result["resourceTemplates"]],
    "prompts/list": lambda result: [each["name"] for each in result["prompts"]],
}
"""Content of a result of `REQUESTS`, by method."""


CHANGED: Json = {
    "tools/call": ["42", "42"],
    "resources/read": [("notes://monday", "buy milk, and bread")],
    "prompts/get": ("A review.", ["Review bread", "Be brief."]),
    "completion/complete": ["tea", "bread"],
    "tools/list": ["add", "subtract"],
    "resources/list": [],
    "resources/templates/list": [],
    "prompts/list": [],
}


async def answered(exchange: bytes | ServedExchange) -> bytes:
    return exchange if isinstance(exchange, bytes) else (await exchange.responder.run(exchange))[0]


LOCAL = LocalOrigin(EVERYTHING)


class Answering(Middleware):
    """Answers in place of everything, also what does not exist."""

    async def call_tool(self, request: Any, *_: Any) -> ToolExecutionResult:
        return ToolExecutionResult.of_text(f"instead of {request.name}")

    async def read_resource(self, request: Any, *_: Any) -> ToolExecutionResult:
        return ToolExecutionResult((File(request.uri, "instead", "text/plain"),))

    async def get_prompt(self, request: Any, *_: Any) -> ToolExecutionResult:
        return ToolExecutionResult((), value=(PromptMessage(f"instead of {request.name}"),))


class SyncRefusing(Middleware):
    """Sees the error of what it surrounds, and raises another."""

    def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        try:
            return call_next(request, context)
        except ToolError as error:
            raise ToolError(f"not {error}") from error

    def list_tools(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return call_next(request, context)[:1]
