"""Tools that make tasks, and servers of them, whose tasks are in the process or on Redis."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio

from bridge import InvocationContext, TaskPolicy, ToolError, tool
from bridge.server import Server, http_app
from bridge.server.tasks.options import TaskOptions
from bridge.server.tasks.shared.redis_store import RedisTaskStore
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.server.auth import Auth
    from bridge.server.limits import Limits

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
redis_urls: list[str] = []
"""The Redis where servers keep their tasks; empty for their own memory."""


class Gate:
    """Lets a function of a tool wait for the test."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.open = self._event.set

    async def wait(self) -> None:
        await anyio.to_thread.run_sync(self._event.wait, 20, abandon_on_cancel=True)


def tools(gate: Gate) -> list[Callable[..., Any]]:
    @tool(task=True)
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    @tool(task=True)
    async def wait(context: InvocationContext) -> str:
        """Waits for the test."""
        await context.progress(1, 2, "half")
        await gate.wait()
        return "done"

    @tool(task="required")
    def fail() -> str:
        """Fails."""
        raise ToolError("it failed")

    @tool(task=True, propagate=True)
    def crash() -> str:
        """Fails unexpectedly."""
        raise RuntimeError("a secret")

    @tool(task=True)
    async def greet(context: InvocationContext) -> str:
        """Asks for two names, one after another."""
        first = await context.elicit("Your first name?", FORM, key="first")
        last = await context.elicit("Your last name?", FORM, key="last")
        return f"{(first.content or {}).get('name')} {(last.content or {}).get('name')}"

    @tool(task=TaskPolicy(required=True, starts_at_once=False))
    def ask_first(context: InvocationContext) -> str:
        """Asks in the request, and goes on as a task."""
        answer = context.blocking.elicit("Your name?", FORM, key="name")
        context.blocking.start_task()
        return f"Hello, {(answer.content or {}).get('name')}"

    @tool(task=TaskPolicy(required=True, starts_at_once=False))
    async def ask_again(context: InvocationContext) -> str:
        """Asks in the request, and asks the same in the task."""
        first = await context.elicit("Your name?", FORM, key="name")
        await context.start_task()
        again = await context.elicit("Your name?", FORM, key="name")
        return f"{(first.content or {})['name']} {(again.content or {})['name']}"

    @tool(task=TaskPolicy(ttl_seconds=7200, poll_interval_seconds=0.25))
    def declared() -> str:
        """Has settings."""
        return "done"

    @tool
    async def plain(context: InvocationContext) -> str:
        """Is no task by itself."""
        await context.start_task()
        await gate.wait()
        return "plain"

    return [add, wait, fail, crash, greet, ask_first, ask_again, declared, plain]


@contextmanager
def served(
    gate: Gate | None = None,
    *,
    http: Any = "direct",
    auth: Auth | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> Iterator[str]:
    """Serve the tools; gives the origin."""
    gate = gate or Gate()
    server = publisher_of(tools(gate), limits, **options)
    try:
        with http_server.serving(http_app(server, auth=auth), http=http) as origin:
            yield origin
    finally:
        gate.open()


def publisher_of(functions: object, limits: Limits | None = None, **options: Any) -> Server:
    """A server of its own name, with tasks in one of the places."""
    if redis_urls:
        options["store"] = RedisTaskStore(redis_urls[0])
    return Server(functions, name=f"tests-{uuid4().hex}", tasks=TaskOptions(**options), limits=limits)
