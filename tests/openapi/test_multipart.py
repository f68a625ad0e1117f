"""Bodies of forms with files (``multipart/form-data``)."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI, Request

from bridge import from_openapi
from bridge.openapi.parameters import inputs_of
from tests.openapi.conftest import call
from tests.openapi.documents import body_of, document, parsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge import ToolBox

pytestmark = pytest.mark.anyio

ANY_FILE = "application/octet-stream"
MULTIPART = "multipart/form-data"
INJECTION = 'a"\r\nX: y\r\n\r\n--ü'


async def test_fields_and_files_are_sent(tools_of: Callable[..., ToolBox]) -> None:
    tools, photo, page = tools_of("upload"), b"\x89PNG\r\n--", b""
    pages = [b64encode(each).decode() for each in (page, photo)]
    sent = await call(
        tools, "upload", title=INJECTION, photo=b64encode(photo).decode(), pages=pages, cover=None, numbers=[1, 2]
    )
    files = [["photo", ANY_FILE, photo.hex()], ["pages", ANY_FILE, ""], ["pages", ANY_FILE, photo.hex()]]
    assert json.loads(sent.text) == [INJECTION, [1, 2], files]


@pytest.mark.parametrize("wrong", ["no base64", 5, "\ud800", "ü", {"a": 1}])
async def test_a_file_that_is_not_base64_is_refused(tools_of: Callable[..., ToolBox], wrong: Any) -> None:
    refused = await call(tools_of("upload"), "upload", title="a", photo=wrong)
    assert refused.is_error
    assert "photo: should be the content of a file in base64" in refused.text


async def test_names_and_values_stay_in_their_parts() -> None:
    app = FastAPI()

    @app.post("/x")
    async def parts(request: Request) -> list[tuple[str, Any]]:
        async with request.form() as form:
            return [(name, value if isinstance(value, str) else value.filename) for name, value in form.multi_items()]

    names = {INJECTION: {"type": "string"}, "file" + INJECTION: {"format": "binary"}, "point": {"type": "object"}}
    app.openapi = lambda: document(body_of({"properties": names}, MULTIPART), method="post")  # type: ignore[method-assign]  # FastAPI's way
    tools = from_openapi(app, ["x"])
    arguments = dict(
        zip(next(iter(tools)).specification.parameters["properties"], ["1", "Mg==", {"a": 1}], strict=True)
    )
    escaped = INJECTION.replace('"', "%22").replace("\r\n", "%0D%0A")
    assert json.loads((await call(tools, "x", **arguments)).text) == [
        [escaped, "1"],
        ["file" + escaped, "file" + escaped],
        ["point", '{"a":1}'],
    ]
    assert json.loads((await call(tools, "x")).text) == []


def test_files_are_arguments_in_base64() -> None:
    properties = {
        "old": {"type": "string", "format": "binary", "description": "Of OpenAPI 3.0."},
        "new": {"contentMediaType": "image/png"},
        "odd": {"contentMediaType": "image/png\r\nX: y"},
        "many": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "none": {"anyOf": [{"type": "string", "format": "binary"}, {"type": "null"}]},
        "encoded": {"contentMediaType": "image/png", "contentEncoding": "base64"},
        "field": {"type": "array", "items": {"type": "string"}},
    }
    api = parsed(document(body_of({"properties": properties}, MULTIPART), method="post"))
    found = inputs_of(api, api.operations[0], ())
    base64 = {"type": "string", "contentEncoding": "base64"}
    assert {each.name: (each.file_type, each.schema) for each in found.parameters} == {
        "old": (ANY_FILE, base64 | {"description": "Of OpenAPI 3.0."}),
        "new": ("image/png", {"contentMediaType": "image/png", "contentEncoding": "base64"}),
        "odd": (ANY_FILE, {"contentMediaType": "image/png\r\nX: y", "contentEncoding": "base64"}),
        "many": (ANY_FILE, {"type": "array", "items": base64}),
        "none": (ANY_FILE, {"anyOf": [base64, {"type": "null"}]}),
        "encoded": (None, properties["encoded"]),
        "field": (None, properties["field"]),
    }
