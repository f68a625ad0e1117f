"""Agents of other projects, installed into a cache folder.

The folder is ``BRIDGE_AGENTS_CACHE``, by default ``~/.cache/bridge-bench-agents``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("pydantic-ai-slim==2.68.0", "langchain==1.4.7")
INSTALL_SECONDS = 300
CACHE = Path(os.environ.get("BRIDGE_AGENTS_CACHE", "~/.cache/bridge-bench-agents")).expanduser()


class NotInstalledError(Exception):
    """The agents cannot be installed; the message gives the reason."""


def python_with_agents() -> str:
    """Return a Python in which they are installed; the first use installs them.

    Raises:
        NotInstalledError: They cannot be installed.
    """
    folder = CACHE / "_".join(PACKAGES)
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        try:
            shutil.rmtree(folder, ignore_errors=True)  # left by an earlier attempt
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(python), "-m", "pip", "install", "--quiet", *PACKAGES)
            done.touch()
        except (OSError, subprocess.SubprocessError) as error:
            raise NotInstalledError(f"{', '.join(PACKAGES)} cannot be installed: {error}") from error
    return str(python)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        raise subprocess.SubprocessError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")
