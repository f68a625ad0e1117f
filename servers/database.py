"""An MCP server for one SQLite database: look at its tables, query it, and change it only where that is asked for.

Run it:

    DATABASE_FILE=shop.db bridge serve servers/database.py
    DATABASE_FILE=shop.db DATABASE_WRITABLE=1 bridge serve servers/database.py --transport http

Environment:

    DATABASE_FILE       The SQLite file. Required, and it must exist.
    DATABASE_WRITABLE   1 adds the tool that changes data. Default: 0, and it does not exist.
    DATABASE_SECONDS    How long one statement may run, in seconds. Default: 10.
    DATABASE_ROWS       How many rows one statement may return. Default: 200.

Resources: database://schema has the statements that made everything; database://tables/{table} describes one table,
and completes its name. The prompt `ask` asks a question about the data, with the schema.

Nothing here reads the text of a statement to decide what it may do: SQLite itself holds the limits, as
processes/statements.py describes. SQLite looks at a deadline between its steps only, and one step can take minutes.
Statements therefore run in processes of their own, which are killed where a statement takes too long, or its caller
has left.
"""

import json
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import IO, Annotated, Any

from bridge import File, InvocationContext, P, ToolAnnotations, ToolError, prompt, resource, tool
from bridge.errors import TargetError

PROGRAM = Path(__file__).parent / "processes" / "statements.py"
PROCESSES = 8  # that run statements at the same time
IDLE_PROCESSES = 2  # that wait for the next statement
GRACE_SECONDS = 0.5  # for SQLite to stop by itself
CHECK_SECONDS = 0.05
VALUE_BYTES = 1_000_000  # of one value that SQLite may hold
RESULT_CHARS = 200_000  # of all values that are shown
LISTED_TABLES = 1_000

Value = str | int | float | bool | None

# --- configuration ---------------------------------------------------------------------------------------------------


def _file() -> Path:
    name = os.environ.get("DATABASE_FILE")
    if not name:
        raise TargetError("DATABASE_FILE is not set; it names the SQLite file to serve")
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise TargetError(f"DATABASE_FILE must be a SQLite file that exists; {name!r} is none")
    return path


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise TargetError(f"{name} must be a whole number above 0, not {text!r}")
    return int(text)


FILE = _file()
SECONDS = _number("DATABASE_SECONDS", 10)
ROWS = _number("DATABASE_ROWS", 200)
WRITABLE = {"": False, "0": False, "1": True}.get(os.environ.get("DATABASE_WRITABLE", ""))
if WRITABLE is None:
    raise TargetError("DATABASE_WRITABLE must be 0 or 1")

reading = tool(annotations=ToolAnnotations(read_only=True, idempotent=True, destructive=False, open_world=False))

# --- tools -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table or view."""

    name: str
    kind: str
    """``table``, ``view``, or ``virtual`` for a table that an extension provides."""
    columns: int


@reading
def list_tables(context: InvocationContext) -> list[Table]:
    """Lists the tables and views of the database."""
    listed = _run(
        context,
        "SELECT name, type, ncol FROM pragma_table_list WHERE schema = 'main' AND type <> 'shadow'"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT ?",
        [LISTED_TABLES],
    )
    return [Table(*row) for row in listed.rows]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    primary_key: bool
    default: str | None
    """The default as an SQL expression."""
    references: str | None
    """``table(column)`` where the column is a foreign key."""


@dataclass(frozen=True)
class Schema:
    """Columns of a table or view."""

    columns: list[Column]
    indexes: list[str]
    """The statements that made the table's indexes."""
    sql: str
    """The statement that made the table or view."""


@reading
def describe_table(
    table: Annotated[str, P("The table's or view's name, as list_tables gives it")], context: InvocationContext
) -> Schema:
    """Describes a table: its columns, keys, indexes and the statement that made it."""
    described, names = _described(table, context)
    if described is None:
        near = ", ".join(map(repr, get_close_matches(table[:100], names[:LISTED_TABLES]))) or "see list_tables"
        raise ToolError(f"there is no table {table[:100]!r}; near it: {near}")
    return described


def _described(table: str, context: InvocationContext) -> tuple[Schema | None, list[str]]:
    """Schema of a table, None where it does not exist; and the names of all tables."""
    listed = _run(context, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")
    names = [name for (name,) in listed.rows]
    if (name := next((name for name in names if name.lower() == table.lower()), None)) is None:
        return None, names
    references = {
        column: f"{other}({target})" if target else other
        for column, other, target in _run(
            context, 'SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', [name]
        ).rows
    }
    columns = [
        Column(column, kind, not (required or key), bool(key), default, references.get(column))
        for column, kind, required, default, key in _run(
            context, 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1', [name]
        ).rows
    ]
    made = "SELECT type, sql FROM sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL"
    statements = _run(context, made, [name]).rows
    indexes = [sql for kind, sql in statements if kind == "index"]
    return Schema(columns, indexes, next(sql for kind, sql in statements if kind in {"table", "view"})), names


@dataclass(frozen=True)
class Rows:
    """Rows that a query returned."""

    columns: list[str]
    rows: list[list[Value]]
    """Long values are cut, and say so; binary ones are SQL literals such as x'00ff'."""
    truncated: str | None
    """Why these are not all rows; None where they are."""


Sql = Annotated[
    str, P("One SQL statement in SQLite's dialect; write ? or :name for values and pass them as parameters")
]
Parameters = Annotated[list[Value] | dict[str, Value] | None, P("The values: a list for ?, an object for :name")]


@reading
def query(sql: Sql, context: InvocationContext, parameters: Parameters = None) -> Rows:
    """Reads from the database with one SELECT statement. Aggregate, filter and LIMIT in SQL: few rows come back."""
    answer = _run(context, sql, parameters, rows=ROWS)
    if answer.columns is None:
        raise ToolError("the statement returns nothing; write one SELECT statement")
    return Rows(answer.columns, answer.rows, answer.truncated)


@dataclass(frozen=True)
class Change:
    """Number of rows that a statement changed."""

    rows_changed: int
    returned: Rows | None
    """The rows of a RETURNING clause."""


def execute(sql: Sql, context: InvocationContext, parameters: Parameters = None) -> Change:
    """Changes the database with one statement (INSERT, UPDATE, DELETE, CREATE, …), as a whole or not at all."""
    answer = _run(context, sql, parameters, rows=ROWS, writing=True)
    returned = None if answer.columns is None else Rows(answer.columns, answer.rows, answer.truncated)
    return Change(answer.changed, returned)


if WRITABLE:
    execute = tool(annotations=ToolAnnotations(read_only=False, destructive=True, open_world=False))(execute)

# --- resources and a prompt ------------------------------------------------------------------------------------------


@resource("database://schema", mime_type="application/sql")
def schema(context: InvocationContext) -> str:
    """The statements that made the tables, views and indexes of the database."""
    made = _run(
        context,
        "SELECT made.sql FROM sqlite_schema AS made JOIN pragma_table_list AS listed ON listed.name = made.tbl_name"
        " WHERE listed.schema = 'main' AND listed.type <> 'shadow' AND made.sql IS NOT NULL"
        " AND made.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " ORDER BY made.tbl_name, made.name <> made.tbl_name, made.name LIMIT ?",
        [LISTED_TABLES],
    )
    text = "\n".join(f"{sql};" for (sql,) in made.rows)
    return text if len(text) <= RESULT_CHARS else f"{text[:RESULT_CHARS]}\n-- cut: describe_table shows the others"


def _tables(text: str, _others: Mapping[str, str], context: InvocationContext) -> list[str]:
    """The names of tables that begin with a text."""
    return [table.name for table in list_tables(context) if table.name.lower().startswith(text.lower())]


@resource("database://tables/{table}", mime_type="application/json", completions={"table": _tables})
def table_schema(table: str, context: InvocationContext) -> Schema | None:
    """A table or view: its columns, keys, indexes and the statement that made it."""
    return _described(table, context)[0]


@prompt(title="Ask the database")
def ask(
    question: Annotated[str, P("The question about the data: 'Which customers ordered twice?'")],
    context: InvocationContext,
) -> list[str | File]:
    """Answers a question about the data, and shows the query."""
    task = (
        "This is the schema of a SQLite database. Answer the following question with the tool `query`. Aggregate, "
        "filter and limit in SQL, pass values as parameters, and change nothing. Then give the answer, and the query "
        f"that it comes from.\n\n{question}"
    )
    return [File("database://schema", schema(context), "application/sql"), task]


# --- how a statement is run -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Response of the process of a statement."""

    columns: list[str] | None
    rows: list[list[Any]]
    truncated: str | None
    changed: int


class OverdueError(Exception):
    """A statement did not end by its deadline, or its caller has left."""


class StatementProcess:
    """A process that runs statements, one after another. It ends with this object, or with this process."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", str(PROGRAM)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - a program of this folder
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._requests = process.stdin
        self._answers = SimpleQueue[bytes]()
        Thread(target=_read, args=(process.stdout, self._answers), daemon=True).start()
        self.end = weakref.finalize(self, _end, process)

    @property
    def is_usable(self) -> bool:
        """False if it has ended, or belongs to the process that this one is a fork of."""
        return self._process.poll() is None

    def run(self, request: Mapping[str, Any], context: InvocationContext, deadline: float) -> dict[str, Any]:
        """The answer to one request; after an exception, the process has to be ended."""
        with suppress(OSError):  # it was killed; then an empty line is read
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        while True:
            with suppress(Empty):
                answer = self._answers.get(timeout=CHECK_SECONDS)
                return json.loads(answer) if answer else {"kind": "memory", "error": ""}
            if context.cancelled or time.monotonic() > deadline + GRACE_SECONDS:
                raise OverdueError


def _read(answers: IO[bytes], received: "SimpleQueue[bytes]") -> None:
    """Put each line into a queue, and an empty one when the process has ended."""
    with answers:
        for line in answers:
            received.put(line)
    received.put(b"")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    with suppress(OSError):
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe


_idle: list[StatementProcess] = []
_free = BoundedSemaphore(PROCESSES)


def _run(
    context: InvocationContext,
    sql: str,
    parameters: Sequence[Value] | Mapping[str, Value] | None = None,
    *,
    rows: int | None = None,
    writing: bool = False,
) -> Answer:
    """Run one statement in a process; errors are explained to a model."""
    deadline = time.monotonic() + SECONDS
    while not _free.acquire(timeout=CHECK_SECONDS):
        if context.cancelled or time.monotonic() > deadline:
            raise ToolError("too many statements are running; try again later")
    request = {"file": FILE.as_uri(), "sql": sql, "parameters": parameters or (), "rows": rows, "writing": writing}
    try:
        answer = _answer_of(request, context, deadline)
    except OverdueError:
        if writing:  # a reader could not take back what the killed process has left half done
            undoing = request | {"sql": "SELECT 1", "parameters": ()}
            _answer_of(undoing, InvocationContext(), time.monotonic() + SECONDS)
        raise ToolError(_explained("interrupted")) from None
    finally:
        _free.release()
    if "error" not in answer:
        return Answer(**answer)
    if answer["kind"] == "SQLite":
        raise ToolError(_explained(answer["error"]))
    if answer["kind"] == "memory":
        raise ToolError("the statement needs too much memory; sort, group or select less")
    raise ToolError(f"the statement or a parameter cannot be passed to SQLite: {answer['error']}")


def _taken() -> StatementProcess:
    """A process that is idle, or else a new one."""
    while True:
        try:
            process = _idle.pop()
        except IndexError:
            return StatementProcess()
        if process.is_usable:
            return process


def _answer_of(request: Mapping[str, Any], context: InvocationContext, deadline: float) -> dict[str, Any]:
    process = _taken()
    try:
        answer = process.run({**request, "seconds": deadline - time.monotonic()}, context, deadline)
    except BaseException:
        process.end()
        raise
    if len(_idle) < IDLE_PROCESSES and answer.get("kind") != "memory":
        _idle.append(process)
    else:
        process.end()
    return answer


def _explained(said: str) -> str:
    """SQLite's error, with a remedy."""
    remedies = {
        "interrupted": f"the statement ran longer than {SECONDS} seconds; narrow it down, or use an indexed column",
        "authoriz": "that statement, function or PRAGMA is not allowed here",
        "readonly": "a query only reads" + ("; execute changes data" if WRITABLE else ", and nothing here can write"),
        "no such table": f"{said}; list_tables shows what there is",
        "no such column": f"{said}; describe_table shows a table's columns",
        "too big": f"a value has more than {VALUE_BYTES} bytes; leave the column out, or ask for its length(…)",
        "locked": "another program is writing to the database; try again",
    }
    return next((remedy for sign, remedy in remedies.items() if sign in said), f"SQLite says: {said}")


try:
    _run(InvocationContext(), "SELECT count(*) FROM sqlite_schema")
except ToolError as error:
    raise TargetError(f"DATABASE_FILE must be a SQLite file; {str(FILE)!r}: {error}") from error
