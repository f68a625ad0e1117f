from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run, Start

KEY = "a-key-that-is-long-enough"
BEARER = "Authorization: Bearer ${SOME_KEY}"


@pytest.fixture
def guarded(start: Start) -> Iterator[str]:
    """URL of a server that requires a key."""
    arguments = ("serve", "calculator.py", "--transport", "http", "--port", "0")
    with start(*arguments, env={"BRIDGE_API_KEY": KEY}) as process:
        yield process.url()


def test_a_key_out_of_the_environment_goes_with_every_request(run: Run, guarded: str) -> None:
    known = {"SOME_KEY": KEY}
    assert run("call", guarded, "add", "a=1", "--header", BEARER, env=known).stdout == "3\n"
    assert run("list", guarded, "--header", BEARER, env=known).stdout.startswith("add (Addition)\n")
    assert "ready" in run("status", guarded, "--header", BEARER, env=known).stdout


def test_a_server_that_names_no_authorization_server_is_said_to_want_a_key(run: Run, guarded: str) -> None:
    done = run("list", guarded)
    assert done.returncode == 1
    assert "hint: it wants a key: give it by --header 'Authorization: Bearer ${KEY}'" in done.stderr
    in_vain = run("login", guarded, "--no-browser")
    assert in_vain.returncode == 1
    assert "it names no authorization server, so a login is impossible: give a key" in in_vain.stderr


def test_who_asks_for_nothing_needs_no_login(run: Run, start: Start) -> None:
    with start("serve", "calculator.py", "--transport", "http", "--port", "0") as process:
        done = run("login", process.url(), "--no-browser")
    assert (done.returncode, "no login is needed" in done.stderr) == (1, True), done.stderr


def test_a_wrong_key_is_shown_nowhere(run: Run, guarded: str) -> None:
    wrong = "another-long-secret"
    done = run("list", guarded, "--header", BEARER, "--log-level", "debug", env={"SOME_KEY": wrong})
    assert (done.returncode, "it asks for credentials (HTTP 401)" in done.stderr) == (1, True)
    assert wrong not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("http://127.0.0.1:9/mcp", "--header", "${SECRET}"), "--header must have the form 'NAME: VALUE', such as"),
        (("calculator.py", "--header", "X: s3cret"), "--header needs one http(s):// URL, and there is none"),
        (("http://127.0.0.1:9/mcp", "--header", "X: s3cret", "--header", "x: s3cret"), "sets one header twice"),
    ],
)
def test_a_header_that_cannot_be_given_is_wrong_usage(run: Run, words: tuple[str, ...], message: str) -> None:
    done = run("list", *words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert "s3cret" not in done.stderr


def test_a_variable_that_is_not_set_is_named(run: Run) -> None:
    done = run("list", "http://127.0.0.1:9/mcp", "--header", BEARER)
    assert done.returncode == 1
    assert done.stderr.startswith("bridge: --header: server '127.0.0.1'")
    assert "the variable 'SOME_KEY' is not set" in done.stderr


def test_a_secret_for_one_of_several_urls_is_given_to_none(run: Run) -> None:
    urls = ("http://127.0.0.1:9/mcp", "http://localhost:9/mcp")
    done = run("chat", *urls, "--model", "openai:any", "--header", "X: s3cret", env={"OPENAI_API_KEY": "none"})
    assert (done.returncode, "there are 2, and a header may be a secret of one of them" in done.stderr) == (2, True), (
        done.stderr
    )


def test_a_scope_that_is_missing_is_named_with_how_to_get_it(run: Run, start: Start, directory: Path) -> None:
    (directory / "keys").write_text(f"ada {KEY} scopes=read\n", encoding="utf-8")
    scopes = ("--api-keys", "keys", "--tool-scope", "add=write")
    with start("serve", "calculator.py", "--transport", "http", "--port", "0", *scopes) as process:
        url = process.url()
        done = run("call", url, "add", "a=1", "--header", BEARER, env={"SOME_KEY": KEY})
    assert done.returncode == 1
    assert "calling 'add': the scope 'write' is missing (HTTP 403)" in done.stderr
    assert f"bridge login {url} --scope write" in done.stderr
