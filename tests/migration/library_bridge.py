"""The library of ``library_fastmcp.py``, ported to bridge: ``library_bridge.py PORT``."""

import json
import os
import sqlite3
import struct
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import JSONResponse

import bridge
from bridge import (
    Caller,
    Depends,
    Image,
    InvocationContext,
    Middleware,
    Server,
    ToolError,
    lifespan,
    prompt,
    resource,
    tool,
)  # fmt: skip
from bridge.server.auth import Auth, JwtVerifier

SCHEMA = "CREATE TABLE books (title TEXT PRIMARY KEY, author TEXT, published TEXT, copies INTEGER)"
calls: Counter[str] = Counter()


@dataclass
class Book:
    title: str
    author: str
    published: date
    copies: int = 1


@lifespan
async def opened() -> AsyncIterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute(SCHEMA)
    try:
        yield db
    finally:
        db.close()


def transaction(context: InvocationContext[sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
    with context.lifespan as db:
        yield db


Db = Annotated[sqlite3.Connection, Depends(transaction)]


class CountCalls(Middleware):
    async def call_tool(self, request: Any, context: InvocationContext, call_next: Any) -> Any:
        result = await call_next(request, context)
        calls[request.name] += 1
        return result


@tool
def opening_hours(day: str) -> str:
    """Tell when the branch is open."""
    return "closed" if day == "Sunday" else "9 to 5"


@prompt
def directions(start: str) -> str:
    """Ask for the way."""
    return f"How do I get from {start} to the library?"


@tool
async def add_book(book: Book, db: Db) -> Book:
    """Add a book."""
    try:
        db.execute("INSERT INTO books VALUES (?, ?, ?, ?)", (book.title, book.author, str(book.published), book.copies))
    except sqlite3.IntegrityError:
        raise ToolError(f"there is a book {book.title!r} already") from None
    return book


@tool
async def find_books(author: str, db: Db) -> list[Book]:
    """Find the books of an author."""
    found = db.execute("SELECT * FROM books WHERE author = ? ORDER BY title", (author,))
    return [Book(title, name, date.fromisoformat(day), copies) for title, name, day, copies in found]


@tool
async def lend(title: str, context: InvocationContext, caller: Caller, db: Db) -> str:
    """Lend a book."""
    changed = db.execute("UPDATE books SET copies = copies - 1 WHERE title = ? AND copies > 0", (title,))
    if not changed.rowcount:
        raise ToolError(f"no copy of {title!r} is left")
    await context.log("info", f"lent {title}")
    await context.session.set("lent", [*await context.session.get("lent", []), title])
    return f"{caller.name} has {title}"


@tool
async def my_loans(context: InvocationContext) -> list[str]:
    """List what was lent in this session."""
    lent: list[str] = await context.session.get("lent", [])
    return lent


@tool
async def discard(title: str, context: InvocationContext, db: Db) -> str:
    """Remove a book, if the user agrees."""
    answer = await context.elicit(f"Discard {title}?", bool)
    if not answer.data:
        return "kept"
    db.execute("DELETE FROM books WHERE title = ?", (title,))
    return "discarded"


@tool
def cover(title: str) -> Image:
    """Draw a cover."""
    return Image(png(zlib.crc32(title.encode()).to_bytes(4)[:3]))


@tool(task=True)
async def stocktake(context: InvocationContext, db: Db) -> int:
    """Count all copies."""
    total = 0
    for number, (copies,) in enumerate(db.execute("SELECT copies FROM books").fetchall(), start=1):
        total += copies
        await context.progress(number)
    return total


@tool(tags={"admin"})
async def clear(db: Db) -> None:
    """Remove all books."""
    db.execute("DELETE FROM books")


@resource("library://calls", mime_type="application/json")
def call_counts() -> str:
    """Number of calls of each tool."""
    return json.dumps(calls)


@resource("library://books/{title}", mime_type="text/plain")
async def book_text(title: str, db: Db) -> str:
    """A book."""
    return "{} by {}".format(*db.execute("SELECT title, author FROM books WHERE title = ?", (title,)).fetchone())


@prompt
def recommend(author: str) -> str:
    """Recommend a book."""
    return f"Which book of {author} should I read first?"


server = Server(
    [add_book, find_books, lend, my_loans, discard, cover, stocktake, clear, call_counts, book_text, recommend],
    name="library",
    instructions="Books to lend.",
    middleware=[CountCalls()],
)
server.mount([opening_hours, directions], prefix="branch")
server.disable(tags={"admin"})


@server.route("/count", auth=False)
async def count(request: Request) -> JSONResponse:
    return JSONResponse({"calls": calls.total()})


def png(color: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" + color)) + chunk(b"IEND", b"")


if __name__ == "__main__":
    key = JwtVerifier("https://login.example", "library", public_key=os.environ["PUBLIC_KEY"])
    bridge.run(server, transport="http", port=int(sys.argv[1]), auth=Auth(key, required_scopes=["library"]))
