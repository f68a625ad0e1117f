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

Nothing here reads the text of a statement to decide what it may do. SQLite itself holds the limits: the file is opened
read-only (mode=ro, and PRAGMA query_only), an authorizer refuses what reaches beyond it (ATTACH, settings by PRAGMA,
extensions), and SQLite's own limits bound the size of a value, the length of a statement and the memory. A statement
that takes too long, or whose caller has left, is interrupted while it runs.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from bridge import File, InvocationContext, P, TargetError, ToolAnnotations, ToolError, prompt, resource, tool

VALUE_BYTES = 1_000_000  # of one value that SQLite may hold
STATEMENT_BYTES = 100_000
HEAP_BYTES = 256 * 1024 * 1024  # that SQLite may use in this process
CELL_CHARS = 2_000  # of one value that is shown
RESULT_CHARS = 200_000  # of all values that are shown
LISTED_TABLES = 1_000
LOCK_SECONDS = 3.0  # to wait for another writer
OPCODES_BETWEEN_CHECKS = 10_000

FORBIDDEN = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT}
FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer"}  # both reach into this process
TABLE_PRAGMAS = {"foreign_key_list", "index_info", "index_list", "table_info", "table_list", "table_xinfo"}
FULL_TEXT_PRAGMAS = {"data_version", "page_size"}  # which virtual tables read

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
    with _database(context) as database:
        rows = database.execute(
            "SELECT name, type, ncol FROM pragma_table_list WHERE schema = 'main' AND type <> 'shadow'"
            " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT ?",
            (LISTED_TABLES,),
        )
        return [Table(*row) for row in rows]


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
    """What a table or view is made of."""

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
        raise ToolError(f"there is no table {_cut(table)!r}; near it: {near}")
    return described


def _described(table: str, context: InvocationContext) -> tuple[Schema | None, list[str]]:
    """Schema of a table, None where it does not exist; and the names of all tables."""
    with _database(context) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
        if (name := next((name for name in names if name.lower() == table.lower()), None)) is None:
            return None, names
        references = {
            column: f"{other}({target})" if target else other
            for column, other, target in database.execute(
                'SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (name,)
            )
        }
        columns = [
            Column(column, kind, not (required or key), bool(key), default, references.get(column))
            for column, kind, required, default, key in database.execute(
                'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1', (name,)
            )
        ]
        made = database.execute("SELECT type, sql FROM sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL", (name,))
        statements = [(kind, _cut(sql)) for kind, sql in made]
    indexes = [sql for kind, sql in statements if kind == "index"]
    return Schema(columns, indexes, next(sql for kind, sql in statements if kind in {"table", "view"})), names


@dataclass(frozen=True)
class Rows:
    """What a query returned."""

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
    with _database(context) as database:
        cursor = database.execute(sql, parameters or ())
        if cursor.description is None:
            raise ToolError("the statement returns nothing; write one SELECT statement")
        return _rows(cursor)


@dataclass(frozen=True)
class Change:
    """What a statement changed."""

    rows_changed: int
    returned: Rows | None
    """The rows of a RETURNING clause."""


def execute(sql: Sql, context: InvocationContext, parameters: Parameters = None) -> Change:
    """Changes the database with one statement (INSERT, UPDATE, DELETE, CREATE, …), as a whole or not at all."""
    with _database(context, writing=True) as database:
        before = database.total_changes
        cursor = database.execute(sql, parameters or ())
        returned = _rows(cursor) if cursor.description else None
        cursor.close()
        return Change(database.total_changes - before, returned)


if WRITABLE:
    execute = tool(annotations=ToolAnnotations(read_only=False, destructive=True, open_world=False))(execute)

# --- resources and a prompt ------------------------------------------------------------------------------------------


@resource("database://schema", mime_type="application/sql")
def schema(context: InvocationContext) -> str:
    """The statements that made the tables, views and indexes of the database."""
    with _database(context) as database:
        made = database.execute(
            "SELECT made.sql FROM sqlite_schema AS made JOIN pragma_table_list AS listed ON listed.name = made.tbl_name"
            " WHERE listed.schema = 'main' AND listed.type <> 'shadow' AND made.sql IS NOT NULL"
            " AND made.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            " ORDER BY made.tbl_name, made.name <> made.tbl_name, made.name LIMIT ?",
            (LISTED_TABLES,),
        )
        text = "\n".join(f"{_cut(sql)};" for (sql,) in made)
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


# --- what a statement may do -----------------------------------------------------------------------------------------


@contextmanager
def _database(context: InvocationContext, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection for one call, with SQLite's own limits on what it can do; errors are explained to a model."""
    deadline = time.monotonic() + SECONDS
    try:
        with closing(_connected(writing=writing)) as database:
            if writing:
                database.execute("BEGIN IMMEDIATE")
            database.set_authorizer(_authorize)
            database.set_progress_handler(
                lambda: context.cancelled or time.monotonic() > deadline, OPCODES_BETWEEN_CHECKS
            )
            yield database
            if writing:  # leaving by an exception closes the connection, which takes everything back
                database.set_authorizer(None)
                database.execute("COMMIT")
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise ToolError(_explained(error)) from error
    except MemoryError as error:
        raise ToolError("the statement needs too much memory; sort, group or select less") from error
    except (OverflowError, ValueError) as error:  # a parameter beyond 64 bits, text that is not Unicode, a NUL
        raise ToolError(f"the statement or a parameter cannot be passed to SQLite: {error}") from error


def _connected(*, writing: bool) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{FILE.as_uri()}?mode={'rw' if writing else 'ro'}", uri=True, isolation_level=None, timeout=LOCK_SECONDS
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
    # The progress handler is not asked within one LIKE, whose time grows with text times pattern.
    database.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000)
    return database


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Whether SQLite may do a thing; writing is not mentioned, since where it is not wanted the file is read-only."""
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = second not in FORBIDDEN_FUNCTIONS
    elif action == sqlite3.SQLITE_PRAGMA:
        allowed = first in TABLE_PRAGMAS or (first in FULL_TEXT_PRAGMAS and second is None)
    else:
        allowed = action not in FORBIDDEN
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _explained(error: sqlite3.Error | sqlite3.Warning) -> str:
    """What SQLite says, and what to do about it."""
    said = str(error)
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


# --- what is shown ---------------------------------------------------------------------------------------------------


def _rows(cursor: sqlite3.Cursor) -> Rows:
    """The first rows, as many as a model can take in; the others are not fetched."""
    columns = [name for name, *_ in cursor.description or ()]
    rows: list[list[Value]] = []
    chars = 0
    for row in cursor:
        shown = [_shown(value) for value in row]
        chars += sum(len(str(value)) for value in shown)
        if len(rows) == ROWS:
            return Rows(columns, rows, f"there are more than {ROWS} rows")
        if rows and chars > RESULT_CHARS:
            return Rows(columns, rows, f"these are {len(rows)} rows, and more would be too much text")
        rows.append(shown)
    return Rows(columns, rows, None)


def _shown(value: Value | bytes) -> Value:
    if isinstance(value, bytes):
        return _cut(f"x'{value[:CELL_CHARS].hex()}'", len(value) * 2)
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        return "Infinity" if value > 0 else "-Infinity"
    return _cut(value) if isinstance(value, str) else value


def _cut(text: str, chars: int | None = None) -> str:
    chars = chars or len(text)
    return text if chars <= CELL_CHARS else f"{text[:CELL_CHARS]}… (cut; {chars} characters in all)"


try:
    with _database(InvocationContext()) as _opened:
        _opened.execute("SELECT count(*) FROM sqlite_schema")
except ToolError as error:
    raise TargetError(f"DATABASE_FILE must be a SQLite file; {str(FILE)!r}: {error}") from error
