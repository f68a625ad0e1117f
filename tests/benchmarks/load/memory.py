"""How much memory a process has, as Linux tells it."""

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
    """What one process, or several together, have of the machine."""

    resident_kib: int = 0
    private_kib: int = 0
    """What of that is shared with nobody."""
    descriptors: int = 0
    """How many files, connections and pipes are open."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            resident_kib=self.resident_kib + other.resident_kib,
            private_kib=self.private_kib + other.private_kib,
            descriptors=self.descriptors + other.descriptors,
        )


def usage(process_id: int) -> Usage:
    """What a process has now."""
    folder = Path(f"/proc/{process_id}")
    rollup = (folder / "smaps_rollup").read_text(encoding="ascii")
    return Usage(
        resident_kib=_amount(rollup, "Rss"),
        private_kib=_amount(rollup, "Private_Clean") + _amount(rollup, "Private_Dirty"),
        descriptors=sum(1 for _ in (folder / "fd").iterdir()),
    )


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
    return _amount(Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"), name)


def _amount(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None, f"the process has ended: {name} is not in {text!r}"
    return int(found[1])
