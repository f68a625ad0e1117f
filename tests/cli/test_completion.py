"""Completion, requested as by the scripts of the shells, and in bash itself."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

PRINTING = """
import sys
from typing import Literal
from bridge import tool

print("printed")
print("printed", file=sys.stderr)


@tool
def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    return city


@tool
def wind(city: str) -> str:
    return city
"""


HOSTILE = """
from typing import Literal
from bridge import tool


@tool
def good(unit: Literal["safe", "a$(touch PWNED)", "a;b", "a`b`", "a b", "a*", "a\\\\nplain,b"]) -> str:
    return unit
"""
UNSAFE = ["a$(touch PWNED)", "a`touch PWNED`", "a;b", "a&b", "a|b", "a>b", "a b", "a'b", 'a"b', "a*", "a?", "a[b]"]
UNSAFE += ["a\\b", "a\nb", "a\rb", "a\x1b[2J", "a!b", "a{b,c}", "a~b", "a\u202eb"]


OFFERING = """
from bridge import prompt, resource

print("printed")


@resource("notes://today")
def today() -> str:
    return ""


@resource("notes://tomorrow")
def tomorrow() -> str:
    return ""


def cities(text, others, context):
    print("printed")
    return [f"{others['country']}-1"]


@prompt(completions={"country": ["France", "Spain"], "city": cities})
def trip(country: str, city: str) -> str:
    return ""


def fail(text, others, context):
    raise ValueError


@prompt(completions={"x": fail})
def broken(x: str) -> str:
    return ""
"""


def completed(run: Run, *words: str) -> list[str]:
    """Return kind and value of the completions of the last word, as zsh receives them."""
    *before, incomplete = words
    line = shlex.join(["bridge", *before])
    env = {"_BRIDGE_COMPLETE": "zsh_complete", "COMP_WORDS": f"{line} {incomplete}", "COMP_CWORD": str(len(words))}
    done = run(env=env)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    return [f"{kind}:{value}" for kind, value in zip(lines[::3], lines[1::3], strict=False)]


def test_commands_and_options_are_completed(run: Run) -> None:
    assert completed(run, "do") == ["plain:doctor"]
    assert completed(run, "doctor", "--sa") == ["plain:--sarif"]
    assert completed(run, "serve", "--transport", "s") == ["plain:stdio", "plain:sse"]


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "list",
        "call",
        "read",
        "prompt",
        "chat",
        "inspect",
        "doctor",
        "status",
        "login",
        "logout",
        "pin",
        "install",
    ],
)
def test_a_target_is_completed_by_the_shells_own_files(run: Run, command: str) -> None:
    assert completed(run, command, "calc") == ["file:calc"]


def test_servers_of_a_configuration_are_completed(run: Run, directory: Path) -> None:
    servers = {"files": {"command": "a"}, "find": {"command": "b"}, "notes": {"command": "c"}}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert completed(run, "list", "mcp.json#fi") == ["plain:mcp.json#files", "plain:mcp.json#find"]
    (directory / "mcp.json").write_text("{")
    assert completed(run, "list", "mcp.json#fi") == []
    assert completed(run, "list", "missing.json#fi") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_name_that_a_shell_would_change_or_run_is_not_completed(run: Run, directory: Path, shell: str) -> None:
    servers = {name: {"command": "a"} for name in [*UNSAFE, "a.safe-1"]}
    (directory / "one.json").write_text(json.dumps({"mcpServers": servers}))
    line = "bridge list one.json#a"
    words = {"COMP_WORDS": line, "COMP_CWORD": "one.json#a" if shell == "fish" else "2"}
    env = words | {"COMP_LINE": line, "COMP_TEXT": "one.json#a", "_BRIDGE_COMPLETE": f"{shell}_complete"}
    done = run(env=env)
    shown = {"bash": ["plain,one.json#a.safe-1"], "zsh": ["plain", "one.json#a.safe-1", "_"]}
    assert done.stdout.splitlines() == shown.get(shell, ["plain,one.json#a.safe-1"])


def test_a_value_that_a_shell_would_change_or_run_is_not_completed(run: Run, directory: Path) -> None:
    (directory / "hostile.py").write_text(HOSTILE)
    assert completed(run, "call", "hostile.py", "good", "unit=") == ["plain:unit=safe"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe with a name")
def test_a_device_and_a_pipe_are_not_read(run: Run, directory: Path) -> None:
    os.mkfifo(directory / "pipe.json")
    assert completed(run, "list", "pipe.json#a") == []
    assert completed(run, "list", "/dev/zero#a") == []


def test_resources_and_prompts_and_their_arguments_are_completed(run: Run, directory: Path) -> None:
    (directory / "offering.py").write_text(OFFERING)
    assert completed(run, "read", "offering.py", "notes") == ["plain:notes://today", "plain:notes://tomorrow"]
    assert completed(run, "prompt", "offering.py", "tr") == ["plain:trip"]
    assert completed(run, "prompt", "offering.py", "trip", "") == ["plain:country=", "plain:city="]
    assert completed(run, "prompt", "offering.py", "trip", "country=F") == ["plain:country=France"]
    assert completed(run, "prompt", "offering.py", "trip", "country=France", "city=") == ["plain:city=France-1"]
    assert completed(run, "prompt", "offering.py", "broken", "x=") == []
    assert completed(run, "prompt", "offering.py", "nothing", "") == []
    assert completed(run, "read", "calculator.py", "n") == []


def test_tools_and_their_arguments_are_completed_whatever_the_file_prints(run: Run, directory: Path) -> None:
    (directory / "printing.py").write_text(PRINTING)
    assert completed(run, "call", "printing.py", "w") == ["plain:weather", "plain:wind"]
    assert completed(run, "call", "printing.py", "weather", "") == ["plain:city=", "plain:unit="]
    assert completed(run, "call", "printing.py", "weather", "city=Bern", "") == ["plain:unit="]
    assert completed(run, "call", "printing.py", "weather", "unit=f") == ["plain:unit=fahrenheit"]
    assert completed(run, "call", "printing.py", "rain", "") == []


def test_a_file_that_cannot_be_imported_completes_nothing(run: Run, directory: Path) -> None:
    (directory / "broken.py").write_text("print('printed')\nraise SystemExit(3)")
    assert completed(run, "call", "broken.py", "a") == []
    assert completed(run, "call", "missing.py", "a") == []
    assert completed(run, "call", "http://127.0.0.1:1/mcp", "a") == []


@pytest.mark.parametrize(
    ("shell", "files"),
    [
        (
            "bash",
            [
                ".local/share/bash-completion/completions/bridge",
                ".local/share/bash-completion/completions/mcp-toolbridge",
            ],
        ),
        ("zsh", [".zfunc/_bridge", ".zfunc/_mcp-toolbridge"]),
        ("fish", [".config/fish/completions/bridge.fish", ".config/fish/completions/mcp-toolbridge.fish"]),
    ],
    ids=["bash", "zsh", "fish"],
)
def test_scripts_are_written_where_a_shell_looks_for_them(run: Run, home: Path, shell: str, files: list[str]) -> None:
    done = run("--install-completion", env={"SHELL": f"/usr/bin/{shell}"})
    assert (done.returncode, done.stdout) == (0, "")
    assert [path.relative_to(home).as_posix() for path in sorted(home.rglob("*")) if path.is_file()] == sorted(files)
    for name in files:
        assert f"_BRIDGE_COMPLETE={shell}_complete" in (home / name).read_text()
        assert f"wrote {home / name}\n" in done.stderr


def test_an_unknown_shell_is_wrong_usage(run: Run, home: Path) -> None:
    done = run("--install-completion", env={"SHELL": "/bin/dash"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "name the shell: --install-completion bash|zsh|fish" in done.stderr
    assert list(home.iterdir()) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_installed_script(
    run: Run, home: Path, directory: Path, environment: dict[str, str]
) -> None:
    (directory / "printing.py").write_text(PRINTING)
    assert run("--install-completion", "bash").returncode == 0
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for program in ("bridge", "mcp-toolbridge"):
        script = home / ".local/share/bash-completion/completions" / program
        function = f"_{program.replace('-', '_')}_completion"
        lines = f"""
            compopt() {{ echo "compopt $*"; }}
            source {shlex.quote(str(script))}
            complete -p {program}
            COMP_LINE="{program} call printing.py weather u"
            COMP_POINT=${{#COMP_LINE}}
            {function} {program} u weather
            echo "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(
            ["bash", "--norc", "-c", lines],
            cwd=directory,
            env=environment | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        assert done.stderr == ""
        assert done.stdout.splitlines() == [
            f"complete -o nosort -F {function} {program}",
            "compopt -o nospace",
            "unit=",
        ]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("call printing.py weather unit=fa", "call printing.py weather unit=fahrenheit "),
        ("call printing.py weather 'unit=fa", "call printing.py weather 'unit=fahrenheit' "),
        ("call printing.py:weather wea", "call printing.py:weather weather "),
        ("call printing.py weather city=Bern un", "call printing.py weather city=Bern unit="),
        ("read offering.py notes://tod", "read offering.py notes://today "),
        ("read offering.py no", "read offering.py notes://to"),
        ("list one.json#a", "list one.json#a"),
    ],
    ids=["value", "quoted", "attribute", "argument", "uri", "scheme", "hostile"],
)
def test_a_tab_in_bash_completes_the_line(
    run: Run, home: Path, directory: Path, environment: dict[str, str], typed: str, line: str
) -> None:
    """Press Tab in a terminal; Ctrl-X writes the line to a file and ends bash."""
    import pty  # noqa: PLC0415 - not on Windows

    (directory / "printing.py").write_text(PRINTING)
    (directory / "offering.py").write_text(OFFERING)
    (directory / "one.json").write_text(json.dumps({"mcpServers": {"a$(touch PWNED)": {"command": "a"}}}))
    assert run("--install-completion", "bash").returncode == 0
    script = home / ".local/share/bash-completion/completions/bridge"
    end = """bind -x '"\\C-x": printf "%s" "$READLINE_LINE" >line; exit'"""
    (home / "rc").write_text(f"source {shlex.quote(str(script))}\n{end}\n")
    terminal, inner = pty.openpty()
    try:
        shell = subprocess.Popen(
            ["bash", "--noprofile", "--rcfile", str(home / "rc"), "-i"],
            cwd=directory,
            env=environment | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.write(terminal, f"bridge {typed}\t\x18".encode())
        try:
            shell.wait(timeout=40)
        finally:
            shell.kill()
            shell.wait()
    finally:
        os.close(terminal)
        os.close(inner)
    assert (directory / "line").read_text() == f"bridge {line}"
    assert not (directory / "PWNED").exists()
