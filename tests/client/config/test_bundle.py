"""MCP Bundles: what is unpacked, what is refused, and the command and the values of users that start a server."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from bridge.client.config import bundle
from bridge.client.config.bundle_writer import Asked, manifest_of, project_file, write_bundle
from bridge.client.config.loading import load_config
from bridge.client.config.manifest import Manifest
from bridge.client.transports.stdio import StdioTransport
from bridge.errors import ConfigError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable

MANIFEST: dict[str, Any] = {
    "manifest_version": "0.4",
    "name": "My notes",
    "version": "1.0.0",
    "description": "Notes",
    "author": {"name": "Ada"},
    "server": {
        "type": "node",
        "entry_point": "main.js",
        "mcp_config": {"command": "node", "args": ["${__dirname}/main.js"], "env": {}},
    },
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder, which has the unpacked bundles."""
    folder = tmp_path / "state"
    monkeypatch.setenv("BRIDGE_STATE_DIR", str(folder))
    return folder


def packed(path: Path, *files: tuple[ZipInfo | str, str], manifest: Any = MANIFEST) -> Path:
    """Write a bundle with files that may have any name."""
    with ZipFile(path / "notes.mcpb", "w", ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for name, text in files:
            archive.writestr(name, text)
    return path / "notes.mcpb"


def with_settings(args: list[str], env: dict[str, str], **settings: dict[str, Any]) -> dict[str, Any]:
    start = {"command": "node", "args": args, "env": env}
    described = {key: {"title": key, "description": "Meaning", **value} for key, value in settings.items()}
    server = {"type": "node", "entry_point": "main.js", "mcp_config": start}
    return {**MANIFEST, "server": server, "user_config": described}


def started(path: Path, **inputs: str) -> StdioTransport:
    (server,) = load_config(path, inputs=inputs).servers.values()
    assert isinstance(server.transport, StdioTransport)
    return server.transport


def named(name: str, mode: int) -> ZipInfo:
    info = ZipInfo(name)
    info.external_attr = mode << 16
    return info


def test_a_bundle_is_unpacked_once_for_its_user_alone(tmp_path: Path, state: Path) -> None:
    path = packed(tmp_path, (named("bin/run", stat.S_IFREG | 0o755), "x"), ("main.js", "y"))
    transport = started(path)
    folder = Path(str(transport.cwd))
    assert folder.parent == state / "bundles"
    assert transport.args == (f"{folder}/main.js",)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in (folder, folder / "bin/run", folder / "main.js")}
    assert modes == {folder.name: 0o700, "run": 0o700, "main.js": 0o600}
    (folder / "kept").touch()
    assert started(path).cwd == transport.cwd
    assert (folder / "kept").exists()
    assert [*load_config(path).servers] == ["My-notes"]


@pytest.mark.parametrize(
    "name",
    ["../out", "a/../../out", "/etc/out", "C:/out", "a\\..\\out", "a//b", "./a", "a/.", "nul\x01", "x" * 300, "a /b"],
)
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str, tmp_path: Path, state: Path) -> None:
    path = packed(tmp_path, ("good", "x"), (name, "bad"))
    with pytest.raises(ConfigError, match="leads out of its folder, or is not portable"):
        load_config(path)
    assert {each.name for each in tmp_path.iterdir()} == {"notes.mcpb", "state"}
    assert [*(state / "bundles").iterdir()] == []


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_a_link_or_a_device_is_refused(kind: int, tmp_path: Path, state: Path) -> None:
    path = packed(tmp_path, (named("link", kind | 0o777), "/etc/passwd"))
    with pytest.raises(ConfigError, match="has a link, a device or an encrypted file: 'link'"):
        load_config(path)
    assert [*(state / "bundles").iterdir()] == []


@pytest.mark.usefixtures("state")
def test_two_names_that_some_systems_take_for_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"two files with the name 'MAIN\.js'"):
        load_config(packed(tmp_path, ("main.js", "x"), ("MAIN.js", "y")))


@pytest.mark.usefixtures("state")
def test_a_file_and_a_folder_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        load_config(packed(tmp_path, ("a", "x"), ("a/b", "y")))


@pytest.mark.usefixtures("state")
def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path)
    with ZipFile(path, "a", ZIP_BZIP2) as archive:
        archive.writestr("other", "x" * 1000)
    with pytest.raises(ConfigError, match="compressed in an unknown way: 'other'"):
        load_config(path)


@pytest.mark.parametrize("limit", ["MAX_BUNDLE_BYTES", "MAX_UNPACKED_BYTES", "MAX_FILES", "MAX_MANIFEST_BYTES"])
def test_a_bundle_over_a_limit_is_refused(
    limit: str, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path, *((f"file{number}", "x" * 1000) for number in range(20)))
    monkeypatch.setattr(bundle, limit, 15)
    with pytest.raises(ConfigError, match=r"longer than|more than|over its limits"):
        load_config(path)
    assert not (state / "bundles").exists() or [*(state / "bundles").iterdir()] == []


def test_a_long_list_of_files_is_refused_before_it_is_read(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path, *((f"file{number}", "") for number in range(1000)))
    monkeypatch.setattr(bundle, "MAX_DIRECTORY_BYTES", 20_000)
    with pytest.raises(ConfigError, match="the list of the files of the bundle is longer than 20,000 bytes"):
        load_config(path)
    assert [*(state / "bundles").iterdir()] == []


def test_a_file_that_is_longer_than_its_archive_says_is_refused(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path, ("bomb", "\0" * 1_000_000))
    content = path.read_bytes()
    path.write_bytes(content.replace((1_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    monkeypatch.setattr(bundle, "MAX_UNPACKED_BYTES", 500_000)
    with pytest.raises(ConfigError):
        load_config(path)
    assert [*(state / "bundles").iterdir()] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a ZIP file", "is not a bundle"),
        (None, "there is no such file"),
    ],
)
@pytest.mark.usefixtures("state")
def test_what_is_not_a_bundle_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.mcpb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


@pytest.mark.usefixtures("state")
def test_a_wrong_manifest_is_named_with_its_members(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"manifest\.json\.server"):
        load_config(packed(tmp_path, manifest={**MANIFEST, "server": {"type": "perl", "entry_point": "x"}}))
    with ZipFile(tmp_path / "empty.mcpb", "w") as archive:
        archive.writestr("other", "")
    with pytest.raises(ConfigError, match=r"has no manifest\.json"):
        load_config(tmp_path / "empty.mcpb")
    with ZipFile(tmp_path / "deep.mcpb", "w") as archive:
        archive.writestr("manifest.json", "[" * 200_000 + "]" * 200_000)
    with pytest.raises(ConfigError, match=r"its manifest\.json is nested too deeply"):
        load_config(tmp_path / "deep.mcpb")


@pytest.mark.usefixtures("state")
def test_values_of_users_reach_arguments_and_variables_and_are_checked(tmp_path: Path) -> None:
    manifest = with_settings(
        ["--level=${user_config.level}", "${user_config.folders}", "${user_config.extra}"],
        {"KEY": "${user_config.key}", "LOUD": "${user_config.loud}", "EXTRA": "${user_config.extra}", "OWN": "${PATH}"},
        level={"type": "number", "default": 3, "min": 1, "max": 5},
        folders={"type": "directory", "multiple": True, "required": True},
        key={"type": "string", "sensitive": True, "required": True},
        loud={"type": "boolean", "default": False},
        extra={"type": "string"},
    )
    path = packed(tmp_path, manifest=manifest)
    with pytest.raises(ConfigError) as missing:
        load_config(path)
    assert [each.key for each in missing.value.problems] == ["folders", "key"]
    assert "set the variable BRIDGE_INPUT_MY_NOTES__KEY__" in str(missing.value)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    folders = os.pathsep.join([str(tmp_path / "one"), str(tmp_path / "two")])
    transport = started(path, folders=folders, key="s3cret ${HOME}")
    assert transport.args == ("--level=3", str(tmp_path / "one"), str(tmp_path / "two"))
    assert transport.env == {"KEY": "s3cret ${HOME}", "LOUD": "false", "OWN": "${PATH}"}
    assert "s3cret" not in repr(transport)
    for wrong, message in (
        ({"level": "9"}, "more than 5"),
        ({"level": "x"}, "not a number"),
        ({"loud": "x"}, "true nor"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(path, inputs={"folders": folders, "key": "k", **wrong})
    with pytest.raises(ConfigError, match="there is no directory"):
        load_config(path, inputs={"folders": str(tmp_path / "none"), "key": "k"})


@pytest.mark.usefixtures("state")
def test_values_come_from_variables_with_the_name_of_the_bundle_and_else_from_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"key": {"type": "string", "sensitive": True, "required": True}}
    path = packed(tmp_path, manifest=with_settings([], {"KEY": "${user_config.key}"}, **settings))
    asked: list[Any] = []

    def ask(definition: Any) -> str:
        asked.append((definition.id, definition.description, definition.password))
        return "typed"

    monkeypatch.setenv("BRIDGE_INPUT_KEY", "of another bundle")
    source: Callable[[Any], str] = ask
    (server,) = load_config(path, inputs=source).servers.values()
    assert isinstance(server.transport, StdioTransport)
    assert (server.transport.env, asked) == ({"KEY": "typed"}, [("key", "key: Meaning", True)])
    monkeypatch.setenv(Manifest(**MANIFEST).variable("key"), "set")
    assert started(path).env == {"KEY": "set"}


def test_each_value_of_each_bundle_has_a_variable_of_its_own() -> None:
    names = ["my-files", "my_files", "My-files", "my", "my--files", "my-files-a", "my files"]
    keys = ["a", "A", "a_b", "a-b", "a__b", "aB", "files__a", "files_a", "é", "\ud800", "a.b"]
    variables = [Manifest(**{**MANIFEST, "name": name}).variable(key) for name in names for key in keys]
    assert len(set(variables)) == len(variables)
    assert all(re.fullmatch(r"BRIDGE_INPUT_[A-Z0-9_a-f]+", each) for each in variables)
    assert variables[names.index("my-files") * len(keys) + keys.index("a_b")] == "BRIDGE_INPUT_MY_FILES__A_B"


@pytest.mark.usefixtures("state")
def test_a_bundle_starts_the_programs_in_it_and_has_its_own_command_on_a_system(tmp_path: Path) -> None:
    start = {
        "command": "server/run",
        "args": ["general"],
        "platform_overrides": {sys.platform: {"args": ["${HOME}", "own${/}path"]}},
    }
    server = {"type": "binary", "entry_point": "server/run", "mcp_config": start}
    path = packed(tmp_path, ("server/run", "x"), manifest={**MANIFEST, "server": server})
    transport = started(path)
    assert transport.command == f"{transport.cwd}/server/run"
    assert transport.args == (str(Path.home()), f"own{os.sep}path")


@pytest.mark.usefixtures("state")
def test_a_bundle_of_another_system_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path, manifest={**MANIFEST, "compatibility": {"platforms": ["solaris"]}})
    with pytest.raises(ConfigError, match=f"runs on solaris only, not on {sys.platform}"):
        load_config(path)


@pytest.mark.usefixtures("state")
def test_a_python_bundle_runs_with_this_python(tmp_path: Path) -> None:
    server = {"type": "python", "entry_point": "server/main.py"}
    path = packed(tmp_path, ("server/main.py", "x"), manifest={**MANIFEST, "server": server})
    transport = started(path)
    assert (transport.command, transport.args) == (sys.executable, (f"{transport.cwd}/server/main.py",))


def test_bundles_that_nobody_uses_are_deleted(tmp_path: Path, state: Path) -> None:
    (tmp_path / "a").mkdir()
    first = Path(str(started(packed(tmp_path / "a")).cwd))
    os.utime(first, (0, 0))
    second = Path(str(started(packed(tmp_path, ("other", "x"))).cwd))
    assert [*(state / "bundles").iterdir()] == [second]


def test_the_same_files_make_the_same_bundle(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("x")
    for name in ("a.mcpb", "b.mcpb"):
        write_bundle(tmp_path / name, MANIFEST, {"tools.py": tmp_path / "tools.py", "pyproject.toml": b"y"})
    assert (tmp_path / "a.mcpb").read_bytes() == (tmp_path / "b.mcpb").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.mcpb", "b.mcpb", "tools.py"]


def test_a_manifest_has_what_a_project_says() -> None:
    project = {
        "name": "weather",
        "version": "2.0",
        "description": "Weather",
        "authors": [{"name": "Ada"}, {"email": "x@example.com"}],
        "license": "MIT",
        "requires-python": ">=3.12",
        "urls": {"Repository": "https://example.com/weather", "Homepage": "https://example.com"},
        "classifiers": ["Operating System :: MacOS :: MacOS X"],
    }
    asked = [Asked(variable="API_KEY", is_secret=True)]
    manifest = manifest_of(project, ["weather.py:box"], [("forecast", "Tomorrow")], has_prompts=True, asked=asked)
    assert manifest == {
        "manifest_version": "0.4",
        "name": "weather",
        "version": "2.0",
        "description": "Weather",
        "author": {"name": "Ada"},
        "license": "MIT",
        "homepage": "https://example.com",
        "repository": {"type": "git", "url": "https://example.com/weather"},
        "server": {
            "type": "uv",
            "entry_point": "weather.py",
            "mcp_config": {
                "command": "uv",
                "args": [
                    *("run", "--directory", "${__dirname}", "mcp-toolbridge", "serve", "${__dirname}/weather.py:box"),
                    *("--name", "weather"),
                ],
                "env": {"API_KEY": "${user_config.api_key}"},
            },
        },
        "tools": [{"name": "forecast", "description": "Tomorrow"}],
        "prompts_generated": True,
        "compatibility": {"platforms": ["darwin"], "runtimes": {"python": ">=3.12"}},
        "user_config": {
            "api_key": {
                "type": "string",
                "title": "Api key",
                "description": "Api key",
                "required": True,
                "sensitive": True,
            }
        },
    }
    assert 'dependencies = ["a>=1", "b"]' in project_file(project, ["a>=1", "b"])
    with pytest.raises(WireError, match="the name of a bundle"):
        manifest_of({"name": "a/b"}, ["a.py"], [])
