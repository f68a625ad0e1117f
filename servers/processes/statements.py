"""Statements of SQLite for servers/database.py, in a process that can be killed.

Each line of standard input is a request as JSON, and each line of standard output its answer. SQLite itself holds the
limits: the file is opened read-only (mode=ro, and PRAGMA query_only), an authorizer refuses what reaches beyond it
(ATTACH, settings by PRAGMA, extensions), and its own limits bound the size of a value, the length of a statement and
the memory. The process imports the standard library only, so that it starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

VALUE_BYTES = 1_000_000  # of one value that SQLite may hold
STATEMENT_BYTES = 100_000
HEAP_BYTES = 256 * 1024 * 1024  # that SQLite may use in this process
CELL_CHARS = 2_000  # of one value that is shown
RESULT_CHARS = 200_000  # of all values that are shown
LOCK_SECONDS = 3.0  # to wait for another writer
OPCODES_BETWEEN_CHECKS = 10_000

FORBIDDEN = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT}
FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer"}  # both reach into this process
TABLE_PRAGMAS = {"foreign_key_list", "index_info", "index_list", "table_info", "table_list", "table_xinfo"}
FULL_TEXT_PRAGMAS = {"data_version", "page_size"}  # which virtual tables read

Value = str | int | float | bool | None


def _run_statements(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests, one JSON text on each line, until there are no more; a statement that still runs then ends."""
    given = SimpleQueue[bytes]()
    Thread(target=_answer_all, args=(given, answers), daemon=True).start()
    for line in requests:
        given.put(line)
    os._exit(0)


def _answer_all(given: SimpleQueue[bytes], answers: IO[bytes]) -> None:
    while True:
        try:
            answer = _answer(**json.loads(given.get()))
        except (sqlite3.Error, sqlite3.Warning) as error:
            answer = {"kind": "SQLite", "error": str(error)}
        except MemoryError:
            answer = {"kind": "memory", "error": ""}
        except (
            OverflowError,
            TypeError,
            ValueError,
        ) as error:  # a parameter beyond 64 bits, text that is not Unicode, a NUL
            answer = {"kind": "value", "error": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _answer(file: str, sql: str, parameters: Any, seconds: float, rows: int | None, *, writing: bool) -> dict[str, Any]:
    """Run one statement, with SQLite's own limits on what it can do, as a whole or not at all."""
    deadline = time.monotonic() + seconds
    with closing(_connected(file, min(LOCK_SECONDS, max(0.0, seconds / 2)), writing=writing)) as database:
        if writing:
            database.execute("BEGIN IMMEDIATE")
        database.set_authorizer(_authorize)
        database.set_progress_handler(lambda: time.monotonic() > deadline, OPCODES_BETWEEN_CHECKS)
        before = database.total_changes
        cursor = database.execute(sql, parameters)
        answer = {"columns": None, "rows": [], "truncated": None} if cursor.description is None else _rows(cursor, rows)
        cursor.close()
        if writing:  # leaving by an exception closes the connection, which takes everything back
            database.set_authorizer(None)
            database.execute("COMMIT")
        return answer | {"changed": database.total_changes - before}


def _connected(file: str, lock_seconds: float, *, writing: bool) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{file}?mode={'rw' if writing else 'ro'}", uri=True, isolation_level=None, timeout=lock_seconds
    )
    database.text_factory = lambda data: data.decode(errors="replace")
    database.execute(f"PRAGMA query_only = {int(not writing)}")
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("PRAGMA temp_store = MEMORY")
    database.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES}")
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
    database.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, STATEMENT_BYTES)
    return database


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Decide if SQLite may run an operation; writing is not checked, since a file that must not change is read-only."""
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = second not in FORBIDDEN_FUNCTIONS
    elif action == sqlite3.SQLITE_PRAGMA:
        allowed = first in TABLE_PRAGMAS or (first in FULL_TEXT_PRAGMAS and second is None)
    else:
        allowed = action not in FORBIDDEN
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _rows(cursor: sqlite3.Cursor, limit: int | None) -> dict[str, Any]:
    """The first rows, as many as a model can take in; the others are not fetched. Without a limit, all."""
    columns = [name for name, *_ in cursor.description]
    rows: list[list[Value]] = []
    chars, truncated = 0, None
    for row in cursor:
        shown = [_shown(value) for value in row]
        chars += sum(len(str(value)) for value in shown)
        if limit is not None and len(rows) == limit:
            truncated = f"there are more than {limit} rows"
            break
        if limit is not None and rows and chars > RESULT_CHARS:
            truncated = f"these are {len(rows)} rows, and more would be too much text"
            break
        rows.append(shown)
    return {"columns": columns, "rows": rows, "truncated": truncated}


def _shown(value: Value | bytes) -> Value:
    if isinstance(value, bytes):
        return _cut(f"x'{value[:CELL_CHARS].hex()}'", len(value) * 2)
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        return "Infinity" if value > 0 else "-Infinity"
    return _cut(value) if isinstance(value, str) else value


def _cut(text: str, chars: int | None = None) -> str:
    chars = chars or len(text)
    return text if chars <= CELL_CHARS else f"{text[:CELL_CHARS]}… (cut; {chars} characters in all)"


if __name__ == "__main__":
    _run_statements(sys.stdin.buffer, sys.stdout.buffer)
