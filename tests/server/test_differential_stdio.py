"""Thousands of equal messages to our server and to the SDK's, with the same methods: their answers are equal.

Of errors, the codes are compared, since each server has its own words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter

from bridge.protocol.messages import MalformedMessageError, read_message
from tests.server.differential_requests import other_drafts, plain_drafts, spoiled_body, talking_drafts
from tests.server.http_mutations import META
from tests.server.stdio_process import StdioProcess, request

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from tests.server.http_mutations import Draft

SEED = 20260728
MUTATIONS = 20 * settings().max_examples
MESSAGES_AT_ONCE = 100
INVALID = '"error": -32602'
SEALED = re.compile(r'"requestState": "[^"]+"')
COMMAND = ["-m", "tests.server.differential_stdio_server"]

CLIENT = {"name": "tests", "version": "0"}
INITIALIZE = request(
    "open", "initialize", protocolVersion="2025-11-25", capabilities={"roots": {"listChanged": True}}, clientInfo=CLIENT
)
INITIALIZED: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def with_params(message: dict[str, Any], **params: Any) -> dict[str, Any]:
    return message | {"params": message["params"] | params}


def modern(method: str, **params: Any) -> dict[str, Any]:
    return request("open", method, **params, _meta=META)


def is_modern(draft: Draft) -> bool:
    return b"/protocolVersion" in draft.body


WITHOUT_HANDSHAKE = [request("open", "tools/list")]
OPENINGS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "a handshake": ("handshake", [INITIALIZE, INITIALIZED]),
    "a handshake without its notification": ("handshake", [INITIALIZE]),
    "a handshake of an older version": (
        "handshake",
        [with_params(INITIALIZE, protocolVersion="2024-11-05"), INITIALIZED],
    ),
    "a handshake with more in it": ("handshake", [with_params(INITIALIZE, _meta={"x": 1}), INITIALIZED]),
    "two handshakes": ("handshake", [INITIALIZE, INITIALIZED, INITIALIZE | {"id": "again"}]),
    "a notification too early": ("handshake", [INITIALIZED, INITIALIZE]),
    "a handshake that is wrong": ("handshake", [request("open", "initialize"), INITIALIZE | {"id": "again"}]),
    "no handshake": ("handshake", WITHOUT_HANDSHAKE),
    "a discovery": ("modern", [modern("server/discover")]),
    "a list": ("modern", [modern("tools/list")]),
    "a call of what talks back": ("modern", [modern("tools/call", name="talk", arguments={})]),
    "a handshake in the modern era": ("modern", [modern("tools/list"), INITIALIZE | {"id": "again"}]),
    "a list, then the other era": ("handshake", [modern("tools/list")]),
    "a handshake, then the other era": ("modern", [INITIALIZE, INITIALIZED]),
}


def is_read(line: bytes) -> bool:
    """Return True for a line that both servers take for a message; other lines are tested by `test_stdio_fuzz`."""
    if b"\n" in line.strip():
        return False
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
        return read_message(line) is not None
    except (ValueError, MalformedMessageError):
        return False


def id_of(line: bytes) -> int | str | None:
    """Return the id of a request; None for another message."""
    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    return message.id if isinstance(message, JSONRPCRequest) else None


def spelled(message: dict[str, Any]) -> str:
    """Return a message in the form in which it is compared."""
    if "error" in message:
        message = message | {"error": message["error"]["code"]}
    return SEALED.sub('"requestState": "sealed"', json.dumps(message, sort_keys=True))


class Both:
    """Our server and the SDK's, which receive the same messages."""

    def __init__(self) -> None:
        self._servers = StdioProcess(command=COMMAND), StdioProcess(command=[*COMMAND, "--reference"])
        self.compared = 0
        """Number of requests whose answers were compared."""
        self.refused = 0
        """Number of requests that one of the servers refused."""

    def hear(self, lines: Iterable[bytes], *, may_refuse: bool = False) -> None:
        """Send requests, and compare their answers, and what is told before these.

        Args:
            lines: The requests; those of an ID that was used, and notifications, are not sent.
            may_refuse: True if one of the servers may refuse a request as invalid: how strictly members are read on
                which no answer depends is a matter of its own.
        """
        by_id = {str(id_of(line)): line for line in lines if is_read(line)}
        by_id.pop("None", None)  # when a notification has had its effect is not known
        said: list[dict[str, str]] = []
        told: list[Counter[str]] = []
        for server in self._servers:
            server.send(*by_id.values())
        for server in self._servers:
            answers, others = dict[str, str](), Counter[str]()
            while len(answers) < len(by_id):
                message = server.receive()
                if "method" in message:
                    others[spelled(message)] += 1
                else:
                    assert answers.setdefault(str(message["id"]), text := spelled(message)) == text
            said.append(answers)
            told.append(others)
        ours, its = said
        differing = [key for key in by_id if ours[key] != its[key]]
        refused = [key for key in differing if INVALID in ours[key] or INVALID in its[key]] if may_refuse else []
        assert [(by_id[key], ours[key], its[key]) for key in differing if key not in refused] == []
        if not refused:
            assert told[0] == told[1]
        self.compared += len(by_id)
        self.refused += len(refused)

    def tell(self, *messages: dict[str, Any]) -> None:
        """Send notifications."""
        for server in self._servers:
            server.send(*messages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.__exit__()


def numbered(body: bytes, number: int) -> bytes:
    """Give a message an ID of its own, if it has the usual one."""
    return re.sub(rb'("id"\s*:\s*)1\b', rb"\g<1>%d" % number, body)


def bodies(era: str, drafts: Iterable[Draft]) -> list[bytes]:
    return [draft.body for draft in of_era(era, drafts)]


def of_era(era: str, drafts: Iterable[Draft]) -> list[Draft]:
    """Return the mutations of one era without cancellations, which may arrive too late."""
    return [
        each for each in drafts if each.body and is_modern(each) is (era == "modern") and b"/cancel" not in each.body
    ]


@pytest.mark.parametrize(("era", "opening"), OPENINGS.values(), ids=OPENINGS)
def test_whatever_opens_a_connection_is_followed_by_the_same(era: str, opening: list[dict[str, Any]]) -> None:
    drafts = [*plain_drafts(), *talking_drafts(), *other_drafts()]
    requests = [numbered(body, number) for number, body in enumerate(bodies(era, drafts), 1)]
    has_handshake = opening != WITHOUT_HANDSHAKE  # which each server misses with a code of its own
    with Both() as both:
        for message in opening:
            if "id" in message:
                both.hear([json.dumps(message).encode()], may_refuse=not has_handshake)
            else:
                both.tell(message)
        both.hear(requests, may_refuse=not has_handshake)
        assert both.compared > 30
        assert has_handshake == (not both.refused)


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_thousands_of_mutations_are_answered_as_the_sdk_answers_them(era: str) -> None:
    drafts = of_era(era, (*plain_drafts(), *talking_drafts(), *other_drafts()))
    with Both() as both:
        if era == "handshake":
            both.hear([json.dumps(INITIALIZE).encode()])
            both.tell(INITIALIZED)
        else:
            both.hear([json.dumps(modern("server/discover")).encode()])
        for first in range(0, MUTATIONS, MESSAGES_AT_ONCE):
            numbers = range(first, first + MESSAGES_AT_ONCE)
            randoms = [Random(SEED + number) for number in numbers]
            mutated = [spoiled_body(random, random.choice(drafts)) for random in randoms]
            spoiled = [numbered(body, 10 + number) for number, body in zip(numbers, mutated, strict=True)]
            both.hear(spoiled, may_refuse=True)
        assert both.compared > MUTATIONS / 3
        assert both.refused < both.compared / 10
