"""``bridge bundle``, and bundles as targets."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest

from bridge.client.config.bundle_writer import write_bundle

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TOOLS = """
# /// script
# dependencies = ["httpx>=0.28"]
# ///
import os

from bridge import tool
from helper import double


@tool
def twice(number: int) -> int:
    '''Double a number.'''
    from lazily import nothing

    return double(number) + nothing() + int(os.environ.get("OFFSET", "0"))
"""


@pytest.fixture
def tools(directory: Path) -> Path:
    """A Python file with modules beside it, in a folder with other things."""
    (directory / "tools.py").write_text(TOOLS)
    (directory / "helper.py").write_text("from words import ONE\n\n\ndef double(number):\n    return number * 2\n")
    (directory / "words").mkdir()
    (directory / "words" / "__init__.py").write_text("ONE = 1\n")
    (directory / "words" / "data.txt").write_text("data")
    (directory / "lazily.py").write_text("def nothing():\n    return 0\n")
    (directory / "notes.txt").write_text("notes")
    (directory / ".env").write_text("KEY=secret")
    return directory / "tools.py"


def contents(path: Path) -> dict[str, str]:
    with ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.mark.usefixtures("tools")
def test_a_bundle_has_a_file_with_the_modules_that_it_imports(run: Run, directory: Path) -> None:
    done = run("bundle", "tools.py", "--requires", "rich", "--include", "notes.txt", "--secret", "KEY=A key")
    assert done.returncode == 0, done.stderr
    files = contents(directory / "tools.mcpb")
    assert [*files] == [
        *("manifest.json", "helper.py", "lazily.py", "notes.txt", "pyproject.toml", "tools.py"),
        *("words/__init__.py", "words/data.txt"),
    ]
    manifest = json.loads(files["manifest.json"])
    assert manifest["tools"] == [{"name": "twice", "description": "Double a number."}]
    assert manifest["server"]["mcp_config"]["env"] == {"KEY": "${user_config.key}"}
    assert manifest["user_config"]["key"]["sensitive"] is True
    needed = tomllib.loads(files["pyproject.toml"])["project"]["dependencies"]
    assert needed == [f"mcp-toolbridge=={version('mcp-toolbridge')}", "rich", "httpx>=0.28"]
    assert "8 files" in done.stderr


@pytest.mark.usefixtures("tools")
def test_a_bundle_of_a_directory_has_everything_but_hidden_files_and_the_project_describes_it(
    run: Run, directory: Path
) -> None:
    described = '[project]\nname = "sums"\nversion = "3.1"\ndescription = "Sums"\n'
    (directory / "pyproject.toml").write_text(f'{described}dependencies = ["mcp-toolbridge[skills]>=0.1"]\n')
    (directory / "venv").mkdir()
    (directory / "venv" / "pyvenv.cfg").touch()
    (directory / "skill").mkdir()
    (directory / "skill" / "SKILL.md").write_text("---\nname: skill\ndescription: Sums\n---\nAdd.\n")
    done = run("bundle", ".", "--output", "out.mcpb")
    assert done.returncode == 0, done.stderr
    files = contents(directory / "out.mcpb")
    assert {"calculator.py", "tools.py", "notes.txt", "skill/SKILL.md"} <= files.keys()
    assert not [name for name in files if ".env" in name or "venv" in name or "__pycache__" in name]
    manifest = json.loads(files["manifest.json"])
    assert (manifest["name"], manifest["version"], manifest["description"]) == ("sums", "3.1", "Sums")
    assert "mcp-toolbridge==" not in files["pyproject.toml"]


@pytest.mark.usefixtures("tools")
def test_a_manifest_is_shown_without_a_bundle(run: Run, directory: Path) -> None:
    done = run("bundle", "tools.py:twice", "--dry-run", "--name", "doubling", "--ask", "OFFSET:number=Added")
    manifest = json.loads(done.stdout)
    assert manifest["server"]["mcp_config"]["args"][-3:] == ["${__dirname}/tools.py:twice", "--name", "doubling"]
    assert manifest["user_config"]["offset"]["type"] == "number"
    assert [each.name for each in directory.iterdir() if each.suffix == ".mcpb"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("json",), "Python files and directories, and 'json' is neither"),
        (("tools.py", "--ask", "A:colour"), "'colour' is not one of the choices string, number"),
        (("tools.py", "--ask", "A B"), "has the form VARIABLE[:TYPE][=DESCRIPTION], not 'A B'"),
        (("tools.py", "--secret", "A:number"), "has the form VARIABLE[=DESCRIPTION], not 'A:number'"),
        (("tools.py", "--include", "/etc/hosts"), "is not in"),
        (("tools.py", "--include", "link"), "is a link to a file outside of"),
        (("tools.py", "--name", "a/b"), "the name of a bundle has letters"),
        (("tools.py", "--project", "none.toml"), "cannot read none.toml"),
        (("tools.py", "--output", "none/x.mcpb"), "cannot write the bundle"),
        (("words/__init__.py",), "has no tools"),
    ],
)
@pytest.mark.usefixtures("tools")
def test_what_cannot_be_bundled_is_named(arguments: tuple[str, ...], message: str, run: Run, directory: Path) -> None:
    (directory / "link").symlink_to("/etc/hosts")
    done = run("bundle", *arguments)
    assert done.returncode in {1, 2}
    assert message in done.stderr.replace("\n", " ")
    assert [each.name for each in directory.iterdir() if each.suffix == ".mcpb"] == []


@pytest.fixture
def python_bundle(directory: Path) -> Path:
    """A bundle whose server runs with this Python, and asks for a folder."""
    start = {
        "command": "python",
        "args": ["-m", "bridge", "serve", "${__dirname}/calculator.py"],
        "env": {"FOLDER": "${user_config.folder}"},
    }
    folder = {"type": "directory", "title": "Folder", "description": "Files", "required": True}
    manifest: dict[str, Any] = {
        "manifest_version": "0.3",
        "name": "sums",
        "version": "1.0.0",
        "description": "Sums",
        "author": {"name": "Ada"},
        "server": {"type": "python", "entry_point": "calculator.py", "mcp_config": start},
        "user_config": {"folder": folder},
    }
    write_bundle(directory / "sums.mcpb", manifest, {"calculator.py": directory / "calculator.py"})
    return directory / "sums.mcpb"


def test_a_bundle_is_a_target_of_every_command(run: Run, python_bundle: Path, home: Path) -> None:
    missing = run("list", "sums.mcpb")
    assert missing.returncode == 1
    assert "Folder: Files is needed: set the variable BRIDGE_INPUT_SUMS__FOLDER" in missing.stderr.replace("\n", " ")
    env = {"BRIDGE_INPUT_SUMS__FOLDER": str(home)}
    assert run("list", "sums.mcpb", env=env).stdout.startswith("add (Addition)")
    assert run("call", f"{python_bundle}#sums", "add", "a=1", env=env).stdout == "3\n"
    assert "ready" in run("status", "sums.mcpb", env=env).stdout
    assert run("doctor", "sums.mcpb", "--rule", "server-unreachable", env=env).returncode == 0
    assert run("pin", "sums.mcpb", env=env).returncode == 0
    first = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": %s}}\n'
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    served = run("serve", "sums.mcpb", env=env, stdin=first % json.dumps(meta))
    assert {each["name"] for each in json.loads(served.stdout)["result"]["tools"]} >= {"add", "shout"}


def test_a_bundle_is_installed_with_its_values(run: Run, python_bundle: Path, home: Path) -> None:
    refused = run("install", "sums.mcpb", "--client", "mcp-json", "--dry-run")
    assert "BRIDGE_INPUT_SUMS__FOLDER" in refused.stderr
    value = f"BRIDGE_INPUT_SUMS__FOLDER={home}"
    done = run("install", "sums.mcpb", "--client", "mcp-json", "--dry-run", "--env", value)
    (entry,) = json.loads(done.stdout)["mcpServers"].values()
    assert entry["args"][-2:] == ["serve", str(python_bundle)]
    assert entry["env"] == {"BRIDGE_INPUT_SUMS__FOLDER": str(home)}


def test_a_bundle_that_cannot_be_unpacked_names_the_folder(run: Run, directory: Path, python_bundle: Path) -> None:
    (directory / "state").write_text("no folder", encoding="utf-8")
    (directory / "dangling").symlink_to("none/none")
    for state in ("state", "dangling"):
        done = run("list", str(python_bundle), env={"XDG_STATE_HOME": str(directory / state)})
        assert (done.returncode, "cannot be unpacked: " in done.stderr) == (1, True), done.stderr
        assert str(directory / state) in done.stderr
