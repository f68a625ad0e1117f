"""Bundles of `bridge bundle`, judged by the official tool, and started by uv as an assistant starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import release
from tests.interop.packages import MCPB_VERSION, npm_package, python_with

pytestmark = pytest.mark.slow

UV_VERSION = "0.13.9"
DEADLINE_SECONDS = 300
TOOLS = '''
# /// script
# dependencies = ["humanize>=4.9"]
# ///
import os

from bridge import tool


@tool
def spoken(number: int) -> str:
    """Write a number for people."""
    import humanize

    return f"{humanize.intcomma(number)} {os.environ['UNIT']}"
'''


def bundled(folder: Path) -> Path:
    (folder / "tools.py").write_text(TOOLS)
    bridge(folder, "bundle", "tools.py", "--ask", "UNIT=Unit of the numbers", "--secret", "KEY", UNIT="m")
    return folder / "tools.mcpb"


def bridge(folder: Path, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bridge", *arguments],
        cwd=folder,
        env={**os.environ, "BRIDGE_STATE_DIR": str(folder / "state"), **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["own", "ready servers"])
def test_the_official_tool_accepts_and_unpacks_a_bundle(kind: str, tmp_path: Path) -> None:
    node, tool = shutil.which("node"), npm_package("@anthropic-ai/mcpb", MCPB_VERSION) / "dist" / "cli" / "cli.js"
    if kind == "own":
        path = bundled(tmp_path)
    else:
        release.write_bundle(path := tmp_path / "servers.mcpb")
    for arguments in (("unpack", str(path), str(tmp_path / "out")), ("validate", str(tmp_path / "out"))):
        done = subprocess.run(
            [str(node), str(tool), *arguments], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Manifest schema validation passes!" in done.stdout
    assert (tmp_path / "out" / "pyproject.toml").is_file()


def test_uv_installs_the_packages_of_a_bundle_and_runs_its_server(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    release.run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels)
    uv = Path(python_with("uv", UV_VERSION)).parent
    path = bundled(tmp_path)
    environment = {
        "PATH": f"{uv}{os.pathsep}{os.environ['PATH']}",
        "UV_FIND_LINKS": str(wheels),  # the package is not published yet
        "BRIDGE_INPUT_TOOLS__UNIT": "m",
        "BRIDGE_INPUT_TOOLS__KEY": "secret",
    }
    limit = ("--timeout", str(DEADLINE_SECONDS))
    assert bridge(tmp_path, "call", str(path), "spoken", "number=1234567", *limit, **environment) == "1,234,567 m\n"
