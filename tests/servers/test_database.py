from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from bridge.errors import ResourceNotFoundError, TargetError, ToolError
from bridge.testing import connected
from bridge.tools.content import File, Text
from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute
from bridge.tools.function import tool
from bridge.tools.tool import ToolExecutionRequest
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.conftest import Load, Loaded, Serve

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60
FOREVER = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
SAMPLE = """
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT 'nobody');
    CREATE TABLE "order's" (id INTEGER, customer INTEGER REFERENCES customers (id), photo BLOB);
    CREATE INDEX by_name ON customers (name);
    CREATE VIEW names AS SELECT name FROM customers;
    INSERT INTO customers (name) VALUES ('Zoë'), ('王');
    INSERT INTO "order's" VALUES (1, 1, x'00ff');
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database whose name would be misread if it were pasted into a URI."""
    path = tmp_path / "shop #1?mode=rw&x=%41.db"
    _run(path, SAMPLE)
    return path


@pytest.fixture
def database(load: Load, file: Path) -> Loaded:
    return load("database", DATABASE_FILE=file)


@pytest.fixture
def writable(load: Load, file: Path) -> Loaded:
    return load("database", DATABASE_FILE=file, DATABASE_WRITABLE=1)


def _run(file: Path, script: str) -> None:
    connection = sqlite3.connect(file)
    connection.executescript(script)
    connection.close()


async def rows(database: Loaded, sql: str, parameters: Any = None) -> Any:
    result = await database.call("query", sql=sql, parameters=parameters)
    assert not result.is_error, result.text
    return result.structured_content["rows"]


async def refusal(database: Loaded, sql: str, parameters: Any = None, *, tool: str = "query") -> str:
    result = await database.call(tool, sql=sql, parameters=parameters)
    assert result.is_error, result.text
    return result.text


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("no database, but long enough to be taken for one" * 100)
    return path


@pytest.mark.parametrize("given", ["", "missing.db", "."])
def test_a_database_that_does_not_exist_is_said_at_once(load: Load, given: str) -> None:
    with pytest.raises(TargetError, match="DATABASE_FILE"):
        load("database", DATABASE_FILE=given)


def test_a_file_that_is_no_database_is_said_at_once(load: Load, text_file: Path) -> None:
    with pytest.raises(TargetError, match="must be a SQLite file"):
        load("database", DATABASE_FILE=text_file)


@pytest.mark.parametrize("variable", ["DATABASE_WRITABLE", "DATABASE_SECONDS", "DATABASE_ROWS"])
def test_a_setting_that_means_nothing_is_said_at_once(load: Load, file: Path, variable: str) -> None:
    with pytest.raises(TargetError, match=f"{variable} must be"):
        load("database", DATABASE_FILE=file, **{variable: "many"})


def test_without_leave_to_write_the_tool_that_writes_does_not_exist(database: Loaded, writable: Loaded) -> None:
    assert [tool.name for tool in database.tools] == ["list_tables", "describe_table", "query"]
    assert [tool.name for tool in writable.tools] == ["list_tables", "describe_table", "query", "execute"]


async def test_tables_and_views_are_listed(database: Loaded) -> None:
    assert (await database.call("list_tables")).structured_content["result"] == [
        {"name": "customers", "kind": "table", "columns": 2},
        {"name": "names", "kind": "view", "columns": 1},
        {"name": "order's", "kind": "table", "columns": 3},
    ]


async def test_a_table_is_described_whatever_its_name(database: Loaded) -> None:
    described = (await database.call("describe_table", table="ORDER'S")).structured_content
    assert described["columns"][1] == {
        "name": "customer",
        "type": "INTEGER",
        "nullable": True,
        "primary_key": False,
        "default": None,
        "references": "customers(id)",
    }
    described = (await database.call("describe_table", table="customers")).structured_content
    assert described["indexes"] == ["CREATE INDEX by_name ON customers (name)"]
    assert [(column["nullable"], column["default"]) for column in described["columns"]] == [
        (False, None),
        (False, "'nobody'"),
    ]


@pytest.mark.parametrize("name", ["customer", "customers; DROP TABLE customers", "", "x" * 1_000_000])
async def test_a_table_that_does_not_exist_is_refused_with_the_nearest(database: Loaded, name: str) -> None:
    result = await database.call("describe_table", table=name)
    assert result.is_error
    assert len(result.text) < 3_000
    assert ("near it: 'customers'" in result.text) == (name == "customer")


@pytest.mark.parametrize(
    ("sql", "parameters", "expected"),
    [
        ("SELECT name FROM customers ORDER BY id", None, [["Zoë"], ["王"]]),
        ("SELECT name FROM customers WHERE name = ?", ["王"], [["王"]]),
        ("SELECT name FROM customers WHERE name = :name", {"name": "' OR 1=1 --"}, []),
        ("SELECT ?, ?, ?, ?, ?", [1, 1.5, True, None, "x"], [[1, 1.5, 1, None, "x"]]),
        ('SELECT photo FROM "order\'s"', None, [["x'00ff'"]]),
        ("SELECT 9e999, -9e999, 9223372036854775807", None, [["Infinity", "-Infinity", 2**63 - 1]]),
        ("SELECT CAST(x'61ff' AS TEXT)", None, [["a\ufffd"]]),
        ("VALUES (1, 2)", None, [[1, 2]]),
        ("SELECT value FROM json_each('[1, 2]')", None, [[1], [2]]),
        ("PRAGMA table_info(names)", None, [[0, "name", "TEXT", 0, None, 0]]),
    ],
)
async def test_a_query_returns_rows(database: Loaded, sql: str, parameters: Any, expected: Any) -> None:
    assert await rows(database, sql, parameters) == expected


async def test_full_text_and_other_virtual_tables_can_be_read(load: Load, file: Path) -> None:
    _run(file, "CREATE VIRTUAL TABLE texts USING fts5(body); INSERT INTO texts VALUES ('hello world')")
    database = load("database", DATABASE_FILE=file)
    assert await rows(database, "SELECT body FROM texts WHERE texts MATCH ?", ["hello"]) == [["hello world"]]


async def test_a_database_in_write_ahead_mode_can_be_read_while_it_is_written(load: Load, file: Path) -> None:
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("PRAGMA journal_mode = wal")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM customers")
    database = load("database", DATABASE_FILE=file)
    assert await rows(database, "SELECT count(*) FROM customers") == [[2]]
    writer.close()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELEC", 'SQLite says: near "SELEC": syntax error'),
        ("SELECT missing FROM customers", "no such column: missing; describe_table shows a table's columns"),
        ("SELECT * FROM missing", "no such table: missing; list_tables shows what there is"),
        ("SELECT 1; SELECT 2", "SQLite says: You can only execute one statement at a time."),
        ("", "the statement returns nothing; write one SELECT statement"),
        ("-- nothing", "the statement returns nothing; write one SELECT statement"),
        ("SELECT ?", "SQLite says: Incorrect number of bindings supplied."),
        ("SELECT '\0'", "SQLite says: the query contains a null character"),
        ("SELECT " + "1," * 100_000 + "1", "SQLite says: query string is too large"),
        ("SELECT zeroblob(1000001)", "a value has more than 1000000 bytes"),
        ("SELECT " + "abs(" * 2_000 + "1" + ")" * 2_000, "SQLite says: "),
    ],
)
async def test_what_sqlite_cannot_do_is_explained_to_the_model(database: Loaded, sql: str, expected: str) -> None:
    assert (await refusal(database, sql)).startswith(expected)


@pytest.mark.parametrize("parameters", [[2**63], {"a": -(2**70)}])
async def test_a_number_beyond_64_bits_is_explained(database: Loaded, parameters: Any) -> None:
    sql = "SELECT ?" if isinstance(parameters, list) else "SELECT :a"
    assert "too large to convert to SQLite INTEGER" in await refusal(database, sql, parameters)


async def test_rows_and_text_are_bounded_and_say_so(load: Load, file: Path) -> None:
    database = load("database", DATABASE_FILE=file, DATABASE_ROWS=3)
    endless = FOREVER.replace("count(*)", "x")
    result = (await database.call("query", sql=endless)).structured_content
    assert (result["rows"], result["truncated"]) == ([[1], [2], [3]], "there are more than 3 rows")
    exactly = (await database.call("query", sql="VALUES (1), (2), (3)")).structured_content
    assert exactly["truncated"] is None
    [[long]] = await rows(database, "SELECT printf('%.*c', 900000, 'x')")
    assert long == "x" * 2_000 + "… (cut; 900000 characters in all)"
    [[blob]] = await rows(database, "SELECT zeroblob(900000)")
    assert blob.endswith("… (cut; 1800000 characters in all)")


async def test_many_long_rows_end_where_they_are_too_much_to_read(database: Loaded) -> None:
    sql = FOREVER.replace("count(*)", "printf('%.*c', 900000, 'x')")
    result = (await database.call("query", sql=sql)).structured_content
    assert len(result["rows"]) < 100
    assert result["truncated"].endswith("more would be too much text")


async def test_a_statement_that_takes_too_long_is_interrupted(load: Load, file: Path) -> None:
    database = load("database", DATABASE_FILE=file, DATABASE_SECONDS=1)
    with anyio.fail_after(DEADLINE_SECONDS):
        assert (await refusal(database, FOREVER)).startswith("the statement ran longer than 1 seconds")


SLOW_STEPS = {
    "instr": "instr(printf('%.*c', 999999, 'a'), printf('%.*c', 499999, 'a') || 'b')",
    "replace": "length(replace(printf('%.*c', 999999, 'a'), printf('%.*c', 499999, 'a') || 'b', 'c'))",
    "trim": "length(trim(printf('%.*c', 999999, 'a'), printf('%.*c', 50000, 'b') || 'a'))",
    "like": "(printf('%.*c', 999999, 'a') LIKE ('%' || printf('%.*c', 49000, 'a') || 'b'))",
}


@pytest.mark.parametrize("step", SLOW_STEPS)
async def test_a_step_that_sqlite_does_not_interrupt_ends_with_its_process(
    load: Load, file: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these steps takes SQLite seconds to minutes, and there are twenty."""
    database = load("database", DATABASE_FILE=file, DATABASE_SECONDS=1)
    started = _started_processes(database, monkeypatch)
    sql = "SELECT " + ", ".join(f"{SLOW_STEPS[step]} + {number}" for number in range(20))
    with anyio.fail_after(DEADLINE_SECONDS):
        assert (await refusal(database, sql)).startswith("the statement ran longer than 1 seconds")
    assert not any(process.is_usable for process in started)
    assert await rows(database, "SELECT 1") == [[1]]


async def test_a_change_that_is_killed_leaves_a_database_that_can_be_read(
    load: Load, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = load("database", DATABASE_FILE=file, DATABASE_SECONDS=1, DATABASE_WRITABLE=1)
    started = _started_processes(database, monkeypatch)
    sql = f"UPDATE customers SET name = {SLOW_STEPS['instr']} + {SLOW_STEPS['instr']} + {SLOW_STEPS['instr']}"
    with anyio.fail_after(DEADLINE_SECONDS):
        assert (await refusal(database, sql, tool="execute")).startswith("the statement ran longer than 1 seconds")
    assert not started[0].is_usable
    assert await rows(database, "SELECT name FROM customers ORDER BY id") == [["Zoë"], ["王"]]


async def test_statements_wait_for_a_process_and_the_idle_ones_are_used_again(
    load: Load, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = load("database", DATABASE_FILE=file)
    started = _started_processes(database, monkeypatch)
    results: list[Any] = []

    async def count(number: int) -> None:
        results.append(await rows(database, "SELECT ?", [number]))

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as calls:
            for number in range(30):
                calls.start_soon(count, number)
    assert sorted(results) == [[[number]] for number in range(30)]
    running = [process for process in started if process.is_usable]
    assert len(running) <= database.module.IDLE_PROCESSES
    for process in running:
        process.end()
    assert await rows(database, "SELECT 1") == [[1]]


def _started_processes(database: Loaded, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The processes that run statements from now on."""
    started: list[Any] = []
    kind = database.module.StatementProcess

    def start() -> Any:
        started.append(kind())
        return started[-1]

    for process in database.module._idle:
        process.end()
    monkeypatch.setattr(database.module, "StatementProcess", start)
    return started


async def test_too_much_memory_is_refused_and_the_next_query_runs(database: Loaded) -> None:
    columns = ", ".join(["printf('%.*c', 999999, 'x')"] * 500)
    assert (await refusal(database, f"SELECT {columns}")).startswith("the statement needs too much memory")
    assert await rows(database, "SELECT 1") == [[1]]


@pytest.fixture
def patient(load: Load, file: Path) -> Loaded:
    return load("database", DATABASE_FILE=file, DATABASE_SECONDS=3600)


async def test_a_query_whose_caller_has_left_is_interrupted(patient: Loaded) -> None:
    started, ended = anyio.Event(), anyio.Event()

    @tool
    def observed(context: InvocationContext) -> None:
        anyio.from_thread.run_sync(started.set)
        try:
            patient.module.query(FOREVER, context)
        except ToolError:
            anyio.from_thread.run_sync(ended.set)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as calls:
            calls.start_soon(execute, ToolBox(observed), ToolExecutionRequest("observed"), InvocationContext())
            await started.wait()
            calls.cancel_scope.cancel()
        await ended.wait()


async def test_a_query_holds_up_nobody_else(patient: Loaded) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as calls:
            calls.start_soon(lambda: patient.call("query", sql=FOREVER))
            assert await rows(patient, "SELECT 1") == [[1]]
            calls.cancel_scope.cancel()


async def test_the_schema_is_a_resource_and_each_table_one_of_a_template(database: Loaded, file: Path) -> None:
    _run(
        file, "CREATE VIRTUAL TABLE words USING fts5(word); CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT)"
    )
    async with connected(database.module) as provider:
        (whole,) = await provider.resources.read("database://schema")
        assert whole.mime_type == "application/sql"
        assert str(whole.content).splitlines() == [
            "CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT);",
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT 'nobody');",
            "CREATE INDEX by_name ON customers (name);",
            "CREATE VIEW names AS SELECT name FROM customers;",
            """CREATE TABLE "order's" (id INTEGER, customer INTEGER REFERENCES customers (id), photo BLOB);""",
            "CREATE VIRTUAL TABLE words USING fts5(word);",
        ]
        (table,) = await provider.resources.read("database://tables/order%27s")
        assert [each["name"] for each in json.loads(str(table.content))["columns"]] == ["id", "customer", "photo"]
        with pytest.raises(ResourceNotFoundError):
            await provider.resources.read("database://tables/nothing")
        completed = await provider.resources.complete("database://tables/{table}", "table", "C")
        assert completed.values == ("counted", "customers")


async def test_the_prompt_asks_with_the_schema(database: Loaded) -> None:
    async with connected(database.module) as provider:
        schema, task = await provider.prompts.render("ask", {"question": "Who ordered twice?"})
        assert isinstance(schema.content, File)
        assert "CREATE TABLE customers" in str(schema.content.content)
        assert isinstance(task.content, Text)
        assert task.content.text.endswith("\n\nWho ordered twice?")


async def test_a_real_client_uses_it(serve: Serve, file: Path) -> None:
    async with serve("database", DATABASE_FILE=file, DATABASE_WRITABLE=1) as client:
        tables = await client.call_tool("list_tables")
        assert tables.structured_content is not None
        assert [table["name"] for table in tables.structured_content["result"]] == ["customers", "names", "order's"]
        sql = "INSERT INTO customers (name) VALUES (?)"
        changed = await client.call_tool("execute", {"sql": sql, "parameters": ["Aïsha"]})
        assert changed.structured_content == {"rows_changed": 1, "returned": None}
        found = await client.call_tool("query", {"sql": "SELECT name FROM customers ORDER BY id DESC LIMIT 1"})
        assert found.structured_content == {"columns": ["name"], "rows": [["Aïsha"]], "truncated": None}
        assert (await client.call_tool("query", {"sql": "DROP TABLE customers"})).is_error
        (read,) = (await client.read_resource("database://tables/customers")).contents
        assert "by_name" in read.text  # type: ignore[union-attr]
