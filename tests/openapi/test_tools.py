from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from fastapi import FastAPI, Request, Response
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import DefinitionError, Image, Text, ToolAnnotations, from_openapi
from bridge.openapi import running
from tests.openapi.conftest import call
from tests.openapi.documents import document
from tests.openapi.pets import SECRET
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bridge import ToolBox

pytestmark = pytest.mark.anyio


def test_a_tool_has_all_that_the_document_says_about_the_operation(app: FastAPI) -> None:
    [tool] = from_openapi(app, ["createPet"])
    pet = {
        "properties": {
            "name": {"type": "string", "title": "Name"},
            "tags": {"items": {"type": "string"}, "type": "array", "title": "Tags", "default": []},
            "friends": {"items": {"$ref": "#/$defs/Pet-Input"}, "type": "array", "title": "Friends", "default": []},
        },
        "type": "object",
        "required": ["name"],
        "title": "Pet",
        "description": "A pet.",
    }
    assert tool.specification.parameters == {
        "type": "object",
        "properties": pet["properties"],
        "required": ["name"],
        "additionalProperties": False,
        "$defs": {"Pet-Input": pet},
    }
    output = tool.specification.output_schema
    assert output is not None
    assert output["type"] == "object"
    assert output["properties"]["id"] == {"type": "integer", "title": "Id", "default": 0}
    assert tool.specification.title == "Create Pet"
    assert tool.specification.description == "Create Pet\n\nCreate a pet.\n\nIts id is given by the server."
    assert tool.source == "POST /pets of the application"


@pytest.mark.parametrize(
    ("name", "annotations"),
    [
        ("getPet", ToolAnnotations(read_only=True, idempotent=True, open_world=True)),
        ("createPet", ToolAnnotations(read_only=False, open_world=True)),
        ("renamePet", ToolAnnotations(read_only=False, idempotent=True, destructive=True, open_world=True)),
        ("deletePet", ToolAnnotations(read_only=False, idempotent=True, destructive=True, open_world=True)),
    ],
)
def test_annotations_follow_from_the_method(app: FastAPI, name: str, annotations: ToolAnnotations) -> None:
    [tool] = from_openapi(app, [name])
    assert tool.specification.annotations == annotations
    deprecated = (tool.specification.description or "").startswith("Deprecated.")
    assert deprecated == (name == "renamePet")


async def test_values_are_sent_in_their_places(tools_of: Callable[..., ToolBox], app: FastAPI) -> None:
    tools = tools_of("listPets")
    arguments = {"limit": 3, "tag": ["a&b=c", "d e#f"], "x-trace": "T 1", "theme": "dark; session=1"}
    result = await call(tools, "listPets", **arguments)
    assert json.loads(result.text) == ["3", "a&b=c", "d e#f", "T 1", "dark%3B%20session%3D1"]
    seen = app.state.seen[-1]
    assert seen["query"] == "limit=3&tag=a%26b%3Dc&tag=d%20e%23f"
    assert seen["cookies"] == {"theme": "dark%3B%20session%3D1"}


async def test_a_body_is_sent_as_json_and_the_result_is_structured(tools_of: Callable[..., ToolBox]) -> None:
    result = await call(tools_of("createPet"), "createPet", name="Rex", friends=[{"name": "Tom"}])
    assert not result.is_error, result.text
    friend = {"id": 0, "name": "Tom", "tags": [], "friends": []}
    assert result.structured_content == {"id": 7, "name": "Rex", "tags": [], "friends": [friend]}
    assert json.loads(result.text) == result.structured_content


async def test_a_whole_body_and_a_form_are_sent(tools_of: Callable[..., ToolBox]) -> None:
    tools = tools_of("renamePet", "sendForm")
    renamed = await call(tools, "renamePet", id=1, body={"name": "Max", "id": 2})
    assert renamed.structured_content == {"id": 2, "name": "Max"}
    sent = await call(tools, "sendForm", name="a&name=b +ü", tags=["x", "y=z"])
    assert json.loads(sent.text) == {"name": "a&name=b +ü", "tags": ["x", "y=z"]}


@pytest.mark.parametrize(
    "value",
    [
        *("../admin", "..", ".", "1/secret", "1%2Fsecret", "1%252fsecret", "%2e%2e%2fsecret", "..%2f..%2fadmin"),
        *("..\\admin", "%2e%2e", "", "/", "//evil.example/x", "http://evil.example"),
    ],
)
async def test_path_values_do_not_leave_the_path(tools_of: Callable[..., ToolBox], app: FastAPI, value: str) -> None:
    """CVE-2026-32871 of FastMCP: ``../`` in an argument reached paths that were not published."""
    result = await call(tools_of("getPet"), "getPet", id=value)
    assert result.is_error
    assert "invalid arguments for 'getPet': id: should" in result.text
    assert app.state.seen == []


@pytest.mark.parametrize("value", ["1?fields=x", "1#x", "1;a=b", "a b", "1&x=y", "ü", "100%", "a:b@c", "..a", "a..b"])
async def test_other_path_values_arrive_as_they_are(tools_of: Callable[..., ToolBox], app: FastAPI, value: str) -> None:
    result = await call(tools_of("getPet"), "getPet", id=value)
    assert json.loads(result.text) == {"id": value, "fields": ""}
    assert app.state.seen[-1]["query"] == ""


@settings(max_examples=60)
@given(st.text(), st.text())
def test_any_argument_reaches_its_own_operation_alone(shared_app: FastAPI, identifier: str, fields: str) -> None:
    app = shared_app
    app.state.seen.clear()
    tools = from_openapi(app, ["getPet"])
    result = anyio.run(lambda: call(tools, "getPet", id=identifier, fields=fields))
    if result.is_error:
        assert app.state.seen == []
    else:
        assert json.loads(result.text) == {"id": identifier, "fields": fields}


async def test_unknown_and_missing_arguments_are_named_together(app: FastAPI) -> None:
    result = await call(from_openapi(app, ["createPet"]), "createPet", nam="Rex", id=5)
    assert result.text == (
        "invalid arguments for 'createPet': nam: is not a parameter; did you mean 'name'?; id: is not a parameter; "
        "name: is required"
    )
    assert app.state.seen == []


async def test_errors_of_the_api_are_errors_of_the_tool(tools_of: Callable[..., ToolBox]) -> None:
    tools = tools_of("deletePet", "createPet", "getPet")
    assert (await call(tools, "deletePet", id=1)).text == "Success"
    missing = await call(tools, "deletePet", id=101)
    assert missing.is_error
    assert missing.text == 'DELETE /pets/{id} failed with status 404 Not Found: {"detail":"there is no pet 101"}'
    invalid = await call(tools, "createPet", name=5)
    assert invalid.is_error
    assert "status 422" in invalid.text
    assert "string_type" in invalid.text


@pytest.mark.parametrize("name", ["away", "inside"])
async def test_redirects_are_not_followed(tools_of: Callable[..., ToolBox], app: FastAPI, name: str) -> None:
    result = await call(tools_of(name), name)
    assert result.is_error
    assert "status 307 Temporary Redirect: redirects are not followed" in result.text
    assert len(app.state.seen) == 1


async def test_long_responses_are_refused(tools_of: Callable[..., ToolBox]) -> None:
    tools = tools_of("long", max_response_bytes=1000)
    assert (await call(tools, "long", size=1000)).text == "x" * 1000
    result = await call(tools, "long", size=1001)
    assert result.is_error
    assert result.text.startswith("GET /long: the response is longer than 1,000 bytes")


async def test_a_response_that_does_not_match_its_schema_is_an_error_that_shows_it(app: FastAPI) -> None:
    result = await call(from_openapi(app, ["wrong"]), "wrong")
    assert result.is_error
    assert "succeeded with status 200, but its response does not match the schema" in result.text
    assert result.text.endswith('The response: {"id":1}')
    result = await call(from_openapi(app, ["wrong"], output_schemas=False), "wrong")
    assert (result.is_error, result.text, result.structured_content) == (False, '{"id":1}', None)


async def test_other_types_of_responses_are_blocks(app: FastAPI) -> None:
    tools = from_openapi(app, ["image", "secret"])
    assert (await call(tools, "image")).content == (Image(b"\x89PNG", "image/png"),)
    assert (await call(tools, "secret", id="x")).content == (Text('"the secret of x"'),)


@pytest.mark.parametrize("charset", ["punycode", "idna", "undefined", "no-such"])
async def test_texts_in_odd_charsets_are_read_as_utf_8(charset: str) -> None:
    app = FastAPI()

    @app.get("/text", operation_id="text")
    async def text() -> Response:
        return Response("\u00fc-xyz", headers={"content-type": f"text/plain; charset={charset}"})

    assert (await call(from_openapi(app, ["text"]), "text")).text == "\u00fc-xyz"


async def test_a_text_is_decoded_by_its_charset() -> None:
    app = FastAPI()

    @app.get("/text", operation_id="text")
    async def text() -> Response:
        return Response(b"\xfc", headers={"content-type": "text/plain; charset=ISO-8859-1"})

    assert (await call(from_openapi(app, ["text"]), "text")).text == "\u00fc"


async def test_arguments_that_cannot_be_sent_are_refused_without_a_traceback(
    tools_of: Callable[..., ToolBox], caplog: pytest.LogCaptureFixture
) -> None:
    tools = tools_of("getPet", "renamePet", "sendForm")
    assert "GET /pets/{id}: the arguments make no valid URL" in (await call(tools, "getPet", id="x" * 70_000)).text
    half = {"x": "\ud800"}
    for result in (
        await call(tools, "renamePet", id=1, body=half),
        await call(tools, "sendForm", name=half, tags=[]),
        await call(tools, "getPet", id=half),
    ):
        assert "should be Unicode text, without halves of surrogate pairs" in result.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("scheme", "sent"),
    [
        ("bearer", {"headers": ("authorization", f"Bearer {SECRET}")}),
        ("basic", {"headers": ("authorization", "Basic czNjcmV0LVRva2VuLzEgMg==")}),
        ("inHeader", {"headers": ("x-key", SECRET)}),
        ("inQuery", {"query": "key=s3cret-Token%2F1%202"}),
        ("inCookie", {"headers": ("cookie", "key=s3cret-Token%2F1%202")}),
    ],
)
async def test_credentials_are_sent_for_their_scheme_alone_and_never_logged(
    tools_of: Callable[..., ToolBox], app: FastAPI, scheme: str, sent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tools = tools_of(f"with_{scheme}", "failing", credentials={scheme: SECRET})
    assert "key" not in str([tool.specification for tool in tools])
    await call(tools, f"with_{scheme}")
    for place, expected in sent.items():
        seen = app.state.seen[-1][place]
        assert seen == expected if place == "query" else seen[expected[0]] == expected[1]
    await call(tools, "failing")
    assert SECRET not in str(app.state.seen[-1])
    log = [record.getMessage() for record in caplog.records if not record.name.startswith("uvicorn")]
    assert len(log) > 1
    assert "s3cret" not in str(log)
    assert SECRET not in repr(list(tools))


async def test_errors_do_not_show_credentials(tools_of: Callable[..., ToolBox]) -> None:
    result = await call(tools_of("failing", headers={"X-Other": SECRET}), "failing")
    assert result.is_error
    assert "x-other" in result.text
    assert SECRET not in result.text


async def test_a_server_that_cannot_be_reached_is_an_error_without_secrets(app: FastAPI) -> None:
    tools = from_openapi(
        app.openapi(), ["with_inQuery"], base_url="http://127.0.0.1:9", credentials={"inQuery": SECRET}
    )
    result = await call(tools, "with_inQuery")
    assert result.text.startswith("GET /secure/inQuery failed: no response from 127.0.0.1:9: ")
    assert "s3cret" not in result.text


async def test_a_missing_credential_is_logged_and_an_unknown_scheme_refused(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    from_openapi(app, ["with_bearer"])
    assert "is configured for the security scheme 'bearer', which is needed by GET /secure/bearer" in caplog.text
    with pytest.raises(DefinitionError, match="no security scheme 'bearr'; it has 'bearer', 'basic'"):
        from_openapi(app, ["with_bearer"], credentials={"bearr": SECRET})
    with pytest.raises(DefinitionError, match="the credential of the security scheme 'inHeader' should be printable"):
        from_openapi(app, ["with_inHeader"], credentials={"inHeader": "a\nb"})


@pytest.mark.parametrize("name", ["X \u00e4", "X\r\nY: z", ""])
def test_invalid_names_of_headers_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="is not a header name"):
        from_openapi(document(), ["x"], headers={name: SECRET})
    components = {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": name}}}
    with pytest.raises(DefinitionError, match=r"'key' (has the invalid header|does not say where)"):
        from_openapi(document(components=components), ["x"], credentials={"key": SECRET})


async def test_keys_of_free_objects_cannot_replace_other_parameters() -> None:
    operation = {
        "parameters": [
            {"name": "filter", "in": "query", "schema": {"type": "object"}},
            {"name": "limit", "in": "query", "schema": {"type": "integer"}},
        ]
    }
    components = {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "the[key]"}}}
    content = document(operation, components=components, security=[{"key": []}])
    tools = from_openapi(content, ["x"], credentials={"key": SECRET})
    for name in ("limit", "the[key]"):
        result = await call(tools, "x", filter={name: "1"})
        assert "filter: should not have the name of another parameter as a key" in result.text


async def test_a_call_ends_in_time() -> None:
    app = FastAPI()

    @app.get("/slow", operation_id="slow")
    async def slow() -> None:
        await anyio.sleep_forever()

    result = await call(from_openapi(app, ["slow"], timeout_seconds=0.05), "slow")
    assert result.text == "GET /slow did not answer within 0.05 seconds; it may have been executed"


async def test_callers_do_not_share_cookies_of_the_api(tools_of: Callable[..., ToolBox]) -> None:
    tools = tools_of("setsCookie")
    async with running(tools):
        assert [(await call(tools, "setsCookie")).text for _ in range(2)] == ["nobody", "nobody"]


async def test_connections_are_kept_while_running() -> None:
    app = FastAPI()
    ports: list[Any] = []

    @app.get("/port", operation_id="port")
    async def port(request: Request) -> None:
        ports.append(request.client)

    with serving(app) as origin:
        tools = from_openapi(app.openapi(), ["port"], base_url=origin)
        async with running(tools):
            await call(tools, "port")
            await call(tools, "port")
    assert ports[0] == ports[1]


async def test_the_lifespan_of_an_application_runs_while_running() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        steps.append("begun")
        yield
        steps.append("ended")

    app = FastAPI(lifespan=lifespan)

    @app.get("/x", operation_id="x")
    async def x() -> None:
        steps.append("called")

    tools = from_openapi(app, ["x"])
    async with running(tools):
        await call(tools, "x")
    assert steps == ["begun", "called", "ended"]


async def test_tools_are_called_on_trio_too(app: FastAPI) -> None:
    async def work() -> str:
        return (await call(from_openapi(app, ["getPet"]), "getPet", id="1")).text

    found = await anyio.to_thread.run_sync(lambda: anyio.run(work, backend="trio"))
    assert json.loads(found) == {"id": "1", "fields": ""}


@pytest.mark.parametrize("path", ["/../admin", "/%2e%2e/admin", "/a?b", "/a#b", "/a\\b"])
def test_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(DefinitionError, match="must not have dot segments"):
        from_openapi(document(path=path), ["x"])


async def test_a_path_of_a_document_stays_on_the_host() -> None:
    result = await call(from_openapi(document(path="//evil.example/x"), ["x"]), "x")
    assert "no response from 127.0.0.1:9" in result.text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
)


@settings(max_examples=200)
@given(st.data())
def test_no_document_crashes_the_parser(shared_app: FastAPI, data: st.DataObject) -> None:
    content = json.loads(json.dumps(shared_app.openapi()))
    for _ in range(data.draw(st.integers(1, 3))):
        place, key = content, data.draw(st.sampled_from(sorted(content)))
        while isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 5)):
            place = place[key]
            key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        place[key] = data.draw(json_values | st.just({"$ref": "#/paths"}) | st.just({}))
    with suppress(DefinitionError):
        from_openapi(content, ["*"], base_url="http://127.0.0.1:9")
