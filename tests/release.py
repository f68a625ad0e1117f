"""Builds what a release publishes, into ``dist/``, and checks it: ``make release``.

- the wheel and the source distribution: metadata, contents, and the commands and the demo in an empty environment;
- ``server.json``, the entry of the MCP registry;
- an MCP Bundle (``.mcpb``) of ready servers, which `bridge bundle` writes.

    python -m tests.release [--tag | --constraints]
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from email import message_from_string
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"
DEADLINE_SECONDS = 600
_PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, ADDRESSES = _PYPROJECT["project"], _PYPROJECT["tool"]["release"]
VERSION: str = PROJECT["version"]
BUNDLED = ("calculator.py", "files.py")
"""Ready servers of the bundle: those that need nothing but a folder."""
NEEDED_IN_SOURCE = (
    "bridge/__init__.py",
    "bridge/py.typed",
    "servers/files.py",
    "tests/release.py",
    "README.md",
    "LICENSE",
)


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run a program with variables of the environment; its output is shown if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


# --- wheel and source distribution -----------------------------------------------------------------------------------


def build(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution into a folder, and check their contents."""
    run(sys.executable, "-m", "hatchling", "build", "-d", folder)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with ZipFile(wheel) as archive:
        wrong = {name for name in archive.namelist() if not name.startswith(("bridge/", "mcp_toolbridge-"))}
        assert not wrong, f"the wheel has {sorted(wrong)}"
        assert {"bridge/py.typed", "bridge/__init__.pyi"} <= set(archive.namelist())
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        check_description(archive.read(metadata).decode())
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert set(NEEDED_IN_SOURCE) <= names, f"the source distribution has no {set(NEEDED_IN_SOURCE) - names}"
        assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "dist"))]
    return wheel, source


def check_description(metadata: str) -> None:
    """Check that the links and pictures of the description lead to this version in the repository."""
    text = str(message_from_string(metadata).get_payload())
    targets = re.findall(r'\]\(([^)\s]+)\)|<img src="([^"]+)"', text)
    found = {target for pair in targets for target in pair if target and not target.startswith("#")}
    assert not (relative := {each for each in found if not each.startswith("https://")}), f"relative links: {relative}"
    assert f"{ADDRESSES['repository']}/raw/v{VERSION}/docs/tour.gif" in found
    of_files = {each.removeprefix(f"{ADDRESSES['repository']}/blob/v{VERSION}/").partition("#")[0] for each in found}
    of_files -= {each for each in of_files if each.startswith("https://")}
    assert of_files
    assert not (missing := {each for each in of_files if not (ROOT / each).exists()}), f"no such files: {missing}"


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install a wheel in an empty environment, and run the command and the demo there."""
    run(sys.executable, "-m", "venv", folder / "env")
    python = folder / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, wheel)
    home = folder / "home"
    for name in ("examples/demo.py", "servers/calculator.py"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, home / name)
    place = run(python, "-c", "import bridge; print(bridge.__file__)", cwd=home).strip()
    assert Path(place).is_relative_to(folder / "env"), f"{place} is not of the wheel"
    assert run(folder / "env" / "bin" / "bridge", "--version", cwd=home).strip() == f"bridge {VERSION}"
    assert "Usage: " in run(folder / "env" / "bin" / "mcp-toolbridge", "--help", cwd=home)
    assert "All of it agrees with math.sqrt." in run(python, "examples/demo.py", cwd=home)


# --- registry and bundle ---------------------------------------------------------------------------------------------


def registry_entry() -> dict[str, Any]:
    """The entry of the MCP registry (schema 2025-12-11): that of ``examples/deploy``, for this version."""
    entry: dict[str, Any] = json.loads((ROOT / "examples" / "deploy" / "server.json").read_text(encoding="utf-8"))
    packages = [{**each, "identifier": PROJECT["name"], "version": VERSION} for each in entry["packages"]]
    return {**entry, "name": ADDRESSES["registry-name"], "version": VERSION, "packages": packages}


def write_bundle(path: Path) -> None:
    """Write the bundle of ready servers, as `bridge bundle` does for everybody."""
    described = {
        "name": f"{PROJECT['name']}-servers",
        "version": VERSION,
        "description": "Exact arithmetic, and the files of one folder: two ready servers of mcp-toolbridge.",
        "license": PROJECT["license"],
        "requires-python": PROJECT["requires-python"],
        "classifiers": ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"],
    }
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in described.items()]
    lines.append('authors = [{name = "The authors of mcp-toolbridge"}]\n')
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text("".join(["[project]\n", *lines]), encoding="utf-8")
        for source in (ROOT / "LICENSE", *(ROOT / "servers" / name for name in BUNDLED)):
            shutil.copy(source, folder)
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "bridge",
            "bundle",
            *BUNDLED,
            "--include",
            "LICENSE",
            "--output",
            path,
        ]
        asked = "FILES_ROOT:directory=The folder whose files are served, read-only"
        run(*command, "--ask", asked, cwd=Path(folder), FILES_ROOT=folder)


# --- constraints and tag ---------------------------------------------------------------------------------------------


def installed() -> list[str]:
    """The distributions of this environment with their versions, without this project."""
    found = {re.sub(r"[-_.]+", "-", each.name.lower()): each.version for each in distributions()}
    return [f"{name}=={found[name]}" for name in sorted(found.keys() - {PROJECT["name"], "pip", "setuptools"})]


def tag() -> None:
    """Tag the commit of a release."""
    if changed := run("git", "status", "--porcelain"):
        raise SystemExit(f"commit first:\n{changed}")
    run("git", "tag", "--annotate", f"v{VERSION}", "--message", f"Version {VERSION}")


def main(arguments: Iterable[str]) -> None:
    """Build and check a release."""
    if "--constraints" in arguments:
        CONSTRAINTS.write_text("\n".join([*installed(), ""]), encoding="utf-8")
        return
    assert re.search(rf"^## {re.escape(VERSION)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    shutil.rmtree(DIST, ignore_errors=True)
    wheel, source = build(DIST)
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder).resolve())
    (DIST / "server.json").write_text(json.dumps(registry_entry(), indent=2) + "\n", encoding="utf-8")
    write_bundle(DIST / f"{PROJECT['name']}-servers-{VERSION}.mcpb")
    if "--tag" in arguments:
        tag()
    sys.stdout.write("".join(f"dist/{path.name}\n" for path in sorted(DIST.iterdir())))


if __name__ == "__main__":
    main(sys.argv[1:])
