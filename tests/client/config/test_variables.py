"""References are replaced where they are allowed; one that cannot be replaced is an error that names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client import HttpTransport, InputDefinition, StdioTransport, parse_config
from bridge.client.config.variables import Expanded, ExpansionError, Inputs, Variables
from bridge.errors import ConfigError

FORMS = (
    "cannot be expanded; supported are ${VAR}, ${VAR:-default}, ${env:VAR}, ${input:id}, ${workspaceFolder} "
    "and ${userHome}, and $${ for a literal ${"
)
ENVIRON = {"A": "1", "B": "2", "EMPTY": "", "HOME": "/home/me", "NESTED": "${A}", "WITH-DASH": "d"}


def variables(
    environ: dict[str, str] | None = None, source: Any = None, definitions: tuple[InputDefinition, ...] = ()
) -> Variables:
    environ = ENVIRON if environ is None else environ
    return Variables(environ, Path("/work/space"), Inputs(definitions, source, environ))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("plain $A {A} $ {A} }", "plain $A {A} $ {A} }"),
        ("${A}", "1"),
        ("-${A}-${B}${A}-", "-1-21-"),
        ("${env:A}", "1"),
        ("${env:WITH-DASH}", "d"),
        ("${EMPTY}", ""),
        ("${MISSING:-}", ""),
        ("${MISSING:-a default: with :- in it}", "a default: with :- in it"),
        ("${env:MISSING:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${A:-default}", "1"),
        ("${NESTED}", "${A}"),
        ("$${A}", "${A}"),
        ("$$A $${", "$$A ${"),
        ("${workspaceFolder}/x", "/work/space/x"),
        ("${workspaceFolderBasename}", "space"),
        ("${userHome}", "/home/me"),
        ("${pathSeparator}${/}", os.sep * 2),
    ],
)
def test_a_text_is_expanded(text: str, value: str) -> None:
    assert variables().expand(text).value == value


def test_the_home_of_the_user_is_known_where_home_is_not() -> None:
    assert variables({"USERPROFILE": "C:\\me"}).expand("${userHome}").value == "C:\\me"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("${MISSING}", ["the variable 'MISSING' is not set: set it, or write ${MISSING:-default}"]),
        ("${env:MISSING}", ["the variable 'MISSING' is not set: set it, or write ${MISSING:-default}"]),
        ("${input:key}", ["the input 'key' has no value: pass it in inputs=, or set BRIDGE_INPUT_KEY"]),
        ("${input:}", ["'${input:}' has no input id"]),
        ("a${A", ["a '${' has no matching '}': write $${ for a literal ${"]),
        ("${MISSING:-${A}}", ["a '${' has no matching '}': write $${ for a literal ${"]),
        (
            "${command:pick}",
            [f"'${{command:…}}' {FORMS}"],
        ),
        (
            "${A-default}",
            [f"a '${{…}}' {FORMS}"],
        ),
        (
            "${X} ${Y} ${X}",
            [
                "the variable 'X' is not set: set it, or write ${X:-default}",
                "the variable 'Y' is not set: set it, or write ${Y:-default}",
            ],
        ),
    ],
)
def test_what_cannot_be_expanded_is_named_with_the_remedy(text: str, messages: list[str]) -> None:
    with pytest.raises(ExpansionError) as caught:
        variables().expand(text)
    assert caught.value.messages == messages


def test_what_is_shown_is_the_reference_and_not_what_it_stands_for() -> None:
    text = "${HOME}/${A}?${env:B}&${MISSING:-literal}&${input:k}"
    assert variables(source={"k": "typed"}).expand(text) == Expanded(
        "/home/me/1?2&literal&typed", "/home/me/${A}?${B}&${MISSING}&${input:k}", ("1", "2", "literal", "typed")
    )


@given(st.text() | st.text(st.sampled_from("${}:-AB env")))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        expanded = variables().expand(text)
    except ExpansionError as error:
        messages = error.messages
    else:
        messages = ["expanded"] if "${" in text or expanded.value == text else []
    assert messages


@given(st.text(st.sampled_from("${}:-AB env")))
def test_an_escaped_text_is_expanded_to_itself(text: str) -> None:
    assert variables().expand(text.replace("${", "$${")).value == text


def test_every_place_that_may_hold_a_reference_is_expanded(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("FROM_FILE=${A}")
    document = {
        "child": {"command": "${A}", "args": ["${B}"], "env": {"V": "${A}"}, "cwd": "${A}", "envFile": "${F}.env"},
        "remote": {"url": "http://${A}/", "headers": {"H": "${B}"}},
    }
    config = parse_config(document, environ={**ENVIRON, "F": "a"}, workspace_folder=tmp_path)
    assert [server.transport for server in config.servers.values()] == [
        StdioTransport("1", args=("2",), env={"FROM_FILE": "${A}", "V": "1"}, cwd=str(tmp_path / "1")),
        HttpTransport("http://1/", headers={"H": "2"}),
    ]


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"command": "${GONE}"}, "command"),
        ({"command": "x", "args": ["y", "${GONE}"]}, "args[1]"),
        ({"command": "x", "env": {"V": "${GONE}"}}, "env.V"),
        ({"command": "x", "cwd": "${GONE}"}, "cwd"),
        ({"command": "x", "env_file": "${GONE}"}, "env_file"),
        ({"serverUrl": "http://${GONE}"}, "serverUrl"),
        ({"url": "http://h", "headers": {"H": "${GONE}"}}, "headers.H"),
    ],
)
def test_a_missing_variable_is_an_error_naming_it_the_server_and_the_key(entry: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"mcpServers": {"it": entry}}, environ={}, source="mcp.json")
    assert str(caught.value) == (
        f"mcp.json: server 'it', {key!r}: the variable 'GONE' is not set: set it, or write ${{GONE:-default}}"
    )


class TestInputs:
    """Values of variables that a person enters."""

    KEY = InputDefinition(id="api-key", description="The key of the service", password=True)

    def test_a_mapping_gives_the_value(self) -> None:
        assert variables({}, {"api-key": "k"}, (self.KEY,)).expand("${input:api-key}").value == "k"

    def test_a_function_is_asked_once_with_the_definition(self) -> None:
        asked: list[InputDefinition] = []

        def ask(definition: InputDefinition) -> str:
            asked.append(definition)
            return "typed"

        assert variables({}, ask, (self.KEY,)).expand("${input:api-key}${input:api-key}").value == "typedtyped"
        assert asked == [self.KEY]

    def test_an_input_that_nothing_uses_is_not_asked_for(self) -> None:
        def ask(definition: InputDefinition) -> str:
            raise AssertionError(definition)

        document = {
            "inputs": [{"id": "api-key"}],
            "servers": {"off": {"command": "${input:api-key}", "disabled": True}, "on": {"command": "x"}},
        }
        assert list(parse_config(document, environ={}, inputs=ask).servers) == ["on"]

    def test_the_environment_gives_what_a_function_does_not(self) -> None:
        found = variables({"BRIDGE_INPUT_API_KEY": "from outside"}, lambda _: None, (self.KEY,))
        assert found.expand("${input:api-key}").value == "from outside"

    def test_two_do_not_get_the_value_of_one_variable(self) -> None:
        found = variables({"BRIDGE_INPUT_API_KEY": "from outside"}, {"api.key": "given"}, (self.KEY,))
        assert found.expand("${input:api-key}").value == "from outside"
        assert found.expand("${input:api.key}").value == "given"
        with pytest.raises(ExpansionError, match="'api-key' and 'api_key' both have BRIDGE_INPUT_API_KEY: rename one"):
            found.expand("${input:api_key}")

    def test_the_default_of_the_definition_comes_last(self) -> None:
        assert variables({}, {}, (InputDefinition(id="k", default="d"),)).expand("${input:k}").value == "d"

    def test_a_missing_one_is_an_error_naming_it_and_its_description(self) -> None:
        document = {
            "inputs": [{"id": "api-key", "type": "promptString", "description": "The key of the service"}],
            "servers": {"it": {"command": "x", "env": {"KEY": "${input:api-key}"}}},
        }
        with pytest.raises(ConfigError) as caught:
            parse_config(document, environ={}, source="mcp.json")
        assert str(caught.value) == (
            "mcp.json: server 'it', 'env.KEY': the input 'api-key' ('The key of the service') has no value: "
            "pass it in inputs=, or set BRIDGE_INPUT_API_KEY"
        )
