"""A program that serves tools, as a user types it; `test_typing` checks it with mypy and pyright."""

from __future__ import annotations

from typing import Annotated

from starlette.applications import Starlette
from starlette.responses import Response

import bridge
from bridge import (
    Caller,
    ExecutionPolicy,
    File,
    InvocationContext,
    Middleware,
    P,
    Server,
    Text,
    ToolError,
    http_app,
    mount,
    prompt,
    resource,
    tool,
)
from bridge.middleware import LoggingMiddleware, cached
from bridge.server import HttpOptions, ServerToolSearch, TaskOptions
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.limits import Limits, Rate
from bridge.tools import Elicitation, ElicitationAnswer, SamplingMessage


@tool
def add(a: Annotated[int, P("First number")], b: int = 0) -> int:
    """Add two numbers."""
    if a < 0:
        raise ToolError("a is negative")
    return a + b


@tool(title="Ask", timeout_seconds=5.0)
async def ask(context: InvocationContext, caller: Caller) -> str:
    """Ask the user."""
    answers = await context.ask({"name": Elicitation("Your name?", {"type": "object", "properties": {}})})
    answer = answers["name"]
    completion = await context.sample([SamplingMessage("user", (Text("Hello"),))], max_tokens=10, temperature=0.5)
    await context.progress(1, 2)
    return f"{caller.name} {isinstance(answer, ElicitationAnswer)} {completion.model}"


@tool
def double(a: int) -> int:
    """Double a number."""
    return 2 * a


@resource("notes://{name}")
def note(name: str) -> File:
    """Read a note."""
    return File(f"notes://{name}", "text")


@prompt
def summarize(text: str) -> str:
    """Summarize a text."""
    return f"Summarize: {text}"


middleware: list[Middleware] = [LoggingMiddleware()]
server = Server(
    [add, ask, note, summarize, cached(double, ttl_seconds=5)],
    name="notes",
    version="1",
    limits=Limits(rate=Rate(100, 10)),
    policy=ExecutionPolicy(),
    tasks=TaskOptions(),
    tool_search=ServerToolSearch(mode="auto"),
    middleware=middleware,
)
options: HttpOptions = {
    "allowed_hosts": ["example.org"],
    "auth": Auth(ApiKeys(ApiKey("ci", "a key of the tests"))),
}
app = server.http_app(**options)
app.add_route("/about", lambda request: Response())
other = http_app(add, path="/other")
other.shutdown()
mount(Starlette(), "/tools", server, allowed_origins=["https://example.org"])

if __name__ == "__main__":
    bridge.run(add, note, transport="http", port=0, host="127.0.0.1")
    server.run("http", port=8000)
