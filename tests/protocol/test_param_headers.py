"""Headers that repeat arguments, as in the official SDK."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from bridge.protocol.param_headers import header_names, header_value, param_headers

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
