from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge.client.auth.store import LoginStore, login_key
from bridge.private_files import STATE_VARIABLE
from tests import forks
from tests.client.auth import authority as authorities
from tests.client.auth import resource as resources
from tests.client.auth.conftest import age, browse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.auth.authority import Authority
    from tests.client.auth.resource import Resource

DEADLINE_SECONDS = 60
PROCESSES = 4


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with authorities.running() as authority:
        yield authority


@pytest.fixture
def resource(authority: Authority) -> Iterator[Resource]:
    with resources.running(authority) as resource:
        yield resource


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bridge", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run(*words: str) -> tuple[int, str, str]:
    done = forks.run(["-m", "bridge", *words], cwd=Path.cwd(), env=os.environ, timeout=DEADLINE_SECONDS)
    return done.returncode, done.stdout, done.stderr


def log_in(*words: str) -> tuple[int, str]:
    """Log in by the address that the command writes; returns the exit code and the last output."""
    with started("login", *words, "--no-browser") as process:
        assert process.stderr is not None
        words_before, _, url = process.stderr.readline().strip().rpartition(" ")
        assert words_before == "log in here:"
        anyio.run(browse, url)
        _, said = process.communicate(timeout=DEADLINE_SECONDS)
        return process.returncode, said


def test_a_person_logs_in_once_and_logs_out(authority: Authority, resource: Resource) -> None:
    code, _, said = run("list", resource.url)
    assert (code, f"hint: run: bridge login {resource.url} (or give it" in said) == (1, True)
    assert log_in(resource.url) == (0, "logged in to '127.0.0.1', which has 3 tools\n")
    assert run("call", resource.url, "add", "a=1", "b=2")[:2] == (0, "3\n")
    assert run("logout", resource.url) == (0, "", "logged out of '127.0.0.1'\n")
    assert len(authority.revoked) == 2
    assert run("logout", resource.url) == (0, "", "there was no login to '127.0.0.1'\n")
    assert run("call", resource.url, "add", "a=1", "b=2")[0] == 1


def test_another_host_to_log_in_at_is_named_before_its_page(authority: Authority, resource: Resource) -> None:
    resource.url = resource.url.replace("127.0.0.1", "localhost")
    with started("login", resource.url, "--no-browser") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "the login page of server 'localhost' is on another host: 127.0.0.1\n"
        words_before, _, url = process.stderr.readline().strip().rpartition(" ")
        assert words_before == "log in here:"
        anyio.run(browse, url)
        _, said = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, said) == (0, "logged in to 'localhost', which has 3 tools\n")


def test_a_login_can_ask_for_more(authority: Authority, resource: Resource) -> None:
    assert log_in(resource.url, "--scope", "read", "--scope", "write")[0] == 0
    assert run("call", resource.url, "erase")[:2] == (0, "erased\n")


def test_a_call_that_wants_more_says_so_and_logging_in_again_asks_for_it(
    authority: Authority, resource: Resource
) -> None:
    log_in(resource.url)
    code, _, said = run("call", resource.url, "erase")
    assert (code, "lacks a required scope (write)" in said, "bridge login" in said) == (1, True, True)
    log_in(resource.url)
    assert run("call", resource.url, "erase")[:2] == (0, "erased\n")


def test_a_server_of_a_configuration_is_logged_in_to_by_its_name(
    authority: Authority, resource: Resource, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    servers = {"guarded": {"url": resource.url, "auth": "oauth"}, "other": {"url": "http://127.0.0.1:9/mcp"}}
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    code, _, said = run("list", f"{path}#guarded")
    assert (code, f"bridge login '{path}#guarded'" in said) == (1, True)
    assert log_in(str(path)) == (0, "logged in to 'guarded', which has 3 tools\n")
    assert run("list", f"{path}#guarded")[0] == 0


def test_a_person_who_says_no_is_told(authority: Authority, resource: Resource) -> None:
    authority.denies = True
    assert log_in(resource.url) == (
        1,
        "bridge: server '127.0.0.1': the login was refused (access_denied: the person said no)\n",
    )


def test_a_person_who_does_not_come_is_not_waited_for(authority: Authority, resource: Resource) -> None:
    code, _, said = run("login", resource.url, "--no-browser", "--timeout", "0.5")
    assert (code, "nobody logged in within 0.5 seconds" in said) == (1, True)


def test_a_browser_is_opened(authority: Authority, resource: Resource, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    follow = "import sys, urllib.request as r; r.urlopen(sys.argv[1]).read()"
    browser.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{follow}" "$1"\n', encoding="utf-8")
    browser.chmod(0o755)
    command = [sys.executable, "-m", "bridge", "login", resource.url]
    done = subprocess.run(
        command,
        env={**os.environ, "BROWSER": str(browser)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, "logged in to" in done.stderr) == (0, True), done.stderr


def test_processes_that_need_a_refresh_at_once_share_one(authority: Authority, resource: Resource) -> None:
    log_in(resource.url)
    anyio.run(age, resource.url)
    with ExitStack() as stack:

        async def start() -> list[subprocess.Popen[str]]:
            async with LoginStore().locked(login_key(resource.url)):
                words = ("list", resource.url, "--log-level", "debug")
                processes = [stack.enter_context(started(*words)) for _ in range(PROCESSES)]
                for process in processes:
                    assert process.stderr is not None
                    while "is being renewed by another process" not in (line := process.stderr.readline()):
                        assert line
            return processes

        processes = anyio.run(start)
        said = [process.communicate(timeout=DEADLINE_SECONDS) for process in processes]
        assert [process.returncode for process in processes] == [0] * PROCESSES, said
    assert authority.grants == ["authorization_code", "refresh_token"]
    assert "eyJ" not in str(said), "no token is logged"


def test_what_nobody_can_log_in_to_is_wrong_usage(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("", encoding="utf-8")
    path = tmp_path / "mcp.json"
    servers = {"a": {"url": "https://a/mcp"}, "b": {"url": "https://b/mcp"}, "c": {"command": "x"}}
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    for target, words in (
        (str(tmp_path / "tools.py"), "a Python target has no server to log in to"),
        (f"{path}#c", "there is no login"),
        (str(path), "there are several servers: add # and one of 'a', 'b'"),
    ):
        code, _, said = run("login", target)
        assert (code, words in said) == (2, True), said


def test_a_server_that_is_not_there_cannot_be_logged_in_to(authority: Authority) -> None:
    code, _, said = run("login", "http://127.0.0.1:9/mcp", "--no-browser")
    assert (code, "the server does not respond" in said) == (1, True)
