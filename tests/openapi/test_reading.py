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
        (b"- 1", "it is not an object"),
        (b"a: &a [*a]", "contains itself"),
        (b"a: " + b"[" * 50_000, "nested too deeply"),
        (b"a: *none", "the alias 'none' names nothing"),
        (b"a: 1\n--- b", "there are several documents"),
        (b"? [a]\n: b", "a key is not text"),
        (b"a: !!binary YQ==", "the tag 'tag:yaml.org,2002:binary' is of no value of JSON"),
        (b"a: !!int x", "does not have the tag"),
        (b"a: .inf", "the number '.inf' is of no value of JSON"),
        (b"a: 1e999", "the number '1e999' is of no value of JSON"),
        (b"a: {<<: b}", "merge key"),
        (b"a: " + b"9" * 1_000_000, "a number has 1,000,000 digits"),
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


def test_scalars_have_the_types_of_the_core_schema() -> None:
    text = b"""
        texts: [1:30, 190:20:30, 1_000, 0b1, yes, No, on, 2001-01-01, =, '1', !!str 2, ! 3, "true", +, ., -.e3]
        integers: [0, -1, +2, 010, 0o17, 0xff, !!int "5"]
        floats: [1.5, .5, 5., 1e3, -1.2E-3, !!float 1]
        nulls: [~, null, NULL, ]
        truths: [true, False]
    """
    parsed = parse_document(text, "a.yaml")
    assert parsed["texts"][:9] == ["1:30", "190:20:30", "1_000", "0b1", "yes", "No", "on", "2001-01-01", "="]
    assert parsed["texts"][9:] == ["1", "2", "3", "true", "+", ".", "-.e3"]
    assert parsed["integers"] == [0, -1, 2, 10, 15, 255, 5]
    assert parsed["floats"] == [1.5, 0.5, 5.0, 1000.0, -0.0012, 1.0]
    assert parsed["nulls"] == [None, None, None]
    assert parsed["truths"] == [True, False]


def test_keys_are_texts_as_they_are_written() -> None:
    text = b"--- {200: a, 1.10: b, yes: c, null: d, 0x10: e, &k key: f, other: *k, *k : g, '<<': h}"
    assert parse_document(text, "a.yaml") == {
        "200": "a",
        "1.10": "b",
        "yes": "c",
        "null": "d",
        "0x10": "e",
        "key": "g",
        "other": "key",
        "<<": "h",
    }


def test_merge_keys_add_what_an_object_does_not_have() -> None:
    text = b"""
        first: &first {a: 1, b: 1}
        second: &second {<<: *first, b: 2, c: 2}
        one: {b: 3, <<: *first}
        several: {<<: [*second, *first, {d: 4}], e: 5}
    """
    parsed = parse_document(text, "a.yaml")
    assert parsed["second"] == {"a": 1, "b": 2, "c": 2}
    assert parsed["one"] == {"a": 1, "b": 3}
    assert parsed["several"] == {"a": 1, "b": 2, "c": 2, "d": 4, "e": 5}


MERGES = b"l0: &l0 {a: 1}\n" + b"".join(
    b"l%d: &l%d {<<: [%s]}\n" % (n, n, b",".join([b"*l%d" % (n - 1)] * 9)) for n in range(1, 12)
)
"""Each object merges the one before nine times, whose merge keys PyYAML merges again each time."""
WIDE = (
    b"wide: &wide {" + b",".join(b"k%d: 1" % n for n in range(2_000)) + b"}\nall: ["
    + b",".join([b"{<<: *wide}"] * 2_000) + b"]"
)  # fmt: skip
"""Four million values, by two thousand merge keys."""


def test_nested_merge_keys_take_linear_time() -> None:
    assert parse_document(MERGES, "a.yaml")["l11"] == {"a": 1}


def test_merge_keys_that_multiply_are_refused() -> None:
    with pytest.raises(DefinitionError, match="too many values"):
        parse_document(WIDE, "a.yaml")


def test_numbers_of_many_parts_are_texts() -> None:
    text = b"1" + b":59" * 300_000
    assert parse_document(b"a: " + text, "a.yaml") == {"a": text.decode()}


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
