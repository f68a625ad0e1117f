"""Opening of a session: which request comes next, whatever the server answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol.messages import ProtocolError
from bridge.protocol.negotiation import DISCOVER, INITIALIZE, Negotiation, VersionError
from bridge.protocol.results import InvalidResultError, valid_result
from bridge.protocol.versions import HANDSHAKE_VERSIONS, LATEST_MODERN_VERSION, UNSUPPORTED_VERSION

INFO = {"name": "tests", "version": "1"}
DISCOVERED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "capabilities": {"tools": {}}}
MODERN = {**DISCOVERED, "supportedVersions": [LATEST_MODERN_VERSION]}
HANDSHAKE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": None},
    "serverInfo": {"name": "s", "version": "2"},
}
NOT_FOUND = ProtocolError(-32601, "no such method")


def unsupported(*versions: str) -> ProtocolError:
    return ProtocolError(UNSUPPORTED_VERSION, "not this one", {"supported": list(versions)})


def invalid() -> InvalidResultError:
    with pytest.raises(InvalidResultError) as caught:
        valid_result(DISCOVER, LATEST_MODERN_VERSION, {})
    return caught.value


def negotiation(mode: Any = "auto") -> Negotiation:
    return Negotiation(mode, INFO, lambda version: {"of": {"version": version}})


def answer(opening: Negotiation, *answers: Any) -> list[str]:
    """Answer one request after the other; return their methods."""
    methods = []
    for each in answers:
        methods.append(opening.request().method)
        if isinstance(each, Exception):
            opening.refused(each)  # type: ignore[arg-type]  # an error of one of both kinds
        else:
            opening.answered(each)
    return methods


@pytest.mark.parametrize(
    ("mode", "answers", "methods"),
    [
        ("auto", [MODERN], [DISCOVER]),
        ("2026-07-28", [MODERN], [DISCOVER]),
        ("auto", [NOT_FOUND, HANDSHAKE], [DISCOVER, INITIALIZE]),
        ("legacy", [HANDSHAKE], [INITIALIZE]),
        ("auto", [invalid(), HANDSHAKE], [DISCOVER, INITIALIZE]),
        ("auto", [{**MODERN, "supportedVersions": ["2025-11-25"]}, HANDSHAKE], [DISCOVER, INITIALIZE]),
        ("auto", [unsupported("2025-11-25"), HANDSHAKE], [DISCOVER, INITIALIZE]),
        ("auto", [unsupported(LATEST_MODERN_VERSION), MODERN], [DISCOVER, DISCOVER]),
        ("auto", [NOT_FOUND, unsupported(LATEST_MODERN_VERSION), MODERN], [DISCOVER, INITIALIZE, DISCOVER]),
    ],
)
def test_both_sides_agree(mode: Any, answers: list[Any], methods: list[str]) -> None:
    opening = negotiation(mode)
    assert answer(opening, *answers) == methods
    assert opening.agreement is not None
    is_modern = methods[-1] == DISCOVER
    assert opening.agreement.version == (LATEST_MODERN_VERSION if is_modern else "2025-06-18")
    assert bool(opening.agreement.stamps) is is_modern
    assert opening.agreement.capabilities == ({"tools": {}} if is_modern else {})


@pytest.mark.parametrize(
    ("mode", "answers", "error"),
    [
        ("auto", [unsupported("2027-01-01")], ProtocolError),
        ("2026-07-28", [NOT_FOUND], ProtocolError),
        ("2026-07-28", [invalid()], InvalidResultError),
        ("2026-07-28", [{**MODERN, "supportedVersions": ["2027-01-01"]}], VersionError),
        ("auto", [NOT_FOUND, NOT_FOUND], ProtocolError),
        ("legacy", [invalid()], InvalidResultError),
        ("legacy", [{**HANDSHAKE, "protocolVersion": "1999-01-01"}], VersionError),
        ("legacy", [unsupported(LATEST_MODERN_VERSION)], ProtocolError),
    ],
)
def test_there_is_no_version_in_common(mode: Any, answers: list[Any], error: type[Exception]) -> None:
    opening = negotiation(mode)
    with pytest.raises(error):
        answer(opening, *answers)
    assert opening.agreement is None


def test_requests_declare_what_their_version_has() -> None:
    opening = negotiation()
    probe = opening.request()
    assert probe.params["_meta"] == opening.stamps(LATEST_MODERN_VERSION)
    opening.refused(NOT_FOUND)
    assert opening.request().params == {
        "protocolVersion": HANDSHAKE_VERSIONS[-1],
        "capabilities": {"of": {"version": HANDSHAKE_VERSIONS[-1]}},
        "clientInfo": INFO,
    }


ANSWERS = st.sampled_from(
    [MODERN, HANDSHAKE, NOT_FOUND, unsupported("2025-11-25"), unsupported(LATEST_MODERN_VERSION), unsupported("x")]
)


@given(mode=st.sampled_from(["auto", "legacy", "2026-07-28"]), answers=st.lists(ANSWERS, min_size=5, max_size=5))
def test_it_ends_after_a_few_requests_whatever_is_answered(mode: Any, answers: list[Any]) -> None:
    opening, methods = negotiation(mode), []
    for each in answers:
        methods.append(method := opening.request().method)
        try:
            if isinstance(each, ProtocolError):
                opening.refused(each)
            else:
                opening.answered(MODERN if method == DISCOVER else HANDSHAKE)
        except ProtocolError:
            break
        if opening.agreement is not None:
            break
    assert len(methods) <= 4
    assert methods.count(DISCOVER) <= 2
