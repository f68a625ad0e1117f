"""Headers that repeat arguments, as in the official SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared import inbound

from bridge.protocol.messages import ProtocolError
from bridge.protocol.param_headers import (
    check_param_headers,
    checked_headers,
    decoded_header,
    header_names,
    header_value,
    param_headers,
)
from bridge.protocol.versions import HEADER_MISMATCH

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = st.sampled_from(["string", "integer", "boolean", "number", "object", ["string"], None])
NAMES = st.sampled_from(["Region", "region", "X-Y", "", "a b", 5, None])
LEAVES = st.builds(lambda kind, name: {"type": kind} | ({} if name is None else {"x-mcp-header": name}), KINDS, NAMES)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda each: {"properties": each}),
        st.dictionaries(
            st.sampled_from(["items", "not", "$defs", "default", "anyOf"]),
            st.one_of(inner, st.lists(inner)),
            max_size=2,
        ),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=5,
)


@given(schema=SCHEMAS, arguments=st.dictionaries(st.sampled_from("abc"), VALUES))
def test_headers_are_those_of_the_sdk(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    if inbound.find_invalid_x_mcp_header(schema) is not None:
        with pytest.raises(ValueError, match="x-mcp-header"):
            header_names(schema)
        return
    names = header_names(schema)
    assert names == inbound.x_mcp_header_map(schema)
    assert param_headers(names, arguments) == inbound.mcp_param_headers(names, arguments)


def test_an_integer_of_very_many_digits_has_no_header() -> None:
    assert param_headers({("a",): "A"}, {"a": 10**5000}) == {}


@given(st.one_of(st.text(), st.just("=?base64?x?="), st.just(" a")))
def test_a_value_can_be_read_again(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    assert header_value(value) == inbound.encode_header_value(value)
    assert inbound.decode_header_value(header_value(value)) == value


TEXTS = st.one_of(
    st.sampled_from(
        ["42", "42.0", "-0", "00", "4.5", "1e3", "true", "False", "", " ", "=?base64?YQ==?=", "=?base64?YR==?="]
    ),
    st.integers().map(str),
    st.text(),
)


DECLARING = st.fixed_dictionaries(
    {
        "properties": st.fixed_dictionaries(
            {
                "a": st.builds(
                    lambda kind: {"type": kind, "x-mcp-header": "Region"},
                    st.sampled_from(["string", "integer", "boolean"]),
                ),
                "b": st.just({"properties": {"c": {"type": "integer", "x-mcp-header": "X-Y"}}}),
            }
        )
    }
)
"""Schemas with valid declarations."""


def refusal(schema: Any, arguments: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> int | None:
    """Return the code of the error; None for a call that is accepted."""
    try:
        check_param_headers(checked_headers(schema), arguments, headers)
    except ProtocolError as error:
        return error.code
    return None


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """Schema, arguments and headers: those of a client, of which some are replaced, added or removed."""
    schema = draw(SCHEMAS | DECLARING)
    arguments = draw(st.dictionaries(st.sampled_from("abc"), VALUES))
    headers = {}
    if inbound.find_invalid_x_mcp_header(schema) is None:
        headers = inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)
    changes = draw(st.dictionaries(st.sampled_from(["Mcp-Param-Region", "Mcp-Param-X-Y"]), st.none() | TEXTS))
    for name, text in changes.items():
        headers = {each: value for each, value in headers.items() if each.lower() != name.lower()}
        if text is not None:
            headers[name] = text if draw(st.booleans()) and text.isascii() else inbound.encode_header_value(text)
    return schema, arguments, {name.lower(): value for name, value in headers.items()}


@given(calls())
@example(({"properties": {"a": {"type": "integer", "x-mcp-header": "R"}}}, {"a": 42}, {"mcp-param-r": "42.0"}))
@example(({"properties": {"a": {"type": "integer", "x-mcp-header": "R"}}}, {"a": 42.0}, {"mcp-param-r": "042"}))
@example(({"properties": {"a": {"type": "integer", "x-mcp-header": "R"}}}, {"a": 42}, {"mcp-param-r": "9" * 5000}))
@example(({"properties": {"a": {"type": "integer", "x-mcp-header": "R"}}}, {"a": 10**5000}, {"mcp-param-r": "1"}))
@example(({"properties": {"a": {"type": "integer", "x-mcp-header": "R"}}}, {"a": 4.5}, {"mcp-param-r": "4.5"}))
@example(({"properties": {"a": {"type": "integer", "x-mcp-header": "R"}}}, {"a": 1e400}, {"mcp-param-r": "inf"}))
@example(({"properties": {"a": {"type": "integer", "x-mcp-header": "R"}}}, {"a": True}, {"mcp-param-r": "1"}))
@example(({"properties": {"a": {"type": "integer", "x-mcp-header": "R"}}}, {"a": "42"}, {"mcp-param-r": "42.0"}))
@example(({"properties": {"a": {"type": "string", "x-mcp-header": "R"}}}, {"a": 42}, {"mcp-param-r": "42.0"}))
@example(
    ({"properties": {"a": {"type": "string", "x-mcp-header": "R"}}}, {"a": "a"}, {"mcp-param-r": "=?base64?YR==?="})
)
def test_calls_are_accepted_and_refused_as_by_the_sdk(call: tuple[Any, dict[str, Any], dict[str, str]]) -> None:
    schema, arguments, headers = call
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    expected = inbound.validate_mcp_param_headers(schema, arguments, headers)
    assert refusal(schema, arguments, raw) == (None if expected is None else expected.code)


@given(SCHEMAS, st.dictionaries(st.sampled_from("abc"), VALUES))
def test_the_headers_of_our_client_are_accepted(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    try:
        names = header_names(schema)
    except ValueError:
        return
    headers = {name.lower().encode(): text.encode() for name, text in param_headers(names, arguments).items()}
    check_param_headers(checked_headers(schema), arguments, headers)


REGION = checked_headers({"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}})


@pytest.mark.parametrize(
    ("arguments", "header", "problem"),
    [
        ({"region": "eu"}, None, "the header Mcp-Param-Region of the argument 'region' is missing"),
        ({}, b"eu", "the request has the header Mcp-Param-Region, but not the argument 'region'"),
        ({"region": None}, b"", "the request has the header Mcp-Param-Region, but not the argument 'region'"),
        ({"region": "eu"}, b"=?base64?!?=", "the header Mcp-Param-Region is not valid base64"),
        ({"region": "eu"}, b"us", "the header Mcp-Param-Region does not have the value of the argument 'region'"),
        ({"region": ["eu"]}, b"eu", "the header Mcp-Param-Region does not have the value of the argument 'region'"),
        ({"region": "\ud800"}, b"eu", "the header Mcp-Param-Region does not have the value of the argument 'region'"),
    ],
)
def test_a_mismatch_is_explained(arguments: dict[str, Any], header: bytes | None, problem: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        check_param_headers(REGION, arguments, {} if header is None else {b"mcp-param-region": header})
    assert (refused.value.code, refused.value.message) == (HEADER_MISMATCH, problem)


@pytest.mark.parametrize("arguments", [{}, {"region": None}, {"region": ["eu"]}, {"region": "\ud800"}])
def test_an_argument_that_no_header_can_have_needs_none(arguments: dict[str, Any]) -> None:
    check_param_headers(REGION, arguments, {})


@given(st.one_of(TEXTS, st.from_regex(r"=\?base64\?[A-Za-z0-9+/= ]{0,8}\?=", fullmatch=True)))
def test_values_are_decoded_as_by_the_sdk(value: str) -> None:
    assert decoded_header(value.encode()) == inbound.decode_header_value(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"add", "add"),
        (b"=?base64?w7w=?=", "ü"),
        (b"=?base64?w7x=?=", None),  # a bit after the last byte
        (b"=?base64?/w==?=", None),  # not UTF-8
        (b"=?base64??=", ""),
        ("ü".encode(), "ü"),
        (b"a\xff", "a\udcff"),
    ],
)
def test_a_value_is_decoded(value: bytes, text: str | None) -> None:
    assert decoded_header(value) == text
