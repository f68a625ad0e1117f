"""Envelopes: accepted and refused as by the official SDK."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp_types import ClientCapabilities, Implementation, LoggingLevel, RequestParams
from pydantic import TypeAdapter, ValidationError

from bridge.protocol.envelope import (
    ModernEnvelopes,
    agreed_version,
    capabilities_in,
    check_capabilities,
    check_implementation,
    check_meta,
    client_name,
)
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    LATEST_MODERN_VERSION,
    LOG_LEVEL_KEY,
    PROTOCOL_VERSION_KEY,
    UNSUPPORTED_VERSION,
)

VERSION = LATEST_MODERN_VERSION
MINIMAL: dict[str, Any] = {PROTOCOL_VERSION_KEY: VERSION, CAPABILITIES_KEY: {}}
JSON: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, 1.5, "text", [], {}])
TEXT = st.none() | st.text() | st.sampled_from([7, [], {}])
CAPABILITIES = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("roots", "sampling", "elicitation", "tasks"), st.sampled_from([None, {}, "text", []])),
            "experimental": st.sampled_from([None, {}, {"x": {}}, "text", []]),
            "extensions": st.sampled_from([None, {}, {"x": {}}, "text", []]),
            "unknown": JSON,
        },
    ),
)
PROGRAM = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {},
        optional={"name": TEXT, "version": TEXT, "title": TEXT, "description": TEXT, "websiteUrl": TEXT, "other": JSON},
    ),
)
META = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {},
        optional={
            PROTOCOL_VERSION_KEY: st.one_of(st.sampled_from([VERSION, "2025-11-25", "", None, 7]), st.text()),
            CAPABILITIES_KEY: CAPABILITIES,
            CLIENT_INFO_KEY: PROGRAM,
            LOG_LEVEL_KEY: st.sampled_from([None, "debug", "emergency", "loud", 3, []]),
            "progressToken": st.sampled_from([7, "7", "", None, [], {}]),
            "traceparent": st.text(),
        },
    ),
    st.fixed_dictionaries(
        {PROTOCOL_VERSION_KEY: st.just(VERSION), CAPABILITIES_KEY: CAPABILITIES},
        optional={
            CLIENT_INFO_KEY: PROGRAM,
            LOG_LEVEL_KEY: st.sampled_from(["debug", "loud"]),
            "progressToken": st.sampled_from([7, "7", []]),
        },
    ),
)


def refusal(envelopes: ModernEnvelopes, meta: Any) -> int | None:
    """Return the code of the error; None for an envelope that is accepted."""
    try:
        envelopes.check(meta)
    except ProtocolError as error:
        return error.code
    return None


def refusal_of_the_sdk(meta: Any) -> int | None:
    """The same by the SDK: first its ladder, then its models."""
    route = classify_inbound_request({"method": "tools/list", "params": {"_meta": meta}})
    if isinstance(route, InboundLadderRejection):
        return route.code
    models: list[tuple[Any, Any]] = [(ClientCapabilities, meta[CAPABILITIES_KEY]), (RequestParams, {"_meta": meta})]
    if meta.get(CLIENT_INFO_KEY) is not None:
        models.append((Implementation, meta[CLIENT_INFO_KEY]))
    if meta.get(LOG_LEVEL_KEY) is not None:
        models.append((LoggingLevel, meta[LOG_LEVEL_KEY]))
    try:
        for model, value in models:
            TypeAdapter(model).validate_python(value, by_name=False)
    except ValidationError:
        return INVALID_PARAMS
    return None


@given(META)
@example(MINIMAL)
@example({**MINIMAL, "progressToken": None})
@example({PROTOCOL_VERSION_KEY: "2025-11-25", CAPABILITIES_KEY: "text", "progressToken": []})
def test_envelopes_are_accepted_and_refused_as_by_the_sdk(meta: Any) -> None:
    assert refusal(ModernEnvelopes(), meta) == refusal_of_the_sdk(meta)


@given(st.lists(META, max_size=6))
@example([MINIMAL, {**MINIMAL, "progressToken": []}, {**MINIMAL, "progressToken": 1}, MINIMAL, None])
@example([MINIMAL, {**MINIMAL, PROTOCOL_VERSION_KEY: "2025-11-25"}, {**MINIMAL, CAPABILITIES_KEY: {"roots": True}}])
def test_envelopes_are_checked_alike_after_others(metas: list[Any]) -> None:
    envelopes = ModernEnvelopes()
    assert [refusal(envelopes, meta) for meta in metas] == [refusal(ModernEnvelopes(), meta) for meta in metas]


@pytest.mark.parametrize(
    ("meta", "code", "message"),
    [
        (
            None,
            INVALID_PARAMS,
            (
                f"params._meta must be an object carrying the required {PROTOCOL_VERSION_KEY!r} and "
                f"{CAPABILITIES_KEY!r} envelope keys"
            ),
        ),
        (
            {},
            INVALID_PARAMS,
            f"params._meta is missing the required envelope key(s): {PROTOCOL_VERSION_KEY}, {CAPABILITIES_KEY}",
        ),
        ({**MINIMAL, PROTOCOL_VERSION_KEY: 7}, INVALID_PARAMS, "the protocol-version envelope value must be a string"),
        ({**MINIMAL, PROTOCOL_VERSION_KEY: "2025-11-25"}, UNSUPPORTED_VERSION, "Unsupported protocol version"),
        (
            {**MINIMAL, CAPABILITIES_KEY: None},
            INVALID_PARAMS,
            "Invalid request parameters: the client's capabilities must be an object",
        ),
        (
            {**MINIMAL, CAPABILITIES_KEY: {"roots": True}},
            INVALID_PARAMS,
            "Invalid request parameters: the client's capability 'roots' must be an object",
        ),
        (
            {**MINIMAL, CLIENT_INFO_KEY: {"name": "x"}},
            INVALID_PARAMS,
            "Invalid request parameters: 'version' of 'clientInfo' must be text",
        ),
        (
            {**MINIMAL, CLIENT_INFO_KEY: {"name": "x", "version": "1", "title": 7}},
            INVALID_PARAMS,
            "Invalid request parameters: 'title' of 'clientInfo' must be text",
        ),
        (
            {**MINIMAL, "progressToken": 1.5},
            INVALID_PARAMS,
            "Invalid request parameters: 'progressToken' must be an integer or text",
        ),
        (
            {**MINIMAL, LOG_LEVEL_KEY: "loud"},
            INVALID_PARAMS,
            (
                f"Invalid request parameters: {LOG_LEVEL_KEY!r} must be one of "
                "debug, info, notice, warning, error, critical, alert, emergency"
            ),
        ),
    ],
)
def test_a_refusal_is_explained(meta: Any, code: int, message: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        ModernEnvelopes().check(meta)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_the_refusal_of_a_version_names_those_that_are_supported() -> None:
    meta = {**MINIMAL, PROTOCOL_VERSION_KEY: "2099-01-01"}
    with pytest.raises(ProtocolError) as refused:
        ModernEnvelopes().check(meta)
    rejected = classify_inbound_request({"params": {"_meta": meta}})
    assert isinstance(rejected, InboundLadderRejection)
    assert (refused.value.message, refused.value.data) == (rejected.message, rejected.data)


# --- the handshake era -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", [None, {}, {"progressToken": 7}, {"progressToken": "7"}, {CAPABILITIES_KEY: 7}])
def test_meta_of_the_handshake_era_is_accepted(meta: Any) -> None:
    check_meta(meta)


@pytest.mark.parametrize("meta", [[], "text", 7, {"progressToken": None}, {"progressToken": True}])
def test_malformed_meta_of_the_handshake_era_is_refused(meta: Any) -> None:
    with pytest.raises(ProtocolError) as refused:
        check_meta(meta)
    assert refused.value.code == INVALID_PARAMS


@pytest.mark.parametrize("value", [None, [], {"sampling": 7}, {"extensions": []}])
def test_malformed_capabilities_are_refused(value: Any) -> None:
    with pytest.raises(ProtocolError, match="the client's capabilit"):
        check_capabilities(value)


@pytest.mark.parametrize("value", [None, [], {}, {"name": "x"}, {"name": 7, "version": "1"}])
def test_a_malformed_program_is_refused(value: Any) -> None:
    with pytest.raises(ProtocolError, match="'clientInfo'"):
        check_implementation(value, "clientInfo")


def test_capabilities_that_are_null_are_none() -> None:
    assert capabilities_in({"capabilities": {"roots": None, "sampling": {}, "x": 0}}) == {"sampling": {}, "x": 0}


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_a_version_that_both_have_is_agreed_on(version: str) -> None:
    assert agreed_version(version) == version


@pytest.mark.parametrize("requested", [LATEST_MODERN_VERSION, "2099-01-01", "", None, 7])
def test_the_latest_version_of_the_era_is_offered_for_any_other(requested: object) -> None:
    assert agreed_version(requested) == "2025-11-25"


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"clientInfo": {"name": "x", "version": "1"}}, "x"),
        ({"_meta": {CLIENT_INFO_KEY: {"name": "y"}}}, "y"),
        ({"clientInfo": {"name": "x"}, "_meta": {CLIENT_INFO_KEY: {"name": "y"}}}, "x"),
        ({}, None),
        ({"clientInfo": []}, None),
        ({"clientInfo": {"name": ""}}, None),
        ({"clientInfo": {"name": 7}}, None),
        ({"_meta": []}, None),
        ({"_meta": {CLIENT_INFO_KEY: "y"}}, None),
        ({"clientInfo": {"name": "x" * 1000}}, "x" * 256 + "…"),
    ],
)
def test_a_client_has_a_name(params: dict[str, Any], name: str | None) -> None:
    assert client_name(params) == name
