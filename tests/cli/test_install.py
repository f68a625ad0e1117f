from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.cli.conftest import Run

OURS = [sys.executable, "-m", "bridge", "serve"]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def files_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's locations")
@pytest.mark.parametrize(
    ("client", "place", "section", "title"),
    [
        ("claude-desktop", "home/.config/Claude/claude_desktop_config.json", "mcpServers", "Claude Desktop"),
        ("claude-code", "work/.mcp.json", "mcpServers", "Claude Code"),
        ("cursor", "home/.cursor/mcp.json", "mcpServers", "Cursor"),
        ("vscode", "work/.vscode/mcp.json", "servers", "VS Code"),
        ("gemini-cli", "home/.gemini/settings.json", "mcpServers", "Gemini CLI"),
        ("windsurf", "home/.codeium/windsurf/mcp_config.json", "mcpServers", "Windsurf"),
        ("zed", "home/.config/zed/settings.json", "context_servers", "Zed"),
        ("lm-studio", "home/.lmstudio/mcp.json", "mcpServers", "LM Studio"),
        ("continue", "work/.continue/mcpServers/mcp.json", "mcpServers", "Continue"),
        ("junie", "work/.junie/mcp/mcp.json", "mcpServers", "Junie"),
        ("mcp-json", "work/mcp.json", "mcpServers", None),
    ],
)
def test_the_entry_is_shown_and_written_where_the_client_reads_it(
    run: Run, tmp_path: Path, client: str, place: str, section: str, title: str | None
) -> None:
    before = files_in(tmp_path)
    done = run("install", "calculator.py", "--client", client)
    path = tmp_path / place
    entry = {"command": OURS[0], "args": [*OURS[1:], str(tmp_path / "work" / "calculator.py")]}
    written = {section: {"calculator": {"type": "stdio", **entry} if client == "vscode" else entry}}
    assert done.returncode == 0
    assert read(path) == json.loads(done.stdout) == written
    assert done.stderr.splitlines() == [
        "printed at import",
        f"wrote 'calculator' to {path}",
        *([f"restart {title} to use it; bridge doctor --client {client} checks it"] if title else []),
    ]
    kept = {file for file in files_in(tmp_path) if "__pycache__" not in file and "/state/bridge/locks/" not in file}
    assert kept == {*before, place}


CODEX = '# mine\nmodel = "gpt-5.1" # good\n\n[profiles.x]\nmodel = "o"\n'
GOOSE = '# mine\nGOOSE_MODEL: "gpt-5.1" # good\nextensions:\n  developer: {type: builtin, enabled: true} # own\n# end\n'


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's locations")
@pytest.mark.parametrize(
    ("client", "place", "before", "section", "entry"),
    [
        (
            "codex",
            ".codex/config.toml",
            CODEX,
            "mcp_servers",
            {"command": OURS[0], "args": [*OURS[1:], "{file}"], "env": {"LOG": "1"}},
        ),
        (
            "goose",
            ".config/goose/config.yaml",
            GOOSE,
            "extensions",
            {"type": "stdio", "enabled": True, "name": "calculator", "description": "", "timeout": 300}
            | {"cmd": OURS[0], "args": [*OURS[1:], "{file}"], "envs": {"LOG": "1"}},
        ),
    ],
)
def test_toml_and_yaml_keep_every_line_and_get_the_entry_of_the_client(
    run: Run, tmp_path: Path, client: str, place: str, before: str, section: str, entry: dict[str, Any]
) -> None:
    path = tmp_path / "home" / place
    path.parent.mkdir(parents=True)
    path.write_text(before)
    path.chmod(0o640)
    done = run("install", "calculator.py", "--client", client, "--name", "Calculator", "--env", "LOG=1")
    name = "calculator" if client == "goose" else "Calculator"
    parse = yaml.safe_load if client == "goose" else tomllib.loads
    file = str(tmp_path / "work" / "calculator.py")
    entry = {key: [part.replace("{file}", file) for part in v] if key == "args" else v for key, v in entry.items()}
    assert done.returncode == 0
    assert parse(done.stdout) == {section: {name: entry}}
    after = path.read_text()
    assert parse(after)[section][name] == entry
    lines = iter(after.splitlines())
    assert all(line in lines for line in before.splitlines())
    backup = path.with_name(path.name + ".bak")
    assert backup.read_text() == before
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path, backup)} == {0o640}
    again = run("install", "calculator.py", "--client", client, "--name", "Calculator", "--env", "LOG=1")
    assert again.stderr.splitlines()[-1] == f"{path} has this entry already; nothing was written"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's locations")
def test_the_folder_of_codex_can_be_elsewhere_and_a_new_file_is_private(run: Run, tmp_path: Path) -> None:
    done = run("install", "calculator.py", "--client", "codex", env={"CODEX_HOME": str(tmp_path / "codex")})
    path = tmp_path / "codex" / "config.toml"
    assert (done.returncode, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calculator"], "Goose does not set the variable PYTHONPATH for servers; name a file as the target"),
        (["calculator.py", "--env", "LD_PRELOAD=x"], "Goose does not set the variable LD_PRELOAD for servers"),
    ],
)
def test_variables_that_goose_refuses_are_refused(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run("install", *arguments, "--client", "goose")
    assert (done.returncode, message in done.stderr) == (2, True)
    assert not files_in(tmp_path / "home")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's locations")
def test_the_configuration_directory_of_linux_can_be_elsewhere(run: Run, tmp_path: Path) -> None:
    done = run("install", "calculator.py", "--client", "claude-desktop", env={"XDG_CONFIG_HOME": str(tmp_path / "xdg")})
    assert done.returncode == 0
    assert (tmp_path / "xdg" / "Claude" / "claude_desktop_config.json").exists()


def test_what_was_written_starts_a_server_from_anywhere(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    assert run("install", "calculator.py:add", "--client", "mcp-json", "--name", "sums").returncode == 0
    entry = read(tmp_path / "work" / "mcp.json")["mcpServers"]["sums"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    listed = subprocess.run(
        [*OURS[:3], "list", "--json", "--", entry["command"], *entry["args"]],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert [tool["name"] for tool in json.loads(listed.stdout)["tools"]] == ["add"]


def test_a_module_of_the_working_directory_brings_the_path_that_it_needs(run: Run, directory: Path) -> None:
    done = run("install", "calculator", "--client", "mcp-json", "--dry-run")
    entry = json.loads(done.stdout)["mcpServers"]["calculator"]
    assert entry == {"command": OURS[0], "args": [*OURS[1:], "calculator"], "env": {"PYTHONPATH": str(directory)}}


def test_the_installed_program_writes_itself(environment: dict[str, str], directory: Path) -> None:
    program = str(Path(sys.executable).with_name("bridge"))
    command = [program, "install", "calculator.py", "--client", "cursor", "--dry-run"]
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, timeout=40, check=True
    )
    entry = json.loads(done.stdout)["mcpServers"]["calculator"]
    assert entry == {"command": program, "args": ["serve", str(directory / "calculator.py")]}


def test_the_rest_of_the_file_stays_byte_for_byte_and_a_copy_is_kept(run: Run, directory: Path) -> None:
    path = directory / "conf.json"
    text = '\ufeff// mine\n{\n\t"servers": {\n\t\t"a": {"command": "x",}, // é\n\t},\n\t"inputs": [ 1,2 ]\n}'
    before = text.replace("\n", "\r\n").encode()
    path.write_bytes(before)
    path.chmod(0o600)
    done = run("install", "calculator.py", "--client", "vscode", "--config", str(path), "--env", "A=b=c", "--env", "D=")
    assert done.returncode == 0
    head, _, tail = path.read_bytes().partition(b'\r\n\t\t"calculator": {')
    body, _, rest = tail.partition(b"\r\n\t\t},")
    assert head + rest == before
    assert json.loads(b"{" + body + b"}")["env"] == {"A": "b=c", "D": ""}
    backup = directory / "conf.json.bak"
    assert backup.read_bytes() == before
    assert (path.stat().st_mode & 0o777, backup.stat().st_mode & 0o777) == (0o600, 0o600)
    assert f"the previous content is in {backup}" in done.stderr


def test_installing_again_replaces_the_entry_and_the_same_one_writes_nothing(run: Run, directory: Path) -> None:
    path = directory / "mcp.json"
    options = ("--client", "mcp-json", "--yes")
    run("install", "calculator.py", *options)
    first = path.read_bytes()
    again = run("install", "calculator.py", *options)
    assert (again.returncode, path.read_bytes()) == (0, first)
    assert again.stderr.splitlines()[-1] == f"{path} has this entry already; nothing was written"
    run("install", "calculator.py:add", *options)
    assert read(path)["mcpServers"]["calculator"]["args"][-1].endswith("calculator.py:add")
    assert (directory / "mcp.json.bak").read_bytes() == first


def test_a_dry_run_writes_nothing(run: Run, directory: Path) -> None:
    done = run("install", "calculator.py", "--client", "mcp-json", "--dry-run")
    assert done.returncode == 0
    assert "calculator" in json.loads(done.stdout)["mcpServers"]
    assert done.stderr.splitlines()[-1] == f"this entry would be written to {directory}/mcp.json"
    assert not (directory / "mcp.json").exists()


def test_urls_and_commands_can_be_installed(run: Run, directory: Path) -> None:
    assert run("install", "https://example.com/mcp", "--client", "cursor", "--config", "c.json").returncode == 0
    assert read(directory / "c.json") == {
        "mcpServers": {"example-com": {"type": "http", "url": "https://example.com/mcp"}}
    }
    assert run("install", "--client", "vscode", "--config", "v.json", "--", sys.executable, "-y", "x").returncode == 0
    name = Path(sys.executable).stem.replace(".", "-")
    assert read(directory / "v.json") == {
        "servers": {name: {"type": "stdio", "command": sys.executable, "args": ["-y", "x"]}}
    }


def test_a_command_finds_its_files_from_anywhere(run: Run, directory: Path) -> None:
    command = [sys.executable, "calculator.py", "nothing.py", "--flag", "x" * 5000]
    assert run("install", "--client", "cursor", "--config", "c.json", "--", *command).returncode == 0
    (entry,) = read(directory / "c.json")["mcpServers"].values()
    assert entry["args"] == [str(directory / "calculator.py"), *command[2:]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing.py", "--client", "cursor"], 2, "bridge: there is no file 'nothing.py'"),
        (["empty.py", "--client", "cursor"], 2, "bridge: {work}/empty.py has no tools: "),
        (["broken.py", "--client", "cursor"], 1, "bridge: importing {work}/broken.py failed: ZeroDivisionError"),
        (["calculator.py"], 2, "bridge install: Missing option '--client'."),
        (["calculator.py", "--client", "emacs"], 2, "bridge install: Invalid value for '--client': 'emacs' is not one"),
        (["calculator.py", "--client", "cursor", "--env", "A"], 2, "bridge install: --env 'A' does not have the form"),
        (["http://h/", "--client", "cursor", "--env", "A=b"], 2, "bridge install: --env needs a server that the"),
        (
            ["http://h/", "--client", "claude-desktop"],
            2,
            "bridge: the configuration of Claude Desktop supports no URLs",
        ),
    ],
)
def test_what_cannot_be_installed_is_told_and_nothing_is_written(
    run: Run, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    work = tmp_path / "work"
    (work / "empty.py").touch()
    (work / "broken.py").write_text("1 / 0\n")
    done = run("install", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.removeprefix("printed at import\n").startswith(message.format(work=work))
    assert not files_in(tmp_path / "home")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"mcpServers": {', "line 1, column 17: not JSON: "),
        (b"[]", "its root is not a JSON object; it was not changed"),
        (b'{"mcpServers": 5}', "its 'mcpServers' is not a JSON object; it was not changed"),
        (b'{"a": "\xff"}', "is not UTF-8; it was not changed"),
    ],
)
def test_a_file_that_is_not_understood_is_left_as_it_was(
    run: Run, directory: Path, content: bytes, reason: str
) -> None:
    path = directory / "conf.json"
    path.write_bytes(content)
    done = run("install", "calculator.py", "--client", "cursor", "--config", "conf.json")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"bridge: {path}")
    assert reason in done.stderr
    assert path.read_bytes() == content
    assert not (directory / "conf.json.bak").exists()


@pytest.mark.parametrize(
    ("client", "name", "form"),
    [("cursor", "conf.toml", "JSON"), ("codex", "conf.json", "TOML"), ("goose", "conf.toml", "YAML")],
)
def test_a_file_with_the_suffix_of_another_format_is_refused(
    run: Run, directory: Path, client: str, name: str, form: str
) -> None:
    done = run("install", "calculator.py", "--client", client, "--config", name)
    assert done.returncode == 1
    assert f"{directory / name}: the entry is {form}, and the file has the suffix of another format" in done.stderr
    assert not (directory / name).exists()


def test_a_place_that_cannot_be_written_is_one_line(run: Run, directory: Path) -> None:
    (directory / "file").touch()
    done = run("install", "calculator.py", "--client", "cursor", "--config", "file/mcp.json")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"bridge: cannot write {directory}/file/mcp.json: Not a directory; it was not changed"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
@pytest.mark.parametrize(("answer", "is_written"), [(b"y\n", True), (b"n\n", False), (b"\x04", False)])
def test_a_person_is_asked_before_anything_is_written(
    environment: dict[str, str], directory: Path, answer: bytes, *, is_written: bool
) -> None:
    controller, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "bridge", "install", "calculator.py", "--client", "mcp-json"],
        cwd=directory,
        env=environment,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(terminal)
        os.write(controller, answer)
        _, stderr = process.communicate(timeout=40)
    os.close(controller)
    assert f"Write this entry to {directory}/mcp.json?" in stderr
    assert (directory / "mcp.json").exists() == is_written


@pytest.mark.slow
def test_of_many_at_once_none_loses_its_entry(directory: Path, environment: dict[str, str]) -> None:
    names = [f"server{number}" for number in range(6)]
    command = [*OURS[:3], "install", "http://localhost/mcp", "--client", "mcp-json"]
    started = [
        subprocess.Popen([*command, "--name", name], cwd=directory, env=environment, stderr=subprocess.PIPE)
        for name in names
    ]
    for process in started:
        assert process.communicate(timeout=40) is not None
    assert [process.returncode for process in started] == [0] * len(names)
    assert sorted(read(directory / "mcp.json")["mcpServers"]) == names


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in the file system")
@pytest.mark.parametrize(
    ("kind", "reason"), [("pipe", "it is not a regular file"), ("loop", "Too many levels of symbolic")]
)
def test_what_is_no_regular_file_is_refused(run: Run, directory: Path, kind: str, reason: str) -> None:
    path = directory / "mcp.json"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(path)
    done = run("install", "http://localhost/mcp", "--client", "mcp-json")
    assert done.returncode == 1
    assert done.stderr.startswith(f"bridge: cannot write {path}: {reason}")
    assert done.stderr.endswith("; it was not changed\n")
    assert files_in(directory) == ["calculator.py"]


def test_where_nothing_can_be_locked_it_is_written_nevertheless(run: Run, directory: Path) -> None:
    state = directory / "state"
    state.touch()
    done = run("install", "http://localhost/mcp", "--client", "mcp-json", env={"BRIDGE_STATE_DIR": str(state)})
    assert done.returncode == 0
    assert "is written without a lock" in done.stderr
    assert list(read(directory / "mcp.json")["mcpServers"]) == ["localhost"]


URL = "https://mcp.example.com/mcp"


@pytest.mark.parametrize(
    ("client", "shown"),
    [
        ("gemini-cli", {"mcpServers": {"remote": {"httpUrl": URL}}}),
        ("windsurf", {"mcpServers": {"remote": {"serverUrl": URL}}}),
        ("zed", {"context_servers": {"remote": {"url": URL}}}),
        ("codex", {"mcp_servers": {"remote": {"url": URL}}}),
        (
            "goose",
            {
                "extensions": {
                    "remote": {"type": "streamable_http", "uri": URL}
                    | {"enabled": True, "name": "remote", "description": "", "timeout": 300}
                }
            },
        ),
    ],
)
def test_a_url_has_the_key_that_the_client_reads(run: Run, client: str, shown: dict[str, Any]) -> None:
    done = run("install", URL, "--client", client, "--name", "remote", "--dry-run")
    if client == "codex":
        assert tomllib.loads(done.stdout) == shown
    else:
        assert yaml.safe_load(done.stdout) == shown  # JSON is YAML, too
