from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEADLINE_SECONDS = 100
QUICK = "not 10000 and not mcp and not start and not SDK"
ONCE = (
    "-o", "python_files=bench_*.py", "-o", "python_functions=bench_*", "--benchmark-disable", "-p", "no:cacheprovider",
)  # fmt: skip


def test_the_benchmarks_run() -> None:
    """Run each benchmark once without measuring, except slow ones."""
    command = [sys.executable, "-m", "pytest", "--quiet", *ONCE, "-k", QUICK, str(Path(__file__).parent)]
    run = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert run.returncode == 0, run.stdout
