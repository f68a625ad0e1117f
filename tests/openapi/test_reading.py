from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from bridge import DefinitionError
from bridge.openapi import reading
from bridge.openapi.reading import parse_document, read_document
from tests.openapi.documents import document
from tests.server.http_server import serving

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

YAML = b"""
openapi: 3.0.3
info: {title: T, version: 2024-01-01}
paths:
  /x:
    get:
      responses:
        200: {description: yes}
      parameters:
        - {name: country, in: query, schema: {type: string, enum: [NO, yes, "1"], default: NO, nullable: true}}
"""


def test_yaml_has_the_types_of_json() -> None:
    parsed = parse_document(YAML, "a.yaml")
    assert parsed["info"]["version"] == "2024-01-01"
    operation = parsed["paths"]["/x"]["get"]
    assert operation["responses"] == {"200": {"description": "yes"}}
    assert operation["parameters"][0]["schema"] == {
        "type": "string",
        "enum": ["NO", "yes", "1"],
        "default": "NO",
        "nullable": True,
    }


def test_files_and_mappings_are_read(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text("\ufeff" + json.dumps(document()), encoding="utf-8")
    assert read_document(file)[0] == read_document(str(file))[0] == read_document(MappingProxyType(document()))[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "is not valid JSON"),
        (b'{"a": NaN}', "is not valid JSON"),
        (b"a: [", "is neither JSON nor YAML"),
        (b"- 1", "it is no object"),
        (b"a: &a [*a]", "contains itself"),
        (b"a: " + b"[" * 50_000, "nested too deeply"),
        (b"a: !!python/object/apply:os.system [id]", "is neither JSON nor YAML"),
        (b"\xff\xfe\x00", "is neither JSON nor YAML"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "is not valid JSON|nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(text: bytes, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse_document(text, "x")


def test_aliases_share_what_they_name() -> None:
    parsed = parse_document(b"a: &a [x, {y: 1}]\nb: *a\nc: *a\n", "shared.yaml")
    assert parsed == {"a": ["x", {"y": 1}], "b": ["x", {"y": 1}], "c": ["x", {"y": 1}]}
    assert parsed["a"] is parsed["b"] is parsed["c"]


@pytest.mark.parametrize("text", [b"x", b"x" * 1_000_000], ids=["values", "characters"])
def test_aliases_that_multiply_are_refused_since_schemas_are_written_without_them(text: bytes) -> None:
    levels = range(1, 20 if len(text) == 1 else 4)
    lines = b"".join(b"l%d: &l%d [%s]\n" % (n, n, b",".join([b"*l%d" % (n - 1)] * 9)) for n in levels)
    with pytest.raises(DefinitionError, match="too many values"):
        parse_document(b"openapi: 3.1.0\nl0: &l0 [" + text + b"]\n" + lines, "bomb.yaml")


def test_missing_and_long_files_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DefinitionError, match="cannot be read: No such file"):
        read_document(tmp_path / "none.json")
    monkeypatch.setattr(reading, "MAX_DOCUMENT_BYTES", 10)
    (tmp_path / "long.json").write_text(json.dumps(document()))
    with pytest.raises(DefinitionError, match="is longer than"):
        read_document(tmp_path / "long.json")


def test_a_document_is_fetched_from_a_url_without_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: Request) -> JSONResponse:
        return JSONResponse(document())

    async def away(request: Request) -> RedirectResponse:
        return RedirectResponse("/openapi.json")

    app = Starlette(routes=[Route("/openapi.json", answer), Route("/away.json", away)])
    with serving(app) as origin:
        assert read_document(f"{origin}/openapi.json")[0] == document()
        with pytest.raises(DefinitionError, match="status 307; redirects are not followed"):
            read_document(f"{origin}/away.json")
        with pytest.raises(DefinitionError, match="status 404"):
            read_document(f"{origin}/none.json")
        monkeypatch.setattr(reading, "MAX_DOCUMENT_BYTES", 10)
        with pytest.raises(DefinitionError, match="is longer than"):
            read_document(f"{origin}/openapi.json")
    with pytest.raises(DefinitionError, match="cannot be fetched: ConnectError for 127"):
        read_document("http://user:password@127.0.0.1:9/openapi.json?key=secret")
