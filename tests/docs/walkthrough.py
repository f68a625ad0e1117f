r"""A page of the documentation, followed as a reader would: in an empty folder, block after block.

Rules for authors of a page:

- A block with a title (```` ```python title="tools.py" ````) is written to that file.
- Any other Python block is run; the blocks of a page share one namespace. Its output has to be the lines after
  ``# > ``. A block of the language ``py``, which shows another library, is only compiled.
- Each command of a console is run, and its output has to be the lines below it. A server over HTTP runs until the page
  ends, or until the next server at its port. A command that fails has to show its error.
- JSON and YAML are parsed; JSON with servers in it is read as a configuration.
- In expected output ``…`` stands for any text, and a line of it alone for any lines.
- ``<!-- replies`` … ``-->`` holds the next replies of the chat model: a JSON array of texts, and of objects that call
  tools. ``<!-- python`` … ``-->`` is run, and not visible to readers.
- Ports are replaced by free ones, in commands, code and expected output alike.
"""

from __future__ import annotations

import gc
import json
import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from contextlib import ExitStack, chdir, redirect_stdout
from importlib import import_module
from io import StringIO
from itertools import takewhile
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any
from unittest import mock

import yaml

from bridge.client import parse_config
from bridge.telemetry import current
from tests import forks
from tests.docs.chat_api import running_chat_api
from tests.markdown import ROOT, commands_of
from tests.ports import free_port

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from tests.forks import ForkedPython
    from tests.markdown import Block, Command, Document

DEADLINE_SECONDS = 60
_SERVES = re.compile(
    r"(\w+=\S+ +)*(((bridge|mcp-toolbridge) serve|python) .*--transport (http|sse)( .*)?|(uvicorn|bridge inspect) .*)"
)
_ONLY_READ = re.compile(r"(docker|kubectl|pip|uv|uvx|git|cd|source|python3 -m venv|redis-server|nginx|systemctl|sudo) ")
_LOGIN = re.compile(r"bridge (login|logout) ")
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b|(?<=localhost:)\d{4,5}\b|(?<=--port )\d+|(?<=-port )\d+|(?<=port=)\d+")
_SETTING = re.compile(r"\w+=")
_QUOTED = re.compile(r"'[^']*'")
_SHELL = re.compile(r"[|&;<>$`*?~]|\\\s")
_PYTHON = {
    "bridge": ("-m", "bridge"),
    "mcp-toolbridge": ("-m", "bridge"),
    "python": (),
    "uvicorn": ("-m", "uvicorn"),
}
_READY = ("serving ", "Uvicorn running on ")
_REFERENCE = re.compile(r"\$\{(?:env:)?(\w+)\}")


class Walkthrough:
    """One reader of one page."""

    def __init__(self, document: Document, folder: Path) -> None:
        self._document = document
        self._folder = folder / "work"
        self._home = folder / "home"
        self._programs = folder / "bin"
        self._names: dict[str, Any] = {"__name__": f"docs_{document.path.stem.replace('-', '_')}"}
        self._servers: dict[str, ForkedPython | subprocess.Popen[str]] = {}
        self._ports: dict[str, int] = {}
        self._environment: dict[str, str] = {}
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir()
        self._home.mkdir()
        put_programs(self._programs)
        for name in ("servers", "examples"):
            (self._folder / name).symlink_to(ROOT / name)
        self._exit.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", ResourceWarning)  # pages do not close their models, as short programs do not
        self._exit.callback(gc.collect)  # once the modules are forgotten; no later test meets what a page has left
        self._model = self._exit.enter_context(running_chat_api())
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("BRIDGE_", "XDG_", "PYTHON"))}
        self._environment = kept | {
            "HOME": str(self._home),
            "PATH": os.pathsep.join([str(self._programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "OPENAI_BASE_URL": self._model.url,
            "OPENAI_API_KEY": "a key",
            "ANTHROPIC_API_KEY": "a key",
            "AWS_DEFAULT_REGION": "eu-central-1",
        }
        self._exit.enter_context(chdir(self._folder))
        before = dict(os.environ)
        self._exit.callback(os.environ.update, before)
        self._exit.callback(os.environ.clear)
        os.environ.clear()
        os.environ.update(self._environment)
        sys.path.insert(0, str(self._folder))
        self._exit.callback(sys.path.remove, str(self._folder))
        self._exit.callback(self._forget_modules)
        self._exit.callback(current.enable, None)  # a page may enable telemetry
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for number in list(self._servers):
                self._stop(number)
        finally:
            self._names.clear()
            self._exit.close()

    def _forget_modules(self) -> None:
        folder = str(self._folder)
        for name, module in sys.modules.copy().items():
            if str(getattr(module, "__dict__", {}).get("__file__")).startswith(folder):
                del sys.modules[name]

    def follow(self) -> None:
        """Follow the page from beginning to end."""
        for block in self._document.all_blocks:
            try:
                self._do(block)
            except Exception as error:
                error.add_note(f"{self._document!r}, line {block.line}")
                raise
        assert self._model.remaining == [], "replies that nothing asked for"

    def _do(self, block: Block) -> None:
        text = self._with_ports(block.text)
        if block.is_comment:
            self._hidden(block.language, text, block.line)
        elif block.title:
            self._write(block.title, block.language, text)
        elif block.language == "python":
            self._run(text, block.line)
        elif block.language == "console":
            for command in commands_of(block):
                self._type(command)
        else:
            check(block.language, text)

    def _write(self, name: str, language: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        check(language, text)

    def _hidden(self, language: str, text: str, line: int) -> None:
        if language == "replies":
            self._model.will_reply(*json.loads(text))
        elif language == "python":
            self._run(text, line)

    # --- Python ---

    def _run(self, text: str, line: int) -> None:
        name = f"<{self._document!r}:{line}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(text, name, "exec", dont_inherit=True), self._names)
        if expected := re.findall(r"^ *# > ?(.*)$", text, re.MULTILINE):
            expect(printed.getvalue().splitlines(), expected)

    # --- consoles ---

    def _with_ports(self, text: str) -> str:
        return _PORT.sub(lambda match: str(self._ports.get(match[0], match[0])), text)

    def _type(self, command: Command) -> None:
        line = command.line.partition("  # ")[0].rstrip()
        if _LOGIN.match(line):
            _, program, *arguments = shlex.split(line)
            with mock.patch("bridge.cli.reporting.configure_logging"):  # which would last in this process
                import_module(f"bridge.cli.{program}").command.make_context(program, arguments)
        elif line.startswith("make "):
            targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            assert line.split()[1] in targets
        elif _ONLY_READ.match(line):
            for word in shlex.split(line):
                if word.startswith(("servers/", "examples/", ".docker/")):
                    assert (ROOT / word).exists(), word
        elif (
            _SERVES.fullmatch(line)
            and "--check" not in line
            and not (command.shown and command.shown[0].startswith("bridge "))
        ):
            self._serve(line, command.shown)
        else:
            self._answer(line, command.shown)

    def _answer(self, line: str, shown: tuple[str, ...]) -> None:
        if (program := shlex.split(line)[0]) in {"curl", "openssl"} and shutil.which(program) is None:
            return
        done = run_line(self._with_ports(line), self._folder, self._environment)
        said = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        if shown:
            expect(said, [self._with_ports(each) for each in shown])
        else:
            assert done.returncode == 0, f"{line}\n{done.stderr}"

    def _serve(self, line: str, shown: tuple[str, ...]) -> None:
        found = re.search(r"--port (\d+)", line)
        number = found[1] if found else "8000"
        self._stop(number)
        if not found:
            line += " --port 8000"
        for port in {number, *re.findall(r"-port (\d+)", line)}:
            self._ports[port] = free_port()
        arguments, settings = python_in(self._with_ports(line))
        assert arguments is not None, f"no Python: {line}"
        environment = self._environment | settings
        process = forks.popen(
            arguments, cwd=self._folder, env=environment, streams=(subprocess.DEVNULL, subprocess.DEVNULL, None)
        )
        self._servers[number] = process
        assert process.stderr is not None
        said: list[str] = []
        watchdog = Timer(DEADLINE_SECONDS, process.kill)
        watchdog.start()
        while len(said) < len(shown) or not any(each in "\n".join(said) for each in _READY):
            read = process.stderr.readline()
            assert read, f"{line}\n" + "\n".join(said)
            said.append(read.rstrip("\n"))
        watchdog.cancel()
        expect(said[: len(shown)] if shown else [], [self._with_ports(each) for each in shown])

    def _stop(self, number: str) -> None:
        if (process := self._servers.pop(number, None)) is None:
            return
        watchdog = Timer(DEADLINE_SECONDS, process.kill)
        watchdog.start()
        process.terminate()
        with process:
            assert process.stderr is not None
            log = process.stderr.read()
        watchdog.cancel()
        assert "Traceback" not in log, log


def put_programs(folder: Path) -> None:
    """Write the programs that shells and configurations find: forks of Python, except for its own options."""
    folder.mkdir()
    for name in ("bridge", "mcp-toolbridge"):
        _write_program(folder / name, f'exec {shlex.join(forks.command("-m", "bridge"))} "$@"')
    python, fork = shlex.quote(sys.executable), shlex.join(forks.command())
    _write_program(folder / "python", f'case "$1" in *.py) exec {fork} "$@";; *) exec {python} "$@";; esac')


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def run_line(line: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line of a console; by a shell, unless it only starts Python."""
    arguments, settings = python_in(line)
    if arguments is not None:
        return forks.run(arguments, cwd=folder, env=environment | settings, timeout=DEADLINE_SECONDS)
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def python_in(line: str) -> tuple[list[str] | None, dict[str, str]]:
    """Return the arguments of ``python`` in a line of a console, or those of our commands, and its environment.

    The arguments are None if the line is another command, or more than one.
    """
    words = shlex.split(line)
    settings = dict(word.split("=", 1) for word in takewhile(_SETTING.match, words))
    program, *arguments = words[len(settings) :]
    if _SHELL.search(_QUOTED.sub("", line)) or program not in _PYTHON or "pytest" in arguments:
        return None, settings  # pytest rewrites modules while it imports them
    return [*_PYTHON[program], *arguments], settings


def check(language: str, text: str) -> None:
    """Check the syntax of a block without running it.

    Raises:
        ValueError: It is invalid.
        bridge.ConfigError: It has servers, and is not a configuration.
    """
    if language in {"py", "python"}:
        compile(text, "page.py", "exec")
    elif language == "json":
        read_json(text)
    elif language == "yaml":
        list(yaml.safe_load_all(text))
    elif language not in {"text", "nginx", "dockerfile", "java"}:
        raise ValueError(f"{language!r} is no language of the documentation: see the rules above")


def read_json(text: str) -> None:
    """Parse JSON, and read it as a configuration if it has servers.

    Raises:
        ValueError: It is not JSON.
        bridge.ConfigError: It is not a configuration.
    """
    document = json.loads(text)
    if isinstance(document, dict) and "mcpServers" in document:
        environ = dict.fromkeys(_REFERENCE.findall(text), "value")
        parse_config(document, environ=environ, inputs=lambda _: "value", reads_pins=False)


def expect(said: list[str], shown: list[str]) -> None:
    """Compare lines with those that a page shows, in which ``…`` stands for any text.

    Raises:
        AssertionError: They differ.
    """
    pattern = "\n".join(r"(?:.*)" if line.strip() == "…" else re.escape(line).replace("…", "[^\n]*") for line in shown)
    text = "\n".join(line.rstrip() for line in said)
    if re.fullmatch(pattern, text, re.DOTALL) is None:
        raise AssertionError("\n".join(["the page shows:", *shown, "the answer is:", text]))
