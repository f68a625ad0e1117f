"""Secrets are not shown: not in a repr, an error or a log."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.client import HttpTransport, StdioTransport, parse_config
from bridge.errors import ConfigError
from bridge.redaction import names_secret, redact_command, redact_url

SECRET = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=30).map(lambda s: f"S3{s}")
PLAIN_SECRET = SECRET.filter(lambda secret: "$" not in secret)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/mcp", "https://example.com/mcp"),
        ("https://example.com:8080", "https://example.com:8080"),
        ("https://[::1]:80/mcp", "https://[::1]:80/mcp"),
        ("https://me:pass@example.com/mcp", "https://***@example.com/mcp"),
        ("https://token@example.com", "https://***@example.com"),
        ("https://me:p@ss@example.com", "https://***@example.com"),
        ("https://h/mcp?key=v&flag&b=", "https://h/mcp?key=***&***&b=***"),
        ("https://h/mcp#fragment", "https://h/mcp#***"),
        ("https://h/api/mcp/s/Nzc4ZjA1YjItZTQ4Mi00/mcp", "https://h/api/mcp/s/***/mcp"),
        ("https://h/@scope/server-name/mcp", "https://h/@scope/server-name/mcp"),
        ("https://u:pa/ss@h/mcp", "https://***"),
        ("postgresql://u:pa/ss@h:5432/db", "postgresql://***@h:5432/db"),
        ("https://${HOST}:${PORT}/x", "https://${HOST}:${PORT}/x"),
        ("not a url", "not a url"),
    ],
)
def test_a_url_is_shown_without_what_is_secret(url: str, shown: str) -> None:
    assert redact_url(url).shown == shown
    assert HttpTransport(url).redacted() == shown


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["npx", "-y", "@scope/server", "/some/folder"], "npx -y @scope/server /some/folder"),
        (["x", "--api-key", "v"], "x --api-key ***"),
        (["x", "--api-key=v"], "x --api-key=***"),
        (["x", "--apiKey", "v"], "x --apiKey ***"),
        (["x", "--password", "-v"], "x --password ***"),
        (["x", "--token", "--verbose"], "x --token --verbose"),
        (["x", "--header", "X-Any: v"], "x --header 'X-Any: ***'"),
        (["x", "--header=X-Any: v"], "x '--header=X-Any: ***'"),
        (["x", "Authorization:Bearer v"], "x 'Authorization: ***'"),
        (["docker", "run", "-e", "ANY=v", "--env", "NAME", "image"], "docker run -e ANY=*** --env NAME image"),
        (["env", "GITHUB_TOKEN=v", "x"], "env GITHUB_TOKEN=*** x"),
        (["x", "--port=8080"], "x --port=8080"),
        (["x", "postgresql://u:p@h/db"], "x postgresql://***@h/db"),
        (["x", "--url=https://h/?k=v"], "x --url=https://h/?k=***"),
        (["x", "--config", '{"anyKey": "v"}'], "x --config ***"),
        (["x", "sk-abcdefgh12345678"], "x ***"),
        (["x", "$(id)", "`id`", "a;id", "it's"], """x '$(id)' '`id`' 'a;id' 'it'"'"'s'"""),
        (["npx -y x --api-key v"], "npx -y x --api-key ***"),
        ([], ""),
    ],
)
def test_a_command_is_shown_without_what_is_secret(words: list[str], shown: str) -> None:
    assert redact_command(words).shown == shown


@pytest.mark.parametrize(
    "name", ["--api-key", "API_KEY", "apikey", "GithubToken", "X-Auth", "--pat", "DB_PASSWORD", "dbpassword"]
)
def test_a_name_of_a_secret_is_known(name: str) -> None:
    assert names_secret(name)


@pytest.mark.parametrize("name", ["--port", "NODE_ENV", "--path", "author", "compass_mode", "-y", ""])
def test_a_name_of_something_else_is_left(name: str) -> None:
    assert not names_secret(name)


def test_the_values_of_a_transport_are_not_in_its_repr() -> None:
    child = StdioTransport("x", args=("--token", "hidden-1"), env={"ANY": "hidden-2"}, cwd="/here")
    assert repr(child) == str(child)
    assert repr(child) == "StdioTransport('x --token ***', env={'ANY': '***'}, cwd='/here', inherit_env='minimal')"
    remote = HttpTransport("https://hidden-1@h/?k=hidden-2", headers={"ANY": "hidden-3"}, kind="sse")
    assert repr(remote) == str(remote)
    assert repr(remote) == "HttpTransport('https://***@h/?k=***', headers={'ANY': '***'}, kind='sse')"


def test_foreign_texts_are_scrubbed_of_what_a_child_was_given() -> None:
    config = parse_config(
        {"a": {"command": "x", "args": ["${DSN}", "--token", "literal-token"], "env": {"K": "from-env", "N": "1"}}},
        environ={"DSN": "any-text"},
    )
    transport = config.servers["a"].transport
    said = "1 bad connection any-text with literal-token and from-env"
    assert transport.scrub(said) == "1 bad connection *** with *** and ***"


def test_foreign_texts_are_scrubbed_of_what_a_url_and_its_headers_hold() -> None:
    transport = HttpTransport(
        "https://me:p%40ssword@h/mcp?key=query-secret", headers={"Authorization": "Bearer t0k3n-x"}
    )
    said = "401 for https://me:p%40ssword@h/mcp?key=query-secret (p@ssword, t0k3n-x, Bearer t0k3n-x)"
    assert transport.scrub(said) == "401 for https://***@h/mcp?*** (***, ***, ***)"
    in_path = HttpTransport("https://h/s/Nzc4ZjA1YjItZTQ4Mi00/mcp#fragment-secret")
    assert in_path.scrub("404 for /s/Nzc4ZjA1YjItZTQ4Mi00/mcp and fragment-secret") == "404 for /s/***/mcp and ***"


def everything_said(document: dict[str, Any], caplog: pytest.LogCaptureFixture, environ: dict[str, str]) -> str:
    """Return all texts about a configuration: values, warnings, logs, and the error with its traceback."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        try:
            config = parse_config(document, environ=environ)
        except ConfigError as error:
            logging.getLogger("test").exception("refused")
            return f"{error!r} {error} {error.problems!r} {caplog.text}"
    shown = [
        f"{server.transport!r} {server.transport} {server.transport.redacted()}" for server in config.servers.values()
    ]
    return f"{config!r} {config} {config.warnings} {shown} {caplog.text}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=PLAIN_SECRET, broken=st.booleans())
def test_a_secret_written_into_the_file_is_never_said(
    secret: str, broken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    quoted = quote(secret, safe="")
    document = {
        "child": {
            "command": "x",
            "args": ["--api-key", secret, f"--token={secret}", "-H", f"Authorization: Bearer {secret}"],
            "env": {"ANY": secret},
            "odd": secret,
        },
        "remote": {
            "url": f"https://user:{quoted}@h/mcp?key={quoted}&{quoted}#{quoted}",
            "headers": {"ANY": f"Bearer {secret}"},
            "timeout": secret if broken else 5000,
        },
        "raw": {"url": f"https://user:{secret}@h/mcp?key={secret}"},
    }
    said = everything_said(document, caplog, {})
    assert secret not in said
    assert quoted not in said


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=SECRET, broken=st.booleans())
def test_a_secret_from_the_environment_is_never_said_wherever_it_goes(
    secret: str, broken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    document = {
        "child": {"command": "x", "args": ["${K}", "a=${K}", "--any", "pre${K}post"], "env": {"ANY": "${K}"}},
        "remote": {"url": "https://h/${K}/mcp?k=${K}", "headers": {"ANY": "${K}"}},
        "host": {"url": "https://${K}/mcp" if broken else "https://h/mcp"},
        "whole": {"url": "${K}" if broken else "https://h/mcp"},
    }
    assert secret not in everything_said(document, caplog, {"K": secret})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.recursive(PLAIN_SECRET, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("k"), inner))
)
def test_a_value_of_the_wrong_type_is_not_quoted(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    document: dict[str, Any] = {
        key: {"command": "x", key: value, "disabled": value}
        for key in ("env", "args", "envFile", "cwd", "timeout", "include", "protocol", "prefix", "inheritEnv")
    }
    document |= {key: {"url": value, key: value, "timeout": value} for key in ("url", "headers", "type")}
    said = everything_said({"mcpServers": document, "inputs": value}, caplog, {})
    for secret in _texts(value):
        assert secret not in said


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for inner in (value.values() if isinstance(value, dict) else value) for text in _texts(inner)]
