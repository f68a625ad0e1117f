"""The gateway of twelve servers."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.processes import ROOT, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = ("all", "search", "code")
RECORDED = ("atlassian", "git", "github", "gitlab", "notion", "playwright", "sentry", "slack")
MONTHS = 12
LINES = 200
ORDERS = 400


def errors_of(month: int) -> int:
    """Return the number of errors in the log of a month."""
    return sum(1 for line in range(LINES) if _is_error(month, line))


def _is_error(month: int, line: int) -> bool:
    return (line * 7 + month) % (month + 10) == 0


def written(folder: str) -> Path:
    """Write the data and the configuration of the servers; return the path of the configuration."""
    root = Path(folder)
    logs = root / "logs"
    logs.mkdir()
    for month in range(1, MONTHS + 1):
        lines = (
            f"2026-{month:02}-01 12:00:{line % 60:02} {'ERROR' if _is_error(month, line) else 'INFO'} request {line}"
            for line in range(LINES)
        )
        (logs / f"{month:02}.log").write_text("\n".join(lines), encoding="utf-8")
    with closing(sqlite3.connect(root / "shop.db")) as database:
        database.execute("CREATE TABLE orders (number INTEGER, customer TEXT, euros REAL)")
        rows = [(number, f"customer {number % 9}", number * 1.25) for number in range(ORDERS)]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
        database.commit()
    environment = {"files": {"FILES_ROOT": str(root)}, "database": {"DATABASE_FILE": str(root / "shop.db")}}
    servers = {
        name: {
            "command": sys.executable,
            "args": ["-m", "bridge", "serve", str(ROOT / "servers" / f"{name}.py")],
            "env": environment.get(name, {}),
            "cwd": str(ROOT),
        }
        for name in ("bookings", "calculator", "database", "files")
    }
    program = str(Path(__file__).with_name("recorded_server.py"))
    servers |= {name: {"command": sys.executable, "args": [program, name], "cwd": str(ROOT)} for name in RECORDED}
    path = root / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


@contextmanager
def running(configuration: Path, mode: str) -> Iterator[str]:
    """Run the gateway; yields its URL."""
    with serving(
        "-m", "bridge", "serve", str(configuration), "--transport", "http", "--port", "0", "--tools", mode
    ) as server:
        yield f"{server.origin}/mcp"
