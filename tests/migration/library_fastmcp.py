"""A library, written with FastMCP; run over HTTP by a Python that has it: ``library_fastmcp.py PORT``."""
# ruff: noqa: B008
# mypy: ignore-errors

import json
import os
import sqlite3
import struct
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentAccessToken, CurrentContext, Depends
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import AccessToken
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.utilities.types import Image
from fastmcp_tasks import TasksExtension
from starlette.requests import Request
from starlette.responses import JSONResponse

SCHEMA = "CREATE TABLE books (title TEXT PRIMARY KEY, author TEXT, published TEXT, copies INTEGER)"
calls: Counter[str] = Counter()


@dataclass
class Book:
    title: str
    author: str
    published: date
    copies: int = 1


@asynccontextmanager
async def opened(server: FastMCP) -> AsyncIterator[dict[str, Any]]:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute(SCHEMA)
    try:
        yield {"db": db}
    finally:
        db.close()


@asynccontextmanager
async def transaction(ctx: Context = CurrentContext()) -> AsyncIterator[sqlite3.Connection]:
    with ctx.lifespan_context["db"] as db:
        yield db


class CountCalls(Middleware):
    async def on_call_tool(self, context: MiddlewareContext, call_next: CallNext) -> Any:
        result = await call_next(context)
        calls[context.message.name] += 1
        return result


branch = FastMCP("branch")


@branch.tool
def opening_hours(day: str) -> str:
    """Tell when the branch is open."""
    return "closed" if day == "Sunday" else "9 to 5"


@branch.prompt
def directions(start: str) -> str:
    """Ask for the way."""
    return f"How do I get from {start} to the library?"


mcp = FastMCP(
    "library",
    instructions="Books to lend.",
    lifespan=opened,
    middleware=[CountCalls()],
    auth=JWTVerifier(
        public_key=os.environ["PUBLIC_KEY"],
        issuer="https://login.example",
        audience="library",
        algorithm="ES256",
        required_scopes=["library"],
    ),
)
mcp.add_extension(TasksExtension())
mcp.mount(branch, namespace="branch")


@mcp.tool
async def add_book(book: Book, db: sqlite3.Connection = Depends(transaction)) -> Book:
    """Add a book."""
    try:
        db.execute("INSERT INTO books VALUES (?, ?, ?, ?)", (book.title, book.author, str(book.published), book.copies))
    except sqlite3.IntegrityError:
        raise ToolError(f"there is a book {book.title!r} already") from None
    return book


@mcp.tool
async def find_books(author: str, db: sqlite3.Connection = Depends(transaction)) -> list[Book]:
    """Find the books of an author."""
    found = db.execute("SELECT * FROM books WHERE author = ? ORDER BY title", (author,))
    return [Book(title, name, date.fromisoformat(day), copies) for title, name, day, copies in found]


@mcp.tool
async def lend(
    title: str,
    ctx: Context,
    token: AccessToken = CurrentAccessToken(),
    db: sqlite3.Connection = Depends(transaction),
) -> str:
    """Lend a book."""
    changed = db.execute("UPDATE books SET copies = copies - 1 WHERE title = ? AND copies > 0", (title,))
    if not changed.rowcount:
        raise ToolError(f"no copy of {title!r} is left")
    await ctx.info(f"lent {title}")
    await ctx.set_state("lent", [*(await ctx.get_state("lent") or []), title])
    return f"{token.subject} has {title}"


@mcp.tool
async def my_loans(ctx: Context) -> list[str]:
    """List what was lent in this session."""
    return await ctx.get_state("lent") or []


@mcp.tool
async def discard(title: str, ctx: Context, db: sqlite3.Connection = Depends(transaction)) -> str:
    """Remove a book, if the user agrees."""
    answer = await ctx.elicit(f"Discard {title}?", response_type=bool)
    if answer.action != "accept" or not answer.data:
        return "kept"
    db.execute("DELETE FROM books WHERE title = ?", (title,))
    return "discarded"


@mcp.tool
def cover(title: str) -> Image:
    """Draw a cover."""
    return Image(data=png(zlib.crc32(title.encode()).to_bytes(4)[:3]), format="png")


@mcp.tool(task=True)
async def stocktake(ctx: Context, db: sqlite3.Connection = Depends(transaction)) -> int:
    """Count all copies."""
    total = 0
    for number, (copies,) in enumerate(db.execute("SELECT copies FROM books").fetchall(), start=1):
        total += copies
        await ctx.report_progress(number)
    return total


@mcp.tool(tags={"admin"})
async def clear(db: sqlite3.Connection = Depends(transaction)) -> None:
    """Remove all books."""
    db.execute("DELETE FROM books")


@mcp.resource("library://calls", mime_type="application/json")
def call_counts() -> str:
    """Number of calls of each tool."""
    return json.dumps(calls)


@mcp.resource("library://books/{title}", mime_type="text/plain")
async def book_text(title: str, db: sqlite3.Connection = Depends(transaction)) -> str:
    """A book."""
    return "{} by {}".format(*db.execute("SELECT title, author FROM books WHERE title = ?", (title,)).fetchone())


@mcp.prompt
def recommend(author: str) -> str:
    """Recommend a book."""
    return f"Which book of {author} should I read first?"


@mcp.custom_route("/count", methods=["GET"])
async def count(request: Request) -> JSONResponse:
    return JSONResponse({"calls": calls.total()})


def png(color: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" + color)) + chunk(b"IEND", b"")


mcp.disable(tags={"admin"})

if __name__ == "__main__":
    mcp.run(transport="http", port=int(sys.argv[1]), show_banner=False)
