"""How much memory a process has, as Linux tells it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_KIB_IN_MIB = 1024


def resident_kib(process: subprocess.Popen[bytes]) -> int:
    """What it has now."""
    return _kib(process, "VmRSS")


def peak_kib(process: subprocess.Popen[bytes]) -> int:
    """The most that it ever had."""
    return _kib(process, "VmHWM")


def mib(kib: int) -> str:
    """An amount, as it is read."""
    return f"{kib / _KIB_IN_MIB:.1f} MiB"


def _kib(process: subprocess.Popen[bytes], name: str) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, f"the process {process.pid} has ended"
    return int(found[1])
