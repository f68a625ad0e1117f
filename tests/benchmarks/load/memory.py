"""Memory of a process, as Linux reports it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_KIB_IN_MIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resources of one process, or of several together."""

    resident_kib: int = 0
    private_kib: int = 0
    """Memory that is shared with no other process."""
    proportional_kib: int = 0
    """Memory, of which what several processes share counts in parts."""
    descriptors: int = 0
    """Number of open files, connections and pipes."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            resident_kib=self.resident_kib + other.resident_kib,
            private_kib=self.private_kib + other.private_kib,
            proportional_kib=self.proportional_kib + other.proportional_kib,
            descriptors=self.descriptors + other.descriptors,
        )


def usage(process_id: int) -> Usage:
    """Return the current resources of a process."""
    folder = Path(f"/proc/{process_id}")
    rollup = (folder / "smaps_rollup").read_text(encoding="ascii")
    return Usage(
        resident_kib=_amount(rollup, "Rss"),
        private_kib=_amount(rollup, "Private_Clean") + _amount(rollup, "Private_Dirty"),
        proportional_kib=_amount(rollup, "Pss"),
        descriptors=sum(1 for _ in (folder / "fd").iterdir()),
    )


def family(process_id: int) -> list[int]:
    """Return the IDs of a process and of all that it has started, and they have."""
    found = [process_id]
    for each in found:
        for thread in Path(f"/proc/{each}/task").iterdir():
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def resident_kib(process: subprocess.Popen[bytes]) -> int:
    """Return the current resident memory."""
    return _kib(process, "VmRSS")


def peak_kib(process: subprocess.Popen[bytes]) -> int:
    """Return the maximum resident memory since the start."""
    return _kib(process, "VmHWM")


def mib(kib: int) -> str:
    """Format an amount of memory."""
    return f"{kib / _KIB_IN_MIB:.1f} MiB"


def _kib(process: subprocess.Popen[bytes], name: str) -> int:
    return _amount(Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"), name)


def _amount(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None, f"the process has ended: {name} is not in {text!r}"
    return int(found[1])
