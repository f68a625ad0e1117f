"""A server of notes in SQLite: what is open while it serves, and a transaction for each call.

bridge serve examples/notes_server.py
python examples/notes_server.py        # tries it, in a database of its own
"""

import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Annotated

import anyio

from bridge import Depends, InvocationContext, Text, ToolError, lifespan, prompt, resource, tool
from bridge.testing import connected


@dataclass(frozen=True)
class App:
    """State that the functions share while they are served."""

    path: Path


@lifespan
async def app() -> AsyncIterator[App]:
    """Create the database, before the first call."""
    path = Path(environ.get("NOTES", "notes.db"))
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS notes (title TEXT PRIMARY KEY, text TEXT NOT NULL)")
    yield App(path)
    print(f"closing {path.name}")


def transaction(context: InvocationContext[App]) -> Iterator[sqlite3.Connection]:
    """Open a transaction: committed after the call, and rolled back if that fails."""
    with closing(sqlite3.connect(context.lifespan.path, check_same_thread=False)) as db, db:
        yield db


Db = Annotated[sqlite3.Connection, Depends(transaction)]


@tool
def add(title: str, text: str, db: Db) -> str:
    """Add a note."""
    try:
        db.execute("INSERT INTO notes VALUES (?, ?)", (title, text))
    except sqlite3.IntegrityError:
        raise ToolError(f"there is a note {title!r} already; choose another title") from None
    return f"added {title!r}"


@tool
def move(source: str, target: str, db: Db) -> str:
    """Give a note another title."""
    (text,) = db.execute("DELETE FROM notes WHERE title = ? RETURNING text", (source,)).fetchone() or (None,)
    if text is None:
        raise ToolError(f"there is no note {source!r}")
    return add(target, text, db)


@tool
def find(word: str, db: Db) -> list[str]:
    """Find the titles of notes with a word."""
    return [title for (title,) in db.execute("SELECT title FROM notes WHERE text LIKE ?", (f"%{word}%",))]


@resource("notes://{title}")
def note(title: str, db: Db) -> str | None:
    """A note."""
    (text,) = db.execute("SELECT text FROM notes WHERE title = ?", (title,)).fetchone() or (None,)
    return text


@prompt
def summary(db: Db) -> str:
    """Summarize all notes."""
    texts = [f"- {text}" for (text,) in db.execute("SELECT text FROM notes")]
    return "\n".join(["Summarize these notes:", *texts])


async def main() -> None:
    """Use the server over a connection in this process."""
    async with connected(add, move, find, note, summary) as provider:
        print((await provider.call("add", {"title": "milk", "text": "buy 2 litres"})).text)
        print((await provider.call("add", {"title": "bread", "text": "buy rye"})).text)
        print((await provider.call("move", {"source": "milk", "target": "bread"})).text)
        found = await provider.call("find", {"word": "buy"})
        print(found.text)
        assert found.text == '["milk","bread"]', "the failed call was rolled back"
        print((await provider.resources.read("notes://milk"))[0].content)
        (message,) = await provider.prompts.render("summary")
        assert isinstance(message.content, Text)
        print(message.content.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        environ["NOTES"] = f"{folder}/notes.db"
        anyio.run(main)
