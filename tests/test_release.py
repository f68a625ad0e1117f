"""Files that `make release` writes beside the wheel, and the bounds and addresses of the project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import distribution, requires
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from bridge.client.config.loading import load_config
from bridge.client.transports.stdio import StdioTransport
from tests import release
from tests.markdown import ROOT
from tests.test_project import tracked_files

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_SECONDS = 120


def test_the_entry_of_the_registry_has_the_schema_and_this_version() -> None:
    entry = release.registry_entry()
    assert entry["$schema"].endswith("/schemas/2025-12-11/server.schema.json")
    assert (entry["name"], entry["version"]) == (release.ADDRESSES["registry-name"], release.VERSION)
    assert [each["version"] for each in entry["packages"]] == [release.VERSION]


def test_the_bundle_is_a_server_of_calculator_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "servers.mcpb"
    release.write_bundle(path)
    with ZipFile(path) as archive:
        names = {*archive.namelist()}
        manifest = json.loads(archive.read("manifest.json"))
    assert names == {"manifest.json", "pyproject.toml", "LICENSE", *release.BUNDLED}
    assert manifest["version"] == release.VERSION
    assert manifest["compatibility"]["platforms"] == ["darwin", "linux"]
    assert {"square_root", "read_file"} <= {tool["name"] for tool in manifest["tools"]}
    # The command that a host runs, with the package of this checkout in place of the one that uv would install.
    (transport,) = (each.transport for each in load_config(path, inputs={"files_root": str(tmp_path)}).servers.values())
    assert isinstance(transport, StdioTransport)
    (tmp_path / "note.txt").write_text("A note.", encoding="utf-8")
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    arguments = {"name": "read_file", "arguments": {"path": "note.txt"}, "_meta": meta}
    done = subprocess.run(
        [sys.executable, "-m", "bridge", *transport.args[transport.args.index("serve") :]],
        input=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments}) + "\n",
        env={**os.environ, **transport.env},
        cwd=transport.cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert "A note." in json.loads(done.stdout)["result"]["content"][0]["text"]


def test_links_and_pictures_of_the_description_on_pypi_lead_to_the_repository() -> None:
    release.check_description(distribution("mcp-toolbridge").read_text("METADATA") or "")


@pytest.mark.slow
def test_the_wheel_and_the_source_distribution_have_what_they_should(tmp_path: Path) -> None:
    wheel, source = release.build(tmp_path)
    assert release.VERSION in wheel.name
    assert release.VERSION in source.name


def test_the_constraints_are_names_and_versions_that_pyproject_allows() -> None:
    lines = release.CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[\w.+!]+", line)] == []
    tested = dict(line.split("==") for line in lines)
    needed = [Requirement(each) for each in requires("mcp-toolbridge") or []]
    wrong = {
        str(each): tested.get(each.name.lower())
        for each in needed
        if each.name != "mcp-toolbridge" and tested.get(each.name.lower(), "") not in each.specifier
    }
    assert wrong == {}


@pytest.mark.parametrize("address", release.ADDRESSES.values())
def test_addresses_that_do_not_exist_yet_are_in_few_places(address: str) -> None:
    places = {
        path.relative_to(ROOT).as_posix()
        for path in tracked_files()
        if path.suffix in {".py", ".md", ".toml", ".json", ".yml", ".yaml"}
        and re.search(rf"{re.escape(address)}(?![\w-])", path.read_text(encoding="utf-8"))
    }
    repeated = {"bridge/doctor/rule.py"}
    repeated |= {"mkdocs.yml", "tests/docs/test_site.py"}  # links to edit a page
    in_registry = {"README.md", "examples/deploy/server.json"}
    assert places - {"pyproject.toml"} == (repeated if address.startswith("https:") else in_registry)


def test_a_tag_needs_a_commit_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[object, ...]] = []

    def run(*command: object) -> str:
        commands.append(command)
        return " M README.md\n"

    monkeypatch.setattr(release, "run", run)
    with pytest.raises(SystemExit, match="commit first"):
        release.tag()
    assert commands == [("git", "status", "--porcelain")]
