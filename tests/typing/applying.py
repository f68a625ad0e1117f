"""A server as an application, as a user types it; `test_typing` checks it with mypy and pyright."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

from starlette.responses import JSONResponse, Response

from bridge import (
    Caller,
    Depends,
    InvocationContext,
    Middleware,
    Server,
    ToolExecutionRequest,
    ToolExecutionResult,
    filtered,
    lifespan,
    resource,
    tool,
)
from bridge.middleware import CachingMiddleware, TimingMiddleware
from bridge.server import namespaced
from bridge.server.auth import Auth, JwtVerifier
from bridge.testing import TokenSigner, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

    from bridge.tools import CallNext


@dataclass
class App:
    """Value of the lifespan."""

    path: str


class Color(Enum):
    """Choice of the user."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Sure:
    """Form for the user."""

    sure: bool


@lifespan
async def app() -> AsyncIterator[App]:
    """Open what the functions share."""
    yield App("notes.db")


def transaction(context: InvocationContext[App]) -> Iterator[sqlite3.Connection]:
    """Open a connection for one call."""
    with sqlite3.connect(context.lifespan.path) as db:
        yield db


Db = Annotated[sqlite3.Connection, Depends(transaction)]


class Counting(Middleware):
    """Middleware that counts calls."""

    calls = 0

    async def call_tool(
        self, request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
    ) -> ToolExecutionResult:
        """Count a call."""
        self.calls += 1
        return await call_next(request, context)


@tool(tags={"public"}, version="2")
async def delete(name: str, db: Db, context: InvocationContext[App], caller: Caller | None = None) -> str:
    """Delete a note, if the user agrees."""
    answer = await context.elicit("Sure?", Sure)
    color = (await context.elicit("Which color?", Color)).data
    names = (await context.elicit("Which names?", list[str])).data if answer.data is None else [name]
    if answer.data is None or not answer.data.sure:
        return "kept"
    db.execute("DELETE FROM notes WHERE name = ?", (name,))
    await context.session.set("deleted", names)
    return f"{context.lifespan.path} {color.value if color else ''} {caller.name if caller else ''}"


@resource("notes://count", tags={"public"}, enabled=False)
def count(db: Db) -> int:
    """Count the notes."""
    return len(db.execute("SELECT * FROM notes").fetchall())


catalog = Server(count, name="catalog", middleware=[CachingMiddleware(ttl_seconds=60)])
server = Server(delete, name="notes", middleware=[Counting(), TimingMiddleware()], lifespan=app)
server.mount(catalog, prefix="catalog")
server.mount(namespaced(catalog, "other"))
server.disable("delete")
server.enable(tags={"public"})
public = filtered(server, tags={"public"})


@server.route("/webhook", methods=["POST"], auth=False)
async def webhook(request: Request) -> Response:
    """Receive a notification."""
    return JSONResponse({"length": len(await request.body())})


def http() -> object:
    """Make the app with tokens of an issuer whose key is known."""
    verifier = JwtVerifier("my-app", "my-tools", public_key=TokenSigner().public_key)
    return server.http_app(auth=Auth(verifier, required_scopes=["notes"]))


async def tested() -> str:
    """Test the server without its database."""
    async with connected(server, overrides={transaction: lambda: sqlite3.connect(":memory:")}) as provider:
        result = await provider.call("delete", {"name": "a"})
        return f"{result.text} {result.data}"
