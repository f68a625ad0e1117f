"""Statements that servers/database.py refuses; permitted ones are executed completely or not at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.conftest import Load, Loaded

pytestmark = pytest.mark.anyio

NOT_ALLOWED = "that statement, function or PRAGMA is not allowed here"
SAMPLE = """
    CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT NOT NULL UNIQUE);
    CREATE TABLE child (t INTEGER REFERENCES t (a));
    INSERT INTO t (b) VALUES ('one'), ('two');
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SAMPLE)
    return path


@pytest.fixture
def database(load: Load, file: Path) -> Loaded:
    return load("database", DATABASE_FILE=file, DATABASE_WRITABLE=1, DATABASE_SECONDS=1)


def stored(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT a, b FROM t ORDER BY a").fetchall()


def everything_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return list(connection.iterdump())


UNCHANGED = [(1, "one"), (2, "two")]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t (b) VALUES ('x')",
        "INSERT INTO t (b) VALUES ('x') RETURNING a",
        "WITH x AS (SELECT 1) DELETE FROM t",
        "UPDATE t SET b = 'x' RETURNING *",
        "REPLACE INTO t VALUES (1, 'x')",
        "DROP TABLE t",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE x USING fts5(y)",
        "ALTER TABLE t ADD COLUMN c",
        "REINDEX",
        "ANALYZE",
        "/* SELECT */ DELETE FROM t",
        "EXPLAIN SELECT 1; DELETE FROM t",
        "UPDATE sqlite_schema SET sql = ''",
    ],
)
async def test_a_query_cannot_change_anything(database: Loaded, file: Path, sql: str) -> None:
    before = everything_in(file)
    assert (await database.call("query", sql=sql)).is_error
    assert everything_in(file) == before


@pytest.mark.parametrize("tool", ["query", "execute"])
@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH DATABASE '{evil}' AS evil",
        "ATTACH ':memory:' AS m",
        "DETACH main",
        "PRAGMA query_only = 0",
        "PRAGMA query_only(0)",
        "PRAGMA main.journal_mode = off",
        "PRAGMA writable_schema = 1",
        "PRAGMA temp_store_directory = '/tmp'",
        "PRAGMA hard_heap_limit = 0",
        "PRAGMA user_version = 7",
        "PRAGMA page_size = 512",
        "PRAGMA database_list",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM pragma_hard_heap_limit",
        "SELECT load_extension('{evil}')",
        "SELECT LOAD_EXTENSION('{evil}', 'entry')",
        "SELECT fts3_tokenizer('simple')",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s",
        "RELEASE s",
    ],
)
async def test_nothing_reaches_beyond_the_database(database: Loaded, tmp_path: Path, tool: str, sql: str) -> None:
    evil = tmp_path / "evil.db"
    result = await database.call(tool, sql=sql.format(evil=evil))
    assert (result.text, result.is_error) == (NOT_ALLOWED, True)
    assert not evil.exists()


@pytest.mark.parametrize("tool", ["query", "execute"])
async def test_no_copy_of_the_database_can_be_made(database: Loaded, tmp_path: Path, tool: str) -> None:
    assert (await database.call(tool, sql=f"VACUUM INTO '{tmp_path / 'copy.db'}'")).is_error
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize(
    ("sql", "parameters", "expected"),
    [
        ("INSERT INTO t (b) VALUES (?), (?)", ["x", "y"], {"rows_changed": 2, "returned": None}),
        ("DELETE FROM t WHERE a = :a", {"a": 9}, {"rows_changed": 0, "returned": None}),
        (
            "UPDATE t SET b = b || '!' RETURNING b",
            None,
            {"rows_changed": 2, "returned": {"columns": ["b"], "rows": [["one!"], ["two!"]], "truncated": None}},
        ),
        ("CREATE TABLE x (y)", None, {"rows_changed": 0, "returned": None}),
        ("ALTER TABLE t RENAME COLUMN b TO c", None, {"rows_changed": 0, "returned": None}),
    ],
)
async def test_a_change_says_what_it_changed(database: Loaded, sql: str, parameters: Any, expected: Any) -> None:
    result = await database.call("execute", sql=sql, parameters=parameters)
    assert result.structured_content == expected


async def test_a_change_is_kept(database: Loaded, file: Path) -> None:
    await database.call("execute", sql="INSERT INTO t (b) VALUES (?)", parameters=["'); DROP TABLE t; --"])
    assert stored(file) == [*UNCHANGED, (3, "'); DROP TABLE t; --")]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO t (b) VALUES ('x'), ('one')", "SQLite says: UNIQUE constraint failed: t.b"),
        ("INSERT INTO t (b) VALUES ('x'), (NULL)", "SQLite says: NOT NULL constraint failed: t.b"),
        ("INSERT INTO child VALUES (99)", "SQLite says: FOREIGN KEY constraint failed"),
        ("INSERT INTO t (b) VALUES ('x'); DELETE FROM t", "SQLite says: You can only execute one statement at a time."),
        (
            "INSERT INTO t (b) WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
            "the statement ran longer than 1 seconds",
        ),
    ],
)
async def test_a_change_that_fails_changes_nothing(database: Loaded, file: Path, sql: str, expected: str) -> None:
    result = await database.call("execute", sql=sql)
    assert result.is_error
    assert result.text.startswith(expected)
    assert stored(file) == UNCHANGED


async def test_a_change_waits_for_another_writer_and_then_says_that_it_is_busy(database: Loaded, file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        result = await database.call("execute", sql="DELETE FROM t")
    assert result.text == "another program is writing to the database; try again"
    assert not (await database.call("execute", sql="DELETE FROM t")).is_error
    assert stored(file) == []
