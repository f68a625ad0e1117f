"""Contents of another server, which a gateway passes on unchanged except for their URIs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.resources import ReceivedContents

URIS = st.sampled_from(["a://b", 'a://"b"', "a://é", "a://\\", "a://c/d"])
META = st.dictionaries(st.sampled_from(["uri", "x"]), st.sampled_from(["a://b", '"uri":"a://b"', 1]), max_size=2)
CONTENTS = st.lists(
    st.fixed_dictionaries(
        {"uri": URIS},
        optional={
            "text": st.sampled_from(['{"uri":"a://b"}', ',"uri":"a://b"', "\\u0075ri", "plain"]),
            "blob": st.just("AAAA"),
            "_meta": META,
            '"uri': st.just("a://b"),
        },
    ),
    max_size=3,
)
RESULTS = st.fixed_dictionaries(
    {"contents": CONTENTS},
    optional={"ttlMs": st.just(5), "cacheScope": st.just("public"), "resultType": st.just("complete"), "_meta": META},
).flatmap(lambda result: st.permutations(sorted(result)).map(lambda keys: {key: result[key] for key in keys}))


def local(uri: str) -> str:
    return f"docs+{uri}"


def compact(value: object, *, ascii_only: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)


@given(result=RESULTS, is_ascii=st.booleans(), escapes=st.booleans())
def test_other_uris_are_those_of_the_contents_and_no_others(
    result: dict[str, Any], *, is_ascii: bool, escapes: bool
) -> None:
    text = compact(result, ascii_only=is_ascii)
    if escapes:
        text = text.replace('{"uri"', '{"\\u0075ri"')
    wire = ReceivedContents.of(json.loads(text), text.encode()).with_uris(local).passed_on()
    expected: dict[str, Any] = {
        "contents": [{**each, "uri": local(each["uri"])} for each in result["contents"]],
    }
    if result.get("_meta"):
        expected["_meta"] = result["_meta"]
    assert json.loads(wire.written()) == expected


@pytest.mark.parametrize(
    "item",
    [
        '{"uri" :"b://evil","text":"","uri":"a://b"}',
        '{"uri":"a://b","text":"","uri" :"a://b"}',
        '{"uri"\t:"b://evil","uri":"a://b","text":""}',
        '{"\\u0075ri":"b://evil","uri":"a://b","text":""}',
        '{"u\\u0072i":"b://evil","uri":"a://b","text":""}',
    ],
)
def test_no_other_uri_stands_beside_the_one_that_was_read(item: str) -> None:
    text = f'{{"contents":[{item}]}}'
    wire = ReceivedContents.of(json.loads(text), text.encode()).with_uris(local).passed_on()
    assert wire.written() == b'{"contents":[{"uri":"docs+a://b","text":""}]}'


@pytest.mark.parametrize("ending", ["", ',"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{}'])
@pytest.mark.parametrize("beginning", ["", '"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n"}},'])
def test_large_contents_are_not_written_anew(beginning: str, ending: str) -> None:
    if beginning and "_meta" in ending:
        ending = ending.replace(',"_meta":{}', "")
    body = '"contents":[{"uri":"%s","mimeType":"a/b","blob":"AAAA","x":1.50}]'
    text = f"{{{beginning}{body % 'a://b'}{ending}}}"
    wire = ReceivedContents.of(json.loads(text), text.encode()).with_uris(local).passed_on()
    assert wire.written() == f"{{{body % 'docs+a://b'}}}".encode()
