"""Bodies that differ by their id alone are read as the parser reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from bridge.hosting.http.limits import ConnectionLimits
from bridge.hosting.serve import http_protocol
from bridge.resources.box import ResourceBox
from bridge.resources.function import resource
from bridge.server import http_app
from bridge.server.http import requests
from bridge.server.http.repeated_bodies import RepeatedBody
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the functions are made
from tests.cli.bounding import answers, connected
from tests.server import http_server
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

READ = b'{"jsonrpc":"2.0","id":%b,"method":"resources/read","params":{"uri":"notes://today","_meta":{}}}'
KEYS = st.sampled_from(["id", "jsonrpc", "method", "params", "uri", "arguments", '"id":7', "é"])
VALUES = st.recursive(
    st.integers(-20, 20) | st.sampled_from(["", "id", '"id":7', "7"]) | st.booleans() | st.none() | st.floats(0, 9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


def repeated(body: bytes) -> RepeatedBody | None:
    return RepeatedBody.of(body, from_json(body))


def parsed(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError:
        return None


@pytest.mark.parametrize("text", [READ, READ.replace(b":", b" : "), b'{"method":"ping","params":{},"id":%b}'])
def test_another_id_of_the_same_length_is_all_that_may_differ(text: bytes) -> None:
    body = repeated(text % b"12")
    assert body is not None
    for number in (b"10", b"12", b"99"):
        assert body.message_in(text % number) == from_json(text % number)
    for other in (b"1", b"123", b"01", b"-1", b"1.", b'"1', b"1 ", "²".encode(), b"1e"):
        assert body.message_in(text % other) is None
    assert body.message_in(text.replace(b"p", b"q", 1) % b"12") is None
    assert body.message_in(b"") is None


@pytest.mark.parametrize(
    "body",
    [
        READ % b'"a"',
        READ % b"-5",
        READ % b"1.0",
        READ % b"1234567890123456",
        READ.replace(b"today", b"x" * 2048) % b"5",
        b'{"params":{"id":5},"id":5}',
        b'{"id":5,"params":{},"id":5}',
        b'{"id":5,"method":"tools/call","params":{"name":"add","arguments":{}}}',
    ],
)
def test_a_body_whose_id_cannot_be_told_or_that_is_unlikely_to_be_repeated_is_parsed(body: bytes) -> None:
    assert repeated(body) is None


@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.dictionaries(KEYS, VALUES, max_size=2),
    st.sampled_from([5, 17, "5"]),
    st.permutations(["jsonrpc", "id", "params", "more"]),
    st.booleans(),
    st.integers(0, 200),
    st.sampled_from(list(b'09"-.e ,:{}x')),
)
def test_any_body_is_read_as_the_parser_reads_it(
    params: dict[str, Any],
    more: dict[str, Any],
    number: int | str,
    order: list[str],
    is_wide: bool,
    place: int,
    byte: int,
) -> None:
    members = {"jsonrpc": "2.0", "id": number, "params": params, "more": more}
    body = json.dumps({name: members[name] for name in order}, separators=(" , ", " : ") if is_wide else None).encode()
    found = repeated(body)
    if found is not None:
        place %= len(body)
        for other in (body, body[:place] + bytes([byte]) + body[place + 1 :], body.replace(b"17", b"71")):
            message = found.message_in(other)
            assert message is None or message == parsed(other)


@pytest.fixture
def parsings(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies that were parsed."""
    found: list[bytes] = []

    def noted(body: bytes) -> Any:
        found.append(body)
        return from_json(body)

    monkeypatch.setattr(requests, "from_json", noted)
    return found


READS = {"notes://today": 0}


@resource("notes://today")
async def today() -> str:
    READS["notes://today"] += 1
    return f"{READS['notes://today']}"


@resource("notes://of/{name}")
async def note(name: str, context: InvocationContext) -> str:
    capabilities: Any = context.client_capabilities
    capabilities[f"{len(capabilities)}"] = {}
    return f"{name} {len(capabilities)}"


BOX = ResourceBox(today, note)


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    app = http_app(BOX)
    protocol = http_protocol(app.pre_asgi_handler(lambda: True), ConnectionLimits())
    with http_server.serving(app, http=protocol) as origin, connected(int(origin.rpartition(":")[2])) as opened:
        yield opened


def read(connection: socket.socket, number: int, uri: str) -> Any:
    draft = modern("resources/read", uri=uri)
    draft.body = json.dumps(json.loads(draft.body) | {"id": number}).encode()
    connection.sendall(draft.raw)
    ((_, answer),) = answers(connection, 1)
    assert answer["id"] == number
    return answer["result"]["contents"][0]["text"] if "result" in answer else answer["error"]["code"]


def test_a_repeated_read_runs_its_function_and_its_body_is_not_parsed(
    connection: socket.socket, parsings: list[bytes]
) -> None:
    before = READS["notes://today"]
    texts = [read(connection, number, "notes://today") for number in range(10, 40)]
    assert texts == [f"{before + 1 + turn}" for turn in range(30)]
    assert len(parsings) == 2


def test_a_repeated_read_follows_the_changes_of_the_server(connection: socket.socket) -> None:
    for number in range(10, 14):
        assert isinstance(read(connection, number, "notes://today"), str)
    BOX.remove("notes://today")
    try:
        assert read(connection, 14, "notes://today") == -32602
    finally:
        BOX.add(today)
    assert isinstance(read(connection, 15, "notes://today"), str)


def test_requests_share_nothing_that_a_function_can_change(connection: socket.socket) -> None:
    assert [read(connection, number, "notes://of/ada") for number in range(10, 16)] == ["ada 1"] * 6


def test_bodies_that_are_never_repeated_are_not_prepared_for_it_again_and_again(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[bytes] = []
    of = RepeatedBody.of

    def noted(body: bytes, message: Any) -> RepeatedBody | None:
        prepared.append(body)
        return of(body, message)

    monkeypatch.setattr(RepeatedBody, "of", noted)
    for number in range(20):
        draft = modern("resources/read", uri="notes://today", _meta={"progressToken": f"{number:05}"})
        connection.sendall(draft.raw)
        answers(connection, 1)
    assert len(prepared) == 4
