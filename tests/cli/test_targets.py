from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from bridge.cli.targets.target import (
    CommandTarget,
    ConfigTarget,
    FileTarget,
    ModuleTarget,
    UrlTarget,
    parse_target,
    split_targets,
)
from bridge.errors import TargetError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_python_file_is_a_target_with_and_without_an_object(tmp_path: Path) -> None:
    file = tmp_path / "my tools.py"
    file.touch()
    assert parse_target(str(file)) == FileTarget(file)
    assert parse_target(f"{file}:box.tools") == FileTarget(file, "box.tools")
    assert parse_target(str(file)).name == "my tools"


def test_a_file_is_found_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools.py").touch()
    monkeypatch.chdir(tmp_path)
    assert parse_target("tools.py") == FileTarget(tmp_path / "tools.py")
    assert parse_target("./tools.py:add") == FileTarget(tmp_path / "tools.py", "add")


@pytest.mark.parametrize(("text", "name"), [(".", "work"), ("..", "home"), ("./", "work"), ("../", "home")])
def test_a_directory_may_be_the_one_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str
) -> None:
    work = tmp_path / "home" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    target = parse_target(text)
    assert isinstance(target, FileTarget)
    assert (target.path.resolve().name, target.name) == (name, name)


def test_a_directory_needs_no_slash_unless_a_module_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("words", "my-words", "package", "json"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    assert parse_target("words") == FileTarget(tmp_path / "words")
    assert parse_target("my-words") == FileTarget(tmp_path / "my-words")
    assert [parse_target(name) for name in ("package", "json")] == [ModuleTarget("package"), ModuleTarget("json")]
    assert parse_target("words:add") == ModuleTarget("words", "add")


@pytest.mark.parametrize(
    ("text", "target", "name"),
    [
        ("package", ModuleTarget("package"), "package"),
        ("package.module", ModuleTarget("package.module"), "module"),
        ("package.module:box", ModuleTarget("package.module", "box"), "module"),
        ("http://localhost:8000/mcp", UrlTarget("http://localhost:8000/mcp"), "localhost"),
        ("https://example.com/mcp?x=1", UrlTarget("https://example.com/mcp?x=1"), "example.com"),
    ],
)
def test_modules_and_urls_are_told_apart(text: str, target: object, name: str) -> None:
    parsed = parse_target(text)
    assert parsed == target
    assert parsed.name == name


@pytest.mark.parametrize("name", ["mcp.json", "servers.jsonc", "a b.json"])
def test_a_configuration_is_a_target_with_and_without_a_server(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.touch()
    assert parse_target(str(file)) == ConfigTarget(file)
    assert parse_target(f"{file}#my server") == ConfigTarget(file, "my server")
    assert (parse_target(str(file)).name, parse_target(f"{file}#one").name) == (file.stem, "one")


def test_targets_are_told_apart_by_where_their_tools_run() -> None:
    module, url, command = ModuleTarget("tools"), UrlTarget("http://localhost/mcp"), CommandTarget(("server",))
    assert split_targets([url, module, command]) == ([module], [url, command])


def test_a_command_is_named_after_its_program() -> None:
    assert CommandTarget(("/usr/bin/npx", "-y", "server")).name == "npx"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing.py", "there is no file 'nothing.py' (looked for "),
        ("no/where.py:box", "there is no file 'no/where.py' (looked for "),
        ("/:tools", "'/' is a directory; name a file in it"),
        ("two words", "'two words' is not a target; name file.py[:object], "),
        ("", "'' is not a target; name file.py[:object], "),
        ("tools:1", "there is no file 'tools:1'; if it is a URL, write 'http://tools:1'"),
        ("http://", "'http://' is not the URL of a server: it has no host"),
        ("http://[", "'http://[' is not the URL of a server: it has no host"),
        ("nothing.json", "there is no file 'nothing.json' (looked for "),
        ("nothing.jsonc#github", "there is no file 'nothing.jsonc' (looked for "),
        ("nothing.json#", "the name of a server is missing after 'nothing.json#'"),
    ],
)
def test_what_is_no_target_is_said_with_the_kinds_that_there_are(text: str, message: str) -> None:
    with pytest.raises(TargetError) as raised:
        parse_target(text)
    assert str(raised.value).startswith(message)


def test_a_similar_file_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "tools.py").touch()
    with pytest.raises(TargetError, match=rf"did you mean '{re.escape(str(tmp_path))}.tools\.py'\?$"):
        parse_target(str(tmp_path / "tool.py:add"))


@pytest.mark.parametrize("text", ["localhost:8163/mcp", "127.0.0.1:8163", "[::1]:8163/mcp"])
def test_a_url_without_its_scheme_is_told_so(text: str) -> None:
    with pytest.raises(TargetError, match="if it is a URL, write 'http://" + re.escape(text)):
        parse_target(text)
