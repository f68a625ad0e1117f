"""Thousands of equal messages to a server with the fast path and to one without: their output is equal."""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

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
    "no handshake": ("handshake", [request("open", "tools/list")]),
    "a discovery": ("modern", [modern("server/discover")]),
    "a list": ("modern", [modern("tools/list")]),
    "a call of what talks back": ("modern", [modern("tools/call", name="talk", arguments={})]),
    "a handshake in the modern era": ("modern", [modern("tools/list"), INITIALIZE | {"id": "again"}]),
    "a list, then the other era": ("handshake", [modern("tools/list")]),
    "a handshake, then the other era": ("modern", [INITIALIZE, INITIALIZED]),
}


def spelled(message: dict[str, Any]) -> str:
    """Return a message in one form."""
    return SEALED.sub('"requestState": "sealed"', json.dumps(message, sort_keys=True))


class Both:
    """A server with the fast path and one without, which receive the same messages."""

    def __init__(self) -> None:
        self._servers = StdioProcess(command=[*COMMAND, "--fast-path"]), StdioProcess(command=COMMAND)
        self._said: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        self._rounds = 0

    def hear(self, lines: Iterable[bytes], sync: dict[str, Any]) -> None:
        """Send some lines, and read the output until a request after them is answered."""
        self._rounds += 1
        sync_id = f"sync {self._rounds}"
        messages: tuple[bytes | dict[str, Any], ...] = (*lines, sync | {"id": sync_id})
        for server in self._servers:
            server.send(*messages)
        for server, said in zip(self._servers, self._said, strict=True):
            while (message := server.receive()).get("id") != sync_id:
                said[spelled(message)] += 1
            said[spelled(message)] += 1

    def end(self, era: str) -> int:
        """Close both, and compare their output; return the number of requests that the fast path answered."""
        # The SDK, which may still be loading, answers this one, so that earlier messages are not cut off.
        unknown = {"name": "unheard-of", "arguments": {}}
        self.hear([], modern("tools/call", **unknown) if era == "modern" else request("open", "tools/call", **unknown))
        for server, said in zip(self._servers, self._said, strict=True):
            server.close_input()
            while line := server.receive_line():
                said[spelled(json.loads(line))] += 1
            assert server.wait() == 0, server.log()
        fast, plain = self._said
        assert fast - plain == plain - fast == Counter()
        counts = [re.findall(r"^fast: (\d+)$", server.log(), re.MULTILINE) for server in self._servers]
        assert counts[1] == ["0"]
        return int(counts[0][0])

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
    requests = [numbered(body, number) for number, body in enumerate(bodies(era, plain_drafts()), 1)]
    others = [
        numbered(body, number) for number, body in enumerate(bodies(era, [*talking_drafts(), *other_drafts()]), 1001)
    ]
    sync = json.loads(requests[0])
    with Both() as both:
        for message in opening:
            both.hear([json.dumps(message).encode()], sync)
        both.hear(requests, sync)
        both.hear([*others, *requests], sync)
        both.end(era)


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_plain_requests_take_the_fast_path(era: str) -> None:
    requests = [numbered(body, number) for number, body in enumerate(bodies(era, plain_drafts()), 1)]
    opening = [INITIALIZE, INITIALIZED] if era == "handshake" else [modern("server/discover")]
    with Both() as both:
        both.hear([*(json.dumps(message).encode() for message in opening), *requests], json.loads(requests[0]))
        assert both.end(era) == 1 + len(requests) + 1


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_thousands_of_mutations_are_answered_as_the_sdk_answers_them(era: str) -> None:
    drafts = of_era(era, (*plain_drafts(), *talking_drafts(), *other_drafts()))
    sync = json.loads(drafts[0].body)
    opening = [INITIALIZE, INITIALIZED] if era == "handshake" else [modern("server/discover")]
    with Both() as both:
        both.hear([json.dumps(message).encode() for message in opening], sync)
        for first in range(0, MUTATIONS, MESSAGES_AT_ONCE):
            numbers = range(first, first + MESSAGES_AT_ONCE)
            randoms = [Random(SEED + number) for number in numbers]
            mutated = [spoiled_body(random, random.choice(drafts)) for random in randoms]
            both.hear([numbered(body, 10 + number) for number, body in zip(numbers, mutated, strict=True)], sync)
        assert both.end(era) > MUTATIONS / 15
