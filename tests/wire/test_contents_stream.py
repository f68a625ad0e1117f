"""Contents that are passed on while they are received: any text in any pieces, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from bridge.errors import WireError
from bridge.types import ValueBounds
from bridge.wire.contents_stream import (
    MAX_DEPTH,
    MAX_KEPT_BYTES,
    MAX_NAME_BYTES,
    MAX_NUMBER_BYTES,
    ContentsRewriter,
    StreamedContents,
)

BOUNDS = ValueBounds(containers=1000, entries=2000)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
metas = st.dictionaries(texts | st.just("uri"), values, max_size=3)
items = st.fixed_dictionaries(
    {"uri": texts},
    optional={"mimeType": texts | st.none(), "_meta": metas, "size": values, "blob": texts | st.just("QUJD" * 2000)},
).flatmap(lambda item: st.just(item) if "blob" in item else texts.map(lambda text: {**item, "text": text}))
members = st.dictionaries(st.sampled_from(["_meta", "resultType", "ttlMs", "more"]), values, max_size=3)
contents = st.lists(items, max_size=3)


def local(uri: str) -> str:
    return f"here+{uri}"


def rewriter() -> ContentsRewriter:
    return ContentsRewriter(local, BOUNDS)


def passed_on(*pieces: bytes) -> tuple[bytes, Any]:
    """The contents that are passed on, and the rest of the message."""
    reading = rewriter()
    return b"".join([reading.feed(piece) for piece in pieces]), reading.finish()


def message(result: Any, **others: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "result": result} | others


@given(st.data(), contents, members, members, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_any_contents_in_any_pieces_are_those_of_the_message_with_other_uris(
    data: st.DataObject, contents: Any, before: Any, after: Any, ascii_only: bool, indent: Any
) -> None:
    whole = message({**before, "contents": contents, **{key: after[key] for key in after.keys() - before.keys()}})
    if data.draw(st.booleans()):
        whole = dict(reversed(whole.items()))
    text = json.dumps(whole, ensure_ascii=ascii_only, indent=indent).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    passed, rest = passed_on(*(text[start:end] for start, end in pairwise([0, *cuts, len(text)])))
    assert from_json(passed + b"}") == {"contents": [{**each, "uri": local(each["uri"])} for each in contents]}
    assert rest == {**whole, "result": {**whole["result"], "contents": []}}
    assert b"\n" not in passed
    assert b"\r" not in passed


@given(st.data(), contents, st.binary(max_size=3))
def test_any_change_of_a_text_passes_on_json_or_is_refused(data: st.DataObject, contents: Any, other: bytes) -> None:
    text = to_json(message({"contents": contents, "resultType": "complete"}))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    text = text[:start] + other + text[end:]
    try:
        passed, rest = passed_on(text)
    except WireError:
        return
    if not passed:
        assert rest == json.loads(text)
    else:
        assert rest == {**json.loads(text), "result": rest["result"]}
        assert len(from_json(passed + b"}")["contents"]) == len(json.loads(text)["result"]["contents"])


@given(st.lists(st.sampled_from([*(b'"\\u{}[]:,tn0dDc9/ '.decode()), "\\ud83d\\ude00", "\n", "é"]), max_size=40))
def test_a_string_is_refused_as_by_a_parser(pieces: list[str]) -> None:
    string = "".join(pieces)
    for filler in ("", "x" * 3000):
        text = b'{"result":{"contents":[{"uri":"a","text":"%b"}]}}' % (filler + string).encode()
        try:
            expected = from_json(text)["result"]["contents"][0] | {"uri": "here+a"}
        except (ValueError, KeyError, TypeError):
            expected = None
        for parts in ([text], [text[each : each + 1] for each in range(len(text))]):
            try:
                passed, _ = passed_on(*parts)
            except WireError:
                assert expected is None
            else:
                assert from_json(passed + b"}") == {"contents": [expected]}


ITEM = b'{"uri":"a","text":"b"}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(b'{"result":{"contents":[%b]}} {"id":2}' % ITEM, "malformed", id="a second message"),
        pytest.param(b'{"result":{"contents":[%b]},"result":{}}' % ITEM, "two results", id="a second result"),
        pytest.param(b'{"result":{"contents":[],"contents":[]}}', "twice", id="contents twice"),
        pytest.param(b'{"result":{"contents":[],"\\u0063ontents":[]}}', "twice", id="contents twice, escaped"),
        pytest.param(b'{"result":{"contents":[{"uri":"a","text":"b\nc"}]}}', "not JSON", id="a line break"),
        pytest.param(b'{"result":{"contents":[{"uri":"a\rb","text":""}]}}', "not JSON", id="a line break in a URI"),
        pytest.param(b'{"result":{"contents":[{"uri":"a","text":"\xff"}]}}', "UTF-8", id="no UTF-8"),
        pytest.param(b'{"result":{"contents":[{"uri":"a","text":"\xed\xa0\x80"}]}}', "UTF-8", id="a surrogate"),
        pytest.param(
            b'{"result":{"contents":[{"uri":"a","text":"\\ud800 and more"}]}}', "not JSON", id="half of a pair"
        ),
        pytest.param(b'{"result":{"contents":[{"uri":"a"}]}}', "neither text nor blob", id="no text"),
        pytest.param(b'{"result":{"contents":[{"text":"a"}]}}', "no URI", id="no URI"),
        pytest.param(b'{"result":{"contents":[{"uri":1,"text":"a"}]}}', "malformed", id="a URI that is no text"),
        pytest.param(b'{"result":{"contents":[{"text":1}]}}', "malformed", id="a text that is no text"),
        pytest.param(b'{"result":{"contents":[{"mimeType":1}]}}', "malformed", id="a type that is no text"),
        pytest.param(b'{"result":{"contents":["a"]}}', "malformed", id="contents that are no object"),
        pytest.param(b'{"result":{"contents":[%b,]}}' % ITEM, "malformed", id="a trailing comma"),
        pytest.param(b'{"result":{"contents":[%b %b]}}' % (ITEM, ITEM), "malformed", id="no comma"),
        pytest.param(b'{"result":{"contents":[{"uri":"a","text":"b","c":01}]}}', "not JSON", id="a malformed number"),
        pytest.param(b'{"result":{"contents":[{"uri":"a","text":"b","c":NaN}]}}', "not JSON", id="no number"),
        pytest.param(b'{"result":{"contents":[%b}}' % ITEM, "malformed", id="another bracket"),
        pytest.param(b'{"result":{"contents":[%b' % ITEM, "before it is complete", id="an end too early"),
        pytest.param(b'{"result":{"contents":[{"uri":"a","text":"b', "before it is complete", id="an end in a string"),
        pytest.param(b'{"result":{"contents":[]}}\xc3', "not JSON", id="an end in a character"),
        pytest.param(b'[{"result":{"contents":[]}}]', "malformed", id="a batch"),
        pytest.param(b"\x00", "not JSON", id="no JSON"),
        pytest.param(
            b'{"result":{"contents":[{"_meta":{"a":%b' % (b"[" * MAX_DEPTH), "within each other", id="too deep"
        ),
        pytest.param(
            b'{"result":{"contents":[%b' % (b'{"uri":"a","text":""},' * 1000), "too many values", id="too many values"
        ),
        pytest.param(b'{"a":"%b"}' % (b"x" * MAX_KEPT_BYTES), "beside its contents", id="too much beside the contents"),
        pytest.param(b'{"result":{"contents":[{"uri":"%b' % (b"x" * MAX_NAME_BYTES), "too long", id="a URI too long"),
        pytest.param(b'{"result":{"contents":[{"%b' % (b"x" * MAX_NAME_BYTES), "too long", id="a name too long"),
        pytest.param(b'{"a":%b' % (b"1" * MAX_NAME_BYTES * 2), "too long", id="a number too long"),
        pytest.param(
            b'{"result":{"contents":[{"a":%b}]}}' % (b"1" * (MAX_NUMBER_BYTES + 1)),
            "too long",
            id="a number in contents too long",
        ),
    ],
)
def test_hostile_text_is_refused(text: bytes, why: str) -> None:
    for parts in ([text], [text[each : each + 100] for each in range(0, len(text), 100)]):
        with pytest.raises(WireError, match=why):
            passed_on(*parts)


def test_what_was_read_before_the_contents_is_known_when_they_begin() -> None:
    reading = rewriter()
    assert reading.feed(b'{"id":7,"result":{"resultType":"complete","contents"') == b""
    assert reading.begun() == {"id": 7, "result": {"resultType": "complete"}}
    assert reading.feed(b":[{") == b'{"contents":[{'
    assert reading.has_begun
    assert reading.begun() == {"id": 7, "result": {"resultType": "complete", "contents": []}}


def test_a_result_whose_contents_were_passed_on_is_what_follows_them() -> None:
    result = StreamedContents.of({"contents": [], "ttlMs": 5, "_meta": {"a": 1}, "resultType": "complete"})
    assert result.with_uris(local) is result
    passed = result.passed_on()
    assert passed.written() == b',"_meta":{"a":1}}'
    assert StreamedContents.of({"contents": []}).passed_on().written() == b"}"
