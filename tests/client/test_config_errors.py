"""Invalid configurations are refused, with all errors at once, naming file, server, key and remedy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client import StdioTransport, UnusableTransport, load_config, parse_config
from bridge.client.config.schema import KEYS
from bridge.errors import BridgeError, ConfigError, ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bridge.client import ServersConfig


def problems(document: Any, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(document, environ={}, **options)
    return [str(problem) for problem in caught.value.problems]


NOT_A_URL = "is not a valid URL: check the host and the port, and write '/', '?', '#' and '@' of a password as %2F, …"
NOT_A_HEADER_VALUE = "is not a valid header value: it has a line break, a blank at an end, or a non-ASCII character"
NO_SERVERS = (
    "no servers found: expected 'mcpServers' (Claude Desktop, Cursor), 'servers' (VS Code), "
    "or only servers by name, each with a 'command' or a 'url'"
)

BAD_ENTRIES: list[tuple[dict[str, Any], str]] = [
    ({}, "server 'a': has neither 'command' (a program to start) nor 'url' (a server to connect to)"),
    (
        {"comand": "x"},
        (
            "server 'a': has neither 'command' (a program to start) nor 'url' (a server to connect to); "
            "did you mean 'command' by 'comand'?"
        ),
    ),
    ({"command": "x", "serverUrl": "http://h"}, "server 'a': has both 'command' and 'serverUrl': keep one"),
    ({"command": ""}, "server 'a', 'command': is empty: give the program to start, or a 'url'"),
    ({"command": " "}, "server 'a', 'command': is empty: give the program to start, or a 'url'"),
    ({"command": 5}, "server 'a', 'command': must be text"),
    ({"command": "x\0"}, "server 'a', 'command': contains a character that cannot be passed to a program"),
    ({"command": "x", "args": "y"}, "server 'a', 'args': must be a list, such as [\"one\", \"two\"]"),
    ({"command": "x", "args": ["y", None]}, "server 'a', 'args[1]': must be text"),
    (
        {"command": "x", "args": ["\ud800"]},
        "server 'a', 'args[0]': contains a character that cannot be passed to a program",
    ),
    ({"command": "x", "env": []}, "server 'a', 'env': must be an object"),
    ({"command": "x", "env": {"A": []}}, "server 'a', 'env.A': must be text"),
    ({"command": "x", "env": {"A=B": "1"}}, "server 'a', 'env.A=B': is not a valid variable name"),
    ({"command": "x", "env": {"": "1"}}, "server 'a', 'env.': is not a valid variable name"),
    (
        {"command": "x", "inherit_env": "some"},
        "server 'a', 'inherit_env': must be 'minimal', 'all' or a list of variable names",
    ),
    ({"command": "x", "timeout": "60"}, "server 'a', 'timeout': must be a number"),
    ({"command": "x", "timeout": True}, "server 'a', 'timeout': must be a number"),
    ({"command": "x", "timeout": 0}, "server 'a', 'timeout': must be greater than 0"),
    ({"command": "x", "timeout": float("inf")}, "server 'a', 'timeout': must be a finite number"),
    (
        {"command": "x", "timeout": 60, "max_call_seconds": 30},
        "server 'a', 'max_call_seconds': is shorter than 'timeout', which would have no effect",
    ),
    ({"command": "x", "disabled": "true"}, "server 'a', 'disabled': must be true or false"),
    ({"command": "x", "enabled": "no"}, "server 'a', 'enabled': must be true or false"),
    ({"command": "x", "transport": "ws"}, "server 'a', 'transport': must be 'stdio', 'http' or 'sse'"),
    (
        {"command": "x", "type": "streamable-http"},
        "server 'a', 'type': is 'http', which needs a 'url', not a 'command'",
    ),
    (
        {"url": "http://h", "transport": "stdio"},
        "server 'a', 'transport': is 'stdio', which needs a 'command', not a 'url'",
    ),
    (
        {"url": "http://h", "type": "http", "transport": "sse"},
        "server 'a', 'transport': contradicts 'type': keep one of them",
    ),
    ({"command": "x", "prefix": "a b"}, "server 'a', 'prefix': may contain only letters, digits, '_', '-' and '.'"),
    ({"command": "x", "disabledTools": "y"}, "server 'a', 'disabledTools': must be a list, such as [\"one\", \"two\"]"),
    (
        {"command": "x", "protocol": "2025-06-18"},
        "server 'a', 'protocol': must be 'auto', 'legacy' or '2026-07-28'",
    ),
    (
        {"url": "http://h", "type": "sse", "protocol": "2026-07-28"},
        "server 'a', 'protocol': is '2026-07-28', which is not available over SSE: remove it",
    ),
    ({"url": ""}, "server 'a', 'url': is empty: give the URL of the server, or a 'command'"),
    ({"url": "example.com/mcp"}, "server 'a', 'url': must start with http:// or https://"),
    ({"url": "ws://example.com"}, "server 'a', 'url': must start with http:// or https://"),
    ({"url": "http:///mcp"}, "server 'a', 'url': has no host"),
    (
        {"url": "http://h/a b"},
        "server 'a', 'url': contains a blank or a control character: remove it, or write it as %20",
    ),
    (
        {"url": "http://u:pass@[h/"},
        f"server 'a', 'url': {NOT_A_URL}",
    ),
    ({"url": "http://h", "headers": {"A B": "x"}}, "server 'a', 'headers.A B': is not a valid header name"),
    (
        {"url": "http://h", "headers": {"A": "x\n"}},
        f"server 'a', 'headers.A': {NOT_A_HEADER_VALUE}",
    ),
    (
        {"url": "http://h", "headers": {"Key": "x", "KEY": "y"}},
        "server 'a', 'headers': a header is given twice in different case: remove one",
    ),
]


@pytest.mark.parametrize(("entry", "problem"), BAD_ENTRIES)
def test_a_bad_server_is_refused_in_words(entry: dict[str, Any], problem: str) -> None:
    assert problems({"mcpServers": {"a": entry}}) == [problem]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "a configuration must be an object with 'mcpServers', not a list"),
        (None, "a configuration must be an object with 'mcpServers', not null"),
        ({"mcpServers": []}, "'mcpServers': must be an object of servers by name, not a list"),
        ({"servers": "x"}, "'servers': must be an object of servers by name, not text"),
        ({"mcpServers": {"a": 1}}, "server 'a': must be an object with a 'command' or a 'url', not a number"),
        (
            {"name": "package", "scripts": {"x": "y"}},
            NO_SERVERS,
        ),
        (
            {"a": {"command": "x"}, "version": 1},
            "server 'version': must be an object with a 'command' or a 'url', not a number",
        ),
        ({"servers": {}, "inputs": {}}, "'inputs': must be a list, not an object"),
        ({"servers": {}, "inputs": [{}]}, "'inputs[0].id': is missing"),
        ({"servers": {}, "inputs": [{"id": ""}]}, "'inputs[0].id': String should have at least 1 character"),
        (
            {"servers": {}, "inputs": [{"id": "a"}, {"id": "a"}]},
            "'inputs[1].id': two inputs have the id 'a': rename one",
        ),
    ],
)
def test_a_bad_document_is_refused_in_words(document: Any, problem: str) -> None:
    assert problems(document) == [problem]


@pytest.mark.parametrize("name", ["", " a", "a\n"])
def test_a_name_without_text_or_with_blanks_around_it_is_refused(name: str) -> None:
    found = problems({"mcpServers": {name: {"command": "x"}}})
    assert found == [f"server {name!r}: a server's name must be text without leading or trailing blanks: rename it"]


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\nb", "a\ud800"])
def test_a_name_with_control_characters_is_refused_and_never_printed_raw(name: str) -> None:
    found = problems({"mcpServers": {name: {"command": "x"}}})
    assert found == [f"server {name!r}: a server's name must not contain control characters: rename it"]
    assert found[0].isprintable()


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}',
        '{"a": {"command": "x"}, "a": {"command": "y"}}',
        '{"mcpServers": {"a": {"command": "x"}}, "servers": {"a": {"command": "y"}}}',
    ],
)
def test_two_servers_of_one_name_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ={})
    assert str(caught.value) == f"{file}: server 'a': two servers have this name: rename one"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"mcpServers": {}, "mcpServers": {}}', "'mcpServers': is given twice: merge the two"),
        ('{"a": {"command": "x", "command": "y"}}', "server 'a', 'command': is given twice: remove one"),
        ('{"a": {"command": "x", "env": {"K": "1", "K": "2"}}}', "server 'a', 'env.K': is given twice: remove one"),
    ],
)
def test_a_key_that_stands_twice_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ={})
    assert str(caught.value) == f"{file}: {problem}"


GOOD = {"command": "x"}
UNSET = "the variable 'UNSET' is not set: set it, or write ${UNSET:-default}"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        *BAD_ENTRIES,
        ({"url": "https://h", "headers": {"Key": "${UNSET}"}}, f"server 'a', 'headers.Key': {UNSET}"),
        ({"command": "x", "pins": "none.json"}, "server 'a', 'pins': 'none.json' cannot be read"),
        ({"command": "x", "envFile": "none.env"}, "server 'a', 'envFile': cannot read 'none.env'"),
        (5, "server 'a': must be an object with a 'command' or a 'url', not a number"),
    ],
)
def test_what_is_wrong_with_one_server_costs_that_server_alone(entry: Any, problem: str, tmp_path: Path) -> None:
    config = parse_config({"mcpServers": {"a": entry, "b": GOOD}}, environ={}, workspace_folder=tmp_path)
    assert list(config.servers) == ["a", "b"]
    assert config.servers["b"].transport == StdioTransport("x")
    broken = config.servers["a"].transport
    assert isinstance(broken, UnusableTransport)
    assert [str(each)[: len(problem)] for each in broken.problems] == [problem]
    with pytest.raises(ConfigError, match="'a'"):
        config.usable("a")
    assert (config.usable("b"), config.usable("c")) == (config.servers["b"], None)


def test_what_is_wrong_with_the_file_is_an_error_of_the_file() -> None:
    for mistake in ({"inputs": 5}, {"pins": 5}, {"prefix": 5}, {"pins": "none.json"}):
        with pytest.raises(ConfigError):
            parse_config({"mcpServers": {"a": {}, "b": GOOD}, **mistake}, environ={})


def test_an_unusable_server_is_treated_as_its_entry_says_where_that_can_be_read() -> None:
    bad = {"url": "${UNSET}", "required": True, "prefix": "its_"}
    broken = parse_config({"a": bad, "b": GOOD}, environ={}).servers["a"]
    assert (broken.required, broken.prefix) == (True, "its_")
    assert parse_config({"a": {"url": 5, "required": True}, "b": GOOD}, environ={}).servers["a"].required


def test_a_lock_file_that_cannot_be_read_is_told_for_each_server_that_names_it() -> None:
    entry = {"command": "x", "pins": "none.json"}
    servers = parse_config({"a": entry, "b": entry, "c": GOOD}, environ={}).servers
    assert [isinstance(server.transport, UnusableTransport) for server in servers.values()] == [True, True, False]


def test_all_problems_of_a_file_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(
            {
                "a": {"command": "${A}", "args": ["${A} ${B}"]},
                "b": {"url": "x", "timeout": 5},
                "c": {"url": 1, "args": 1},
            },
            environ={},
            source="mcp.json",
        )
    assert str(caught.value) == (
        "mcp.json has 6 problems:\n"
        "  server 'a', 'command': the variable 'A' is not set: set it, or write ${A:-default}\n"
        "  server 'a', 'args[0]': the variable 'A' is not set: set it, or write ${A:-default}\n"
        "  server 'a', 'args[0]': the variable 'B' is not set: set it, or write ${B:-default}\n"
        "  server 'b', 'url': must start with http:// or https://\n"
        "  server 'c', 'args': must be a list, such as [\"one\", \"two\"]\n"
        "  server 'c', 'url': must be text"
    )
    assert isinstance(caught.value, BridgeError)
    assert caught.value.source == "mcp.json"
    assert caught.value.problems[0] == ConfigProblem(
        "the variable 'A' is not set: set it, or write ${A:-default}", server="a", key="command"
    )


def test_a_syntax_error_has_its_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{\n  // a comment\n  "a": {"command" "x"}\n}')
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value) == f"{file}: line 3, column 19: not JSON: Expecting ':' delimiter"


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    latin = tmp_path / "latin.json"
    latin.write_bytes('{"é": 1}'.encode("latin-1"))
    for path, why in [
        (f"{tmp_path}/none.json", "there is no such file"),
        (str(tmp_path), "cannot be read: Is a directory"),
        (str(latin), "not UTF-8 text: save it as UTF-8"),
        ("nul\0", "is not a valid path"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value) == f"{path}: {why}"


def test_an_env_file_that_cannot_be_read_is_named_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "binary.env").write_bytes(b"A=\xff")
    (tmp_path / "nul.env").write_bytes(b"A=\0")
    document = {
        "a": {"command": "x", "envFile": "${HERE}/none.env"},
        "b": {"command": "x", "env_file": "binary.env"},
        "c": {"command": "x", "envFile": "nul.env"},
    }
    with pytest.raises(ConfigError) as caught:
        parse_config(document, environ={"HERE": str(tmp_path)}, workspace_folder=tmp_path)
    assert [str(problem) for problem in caught.value.problems] == [
        "server 'a', 'envFile': cannot read '${HERE}/none.env': No such file or directory",
        "server 'b', 'env_file': 'binary.env' is not a UTF-8 text file",
        "server 'c', 'envFile': 'nul.env' is not a UTF-8 text file",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
ENTRIES = st.dictionaries(
    st.sampled_from([*KEYS, "transport", "serverUrl", "enabled", "disabledTools", "odd"]),
    JSON | st.sampled_from(["http://h", "${A}", "${A:-}", "${input:x}", "stdio", "sse", 5, True]),
    max_size=6,
)
DOCUMENTS = JSON | st.dictionaries(
    st.sampled_from(["mcpServers", "servers", "inputs", "a", "$schema"]),
    JSON | ENTRIES | st.dictionaries(st.text(max_size=5), ENTRIES, max_size=3) | st.lists(ENTRIES, max_size=2),
    max_size=4,
)


def outcome(read: Callable[[], ServersConfig]) -> ServersConfig | ConfigError:
    try:
        return read()
    except ConfigError as error:
        return error


@given(document=DOCUMENTS)
def test_no_json_data_raises_anything_but_a_configuration_error(document: Any) -> None:
    came = outcome(lambda: parse_config(document, environ={"A": "1"}, workspace_folder="/"))
    assert not isinstance(came, ConfigError) or (came.problems and str(came))


@given(content=st.binary(max_size=200) | DOCUMENTS.map(json.dumps).map(str.encode))
def test_no_content_of_a_file_raises_anything_but_a_configuration_error(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_bytes(content)
    came = outcome(lambda: load_config(file, environ={}))
    assert str(came).startswith(str(file)) or not isinstance(came, ConfigError)


@pytest.mark.parametrize("depth", [400, 800, 900, 950, 980, 2000])
def test_no_depth_of_a_file_raises_anything_but_a_configuration_error(depth: int, tmp_path: Path) -> None:
    deep = "[" * depth + "]" * depth
    file = tmp_path / "deep.json"
    file.write_text(f'{{"a": {{"url": {deep}, "serverUrl": {deep}, "args": {deep}, "odd": {deep}}}}}')
    assert isinstance(outcome(lambda: load_config(file, environ={})), ConfigError)


@pytest.mark.parametrize(
    ("key", "meant"), [("mcpServer", "mcpServers"), ("mcp_servers", "mcpServers"), ("server", "servers")]
)
def test_a_root_key_that_is_nearly_right_is_put_right(key: str, meant: str) -> None:
    assert problems({key: {"a": {"command": "x"}}}) == [f"{NO_SERVERS}; did you mean {meant!r} by {key!r}?"]
