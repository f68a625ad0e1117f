"""The lines that a gateway writes when it starts."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests import forks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Start

KEYS = "ada aaaaaaaaaaaaaaaaaaaaaaaa team=data profiles=one\n"
MOST_LINES = 10


def test_a_gateway_of_fifteen_servers_and_three_profiles_starts_in_ten_lines(start: Start, directory: Path) -> None:
    servers: dict[str, object] = {
        f"server{number}": forks.entry("-m", "bridge", "serve", "calculator.py:add", cwd=str(directory))
        for number in range(11)
    }
    servers |= {f"gone{number}": {"command": "/nonexistent/server"} for number in range(4)}
    profiles = {name: {"servers": ["server1"]} for name in ("one", "two", "three")}
    configuration = {"mcpServers": servers, "profiles": profiles}
    (directory / "mcp.json").write_text(json.dumps(configuration), encoding="utf-8")
    (directory / "keys").write_text(KEYS, encoding="utf-8")
    (directory / "keys").chmod(0o600)
    with start("serve", "mcp.json", "--transport", "http", "--port", "0", "--api-keys", "keys") as process:
        assert process.line_with("servers are ready") == "11 of 15 servers are ready, with 11 tools"
        lines = list(process.seen)
        assert process.end(signal.SIGTERM) == 0
    assert len(lines) <= MOST_LINES, lines
    warning = next(line for line in lines if line.startswith("WARNING"))
    assert "continuing without 4 of 15 servers" in warning
    assert "'gone3': command not found" in warning
    assert sum(line.startswith("serving ") for line in lines) == 3
