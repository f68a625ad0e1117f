from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest

from bridge.cli.targets.client_entries import client_entry, redacted
from bridge.cli.targets.openapi import OpenApiOptions, given_openapi, openapi_options, operation_tools
from bridge.cli.targets.target import (
    ConfigTarget,
    FileTarget,
    OpenApiTarget,
    TargetCommand,
    UrlTarget,
    given_targets,
    parse_target,
)
from bridge.errors import TargetError
from tests.openapi.documents import document
from tests.openapi.pets import SECRET
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.cli.targets.target import Target
    from tests.cli.conftest import Run, Start

APP = """
from contextlib import asynccontextmanager
from fastapi import FastAPI

@asynccontextmanager
async def lifespan(app: FastAPI):
    app.state.is_up = True
    yield

app = FastAPI(title="Pets", lifespan=lifespan)

@app.get("/pets/{id}", operation_id="getPet", tags=["pets"])
async def get_pet(id: int) -> dict:
    return {"id": id, "is_up": getattr(app.state, "is_up", False)}

@app.delete("/pets/{id}", operation_id="deletePet")
async def delete_pet(id: int) -> None: ...
"""


@pytest.fixture
def pets_origin() -> Iterator[str]:
    """Origin of the application of `tests.openapi.pets`."""
    from tests.openapi.pets import pets_app  # noqa: PLC0415 - takes time

    with serving(pets_app()) as origin:
        yield origin


@pytest.fixture
def file(directory: Path) -> Path:
    """A document in the working directory, and an application beside it."""
    path = directory / "openapi.json"
    path.write_text(json.dumps(document()))
    (directory / "app.py").write_text(APP)
    return path


def test_documents_are_told_apart_from_configurations(directory: Path, file: Path) -> None:
    assert parse_target(str(file)) == OpenApiTarget(str(file))
    assert parse_target(str(file)).name == "openapi"
    (directory / "mcp.json").write_text('{"mcpServers": {}} // a comment')
    assert isinstance(parse_target(str(directory / "mcp.json")), ConfigTarget)
    (directory / "api.yml").write_text("openapi: 3.1.0")
    assert isinstance(parse_target(str(directory / "api.yml")), OpenApiTarget)
    assert parse_target("https://example.com/v1/openapi.yaml?a=b") == OpenApiTarget(
        "https://example.com/v1/openapi.yaml?a=b"
    )
    assert parse_target("https://example.com/mcp") == UrlTarget("https://example.com/mcp")
    with pytest.raises(TargetError, match="there is no file"):
        parse_target("none.yaml")


@pytest.mark.parametrize(
    "text",
    [
        '"extensions": {}\n',
        "'extensions':\n  a: {}\n",
        '{"mcpServers": {}}',
        "\ufeffextensions: {}",
        "a: b\nmcpServers: []",
    ],
)
def test_a_yaml_file_with_servers_is_a_configuration(directory: Path, text: str) -> None:
    path = directory / "config.yaml"
    path.write_text(text, encoding="utf-8")
    assert parse_target(str(path)) == ConfigTarget(path)
    path.write_text("openapi: 3.1.0\ninfo:\n  extensions: {}\n", encoding="utf-8")
    assert parse_target(str(path)) == OpenApiTarget(str(path))


def test_only_a_document_whose_operations_are_not_chosen_asks_for_the_option(directory: Path, file: Path) -> None:
    other = directory / "servers.yaml"
    other.write_text("mcpServers: {}")
    with pytest.raises(TargetError, match=r"3\.1: it has no 'openapi'$"):
        operation_tools(other, OpenApiOptions())
    with pytest.raises(TargetError, match="Choose them with --operations"):
        operation_tools(file, OpenApiOptions())


def targets_for(*arguments: str) -> list[Target]:
    """Return the targets of a command with these arguments."""

    @click.command(cls=TargetCommand)
    @click.argument("targets", nargs=-1)
    @openapi_options
    @click.pass_context
    def command(ctx: click.Context, targets: tuple[str, ...]) -> list[Target]:
        return given_targets(ctx, targets)

    found = command.main(list(arguments), standalone_mode=False)
    assert isinstance(found, list)
    return found


def test_options_go_to_the_document_or_else_to_the_named_objects(file: Path) -> None:
    options = OpenApiOptions(operations=("a,b", "GET /c"), openapi_server="http://127.0.0.1:9")
    words = ["--operations", "a,b", "--operations", "GET /c", "--openapi-server", "http://127.0.0.1:9"]
    application = file.with_name("app.py")
    assert targets_for(str(file), f"{application}:app", *words) == [
        OpenApiTarget(str(file), options),
        FileTarget(application, "app"),
    ]
    assert targets_for(f"{application}:app", *words) == [FileTarget(application, "app", options)]


def test_the_environment_has_the_same_options(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_OPERATIONS", "getPet, GET /pets*")
    monkeypatch.setenv("BRIDGE_OPENAPI_AUTH", "key=${KEY}")
    expected = OpenApiOptions(operations=("getPet", "GET /pets*"), openapi_auth=("key=${KEY}",))
    assert targets_for(str(file)) == [OpenApiTarget(str(file), expected)]
    assert targets_for(str(file.with_name("app.py"))) == [FileTarget(file.with_name("app.py"))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["calculator.py", "--operations", "x"], "need an OpenAPI document"),
        (["openapi.json", "openapi.json"], "there are 2 OpenAPI documents"),
        (["app.py:app", "app.py:other", "--openapi-server", "http://x"], "needs one FastAPI application"),
    ],
)
def test_options_without_a_clear_target_are_wrong_usage(
    file: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(click.UsageError, match=message):
        targets_for(*words)


def test_schemas_of_responses_can_be_left_out(run: Run, file: Path) -> None:
    words = ("list", "app.py:app", "--operations", "*", "--json")
    assert '"outputSchema"' in run(*words).stdout
    assert '"outputSchema"' not in run(*words, "--openapi-no-output-schemas").stdout
    options = OpenApiOptions(openapi_no_output_schemas=True)
    assert options
    assert client_entry(OpenApiTarget(str(file), options))["args"][-1] == "--openapi-no-output-schemas"


def test_a_command_without_the_options_has_none() -> None:
    assert not given_openapi(click.Context(click.Command("x")))


def test_secrets_are_hidden_where_a_command_is_shown(file: Path) -> None:
    options = OpenApiOptions(openapi_auth=(f"a={SECRET}", "b=${KEY}"), openapi_header=(f"X: {SECRET}",))
    target = OpenApiTarget(str(file), options)
    assert SECRET not in repr(target)
    shown = client_entry(redacted(target))["args"]
    assert shown[-3:] == ["--openapi-auth=a=***", "--openapi-auth=b=${KEY}", "--openapi-header=X:***"]
    assert f"--openapi-auth=a={SECRET}" in client_entry(target)["args"]


def test_operations_of_an_application_are_listed_called_and_examined(run: Run, file: Path) -> None:
    listed = run("list", "app.py:app", "--operations", "tag:pets")
    assert listed.stdout.startswith("getPet (Get Pet)\n")
    assert "deletePet" not in listed.stdout
    called = run("call", "app.py:app", "getPet", "id=3", "--operations", "GET /pets*")
    assert called.stdout == '{"id":3,"is_up":true}\n', called.stderr
    assert run("doctor", "app.py:app", "--operations", "*").returncode == 0


def test_errors_say_what_to_choose_from(run: Run, file: Path) -> None:
    nothing = run("list", "app.py:app")
    assert nothing.returncode != 0
    assert "GET /pets/{id}  getPet  tags: pets" in nothing.stderr
    assert "Choose them with --operations" in nothing.stderr
    module = run("list", "app.py")
    assert "it contains a FastAPI application: name " in module.stderr
    assert "app.py:app, and choose with --operations" in module.stderr
    auth = run("list", "openapi.json", "--operations", "x", "--openapi-auth", "key=${MISSING_KEY}")
    assert "--openapi-auth for 'key': the variable 'MISSING_KEY' is not set" in auth.stderr
    pinned = run("pin", "openapi.json")
    assert "an OpenAPI document has no server to pin" in pinned.stderr


def test_operations_are_installed_with_their_options(run: Run, file: Path) -> None:
    run("install", "openapi.json", "--operations", "x", "--client", "mcp-json", "--yes")
    entry = json.loads((file.parent / "mcp.json").read_text())["mcpServers"]["openapi"]
    assert entry["args"][-3:] == ["serve", str(file), "--operations=x"]


def test_a_document_is_served_beside_other_targets(run: Run, start: Start, file: Path, pets_origin: str) -> None:
    options = ["--operations", "getPet", "--operations", "with_bearer", "--openapi-auth", "bearer=${TOKEN}"]
    url = f"{pets_origin}/openapi.json"
    words = ["serve", url, "calculator.py", *options, "--transport", "http", "--port", "0"]
    with start(*words, env={"TOKEN": SECRET}) as process:
        served = process.url()
        assert run("call", served, "getPet", "id=a b").stdout == '{"id":"a b","fields":""}\n'
        assert run("call", served, "with_bearer").stdout == '"ok"\n'
        assert run("call", served, "add", "a=1").stdout == "3\n"
