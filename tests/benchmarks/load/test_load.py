from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE_SECONDS = 200
NEEDS_WRK = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
NEEDS_REDIS = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
FEW = (
    "--clients=5",
    "--sessions=5",
    "--calls=50",
    "--held-seconds=4",
    "--latency-calls=32",
    "--flood-seconds=1",
    "--tools=20",
    "--reads=1",
    "--round-calls=10",
    "--gateway-seconds=0",
    "--peer-seconds=1",
    "--peer-rounds=1",
    "--lab-seconds=1",
    "--redis-calls=100",
    "--callers=5",
    "--idle-sessions=5",
    "--subscribers=5",
    "--results=1",
    *("--servers", "1", "2"),
)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read as Linux tells it")
@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("clients", ["5 clients at once", "handshake", "modern, through a gateway"]),
        ("sessions", ["5 of 5 answered", "5 of 5 are gone", "as many again"]),
        ("soak", ["A soak of 50 calls", "handshake, stdio", "handshake, HTTP", "modern, HTTP"]),
        ("held", ["what waits 20.0 ms", "2 of 2", "1 of 1"]),
        ("latency", ["| modern ", "| handshake ", "modern, 4,000 a second"]),
        ("flood", ["another floods", "alone, no limits", "beside the flood, --rate 100/1"]),
        pytest.param("teams", ["| alone ", "| beside the flood "], marks=pytest.mark.slow),
        pytest.param("peers", ["2026-07-28, through bridge"], marks=NEEDS_WRK),
        pytest.param("features", ["a read, FastMCP", "a prompt, bare protocol"], marks=(NEEDS_WRK, pytest.mark.slow)),
        ("gateway", ["| over HTTP, 2026-07-28", "| over stdio, handshake", "| bridge"]),
        ("servers", ["| bridge, 1", "| bridge, 2"]),
        pytest.param("reads", ["from the server", "through bridge, a server over stdio"], marks=pytest.mark.slow),
        ("lists", ["10 tools, and 20", "a later list, modern", "a call of the last, handshake"]),
        ("breadth", ["| 20 tools, searched", "| 5 subscribers of one resource", "| 1 results of 20 MiB"]),
        pytest.param("redis", ["| a session of 2025-11-25, opened", "with `--rate`"], marks=NEEDS_REDIS),
        pytest.param("lab", ["| bridge", "| bare protocol"], marks=(NEEDS_WRK, NEEDS_REDIS, pytest.mark.slow)),
        pytest.param("gateway-sessions", ["| directly", "| bridge, loaded"], marks=pytest.mark.slow),
        ("breakdown", ["uvicorn and its parser", "pipes, event loop, lines", "the whole"]),
    ],
)
def test_a_section_runs_with_few_of_everything(section: str, found: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.load", section, *FEW],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert [text for text in found if text not in run.stdout] == []
