"""Environment: the variables that a child process gets."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.config.servers import InheritEnvironment

MINIMAL = (
    (
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
    if sys.platform == "win32"
    else ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
)
"""What any program needs, and nothing that may be secret."""


def child_environment(
    inherit: InheritEnvironment, added: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a child.

    Args:
        inherit: What it inherits: what any program needs, everything, or these variables beside that.
        added: What it gets beside that; stronger.
        environ: What there is to inherit; by default this process's environment.
    """
    there = os.environ if environ is None else environ
    names = there.keys() if inherit == "all" else (*MINIMAL, *(() if inherit == "minimal" else inherit))
    inherited = {name: there[name] for name in names if name in there}
    return {name: value for name, value in inherited.items() if not value.startswith("()")} | dict(added)
