"""Real messages over stdio, mutations that make them malformed, and the expected responses."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tests.server.stdio_process import MODERN_META, call, modern_request, request

if TYPE_CHECKING:
    from random import Random

NOTHING = object()
NULL = "the null id"

ODD_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e300,
    2**53,
    10**400,
    "",
    "1",
    "2.0",
    "tools/call",
    "\u0000",
    "\ud800",
    "ü" * 1000,
    [],
    [1, [2]],
    {},
    {"jsonrpc": "2.0"},
    {"_meta": {}},
    {"_meta": []},
    MODERN_META,
]


def seeds(*, is_modern: bool) -> list[dict[str, Any]]:
    """Messages as clients send them."""
    make = modern_request if is_modern else request
    meta: dict[str, Any] = {"progressToken": "p"}
    return [
        make("s", "tools/list"),
        make("s", "tools/list", cursor="x"),
        make("s", "tools/call", name="add", arguments={"a": 1, "b": 2}),
        make("s", "tools/call", name="add", arguments={"a": "1", "b": 2}, _meta=meta),
        make("s", "tools/call", name="echo", arguments={"value": {"a": [1, "b", None]}}),
        make("s", "tools/call", name="unheard_of", arguments={}),
        make("s", "ping"),
        make("s", "server/discover"),
        make("s", "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "f", "version": ""}),
        make("s", "logging/setLevel", level="info"),
        make("s", "resources/list"),
        call("s", "add", a=1, b=2),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}},
    ]


def spoil_value(random: Random, message: Any) -> None:
    """Replace, add or remove something at a random place."""
    place = message
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = random.choice(keys)
        if isinstance(place[key], dict | list) and random.random() < 0.7:
            place = place[key]
            continue
        odd = deepcopy(random.choice(ODD_VALUES))
        match random.randrange(3), place:
            case 0, _:
                del place[key]
            case 1, dict():
                place[random.choice(["id", "method", "params", "_meta", "result", "error", "jsonrpc", "ü"])] = odd
            case _:
                place[key] = odd
        return


def spoil_text(random: Random, text: bytes) -> bytes:
    """Flip, cut, repeat, insert or move bytes."""
    start, end = sorted(random.sample(range(len(text) + 1), 2))
    match random.randrange(6):
        case 0:
            return text[:start] + bytes([random.randrange(256)]) + text[start + 1 :]
        case 1:
            return text[:start] + text[end:]
        case 2:
            return text[:end] + text[start:]
        case 3:
            return text[:start] + random.randbytes(random.randrange(1, 20)) + text[start:]
        case 4:
            return text[:start]
        case _:
            return text[:start] + random.choice([b"[" * 30_000, b"9" * 5000, b'\\ud800"', b"\n", b"NaN"]) + text[start:]


def spoiled(random: Random, number: int, messages: list[dict[str, Any]]) -> bytes:
    """Return a message with this number, mutated or not."""
    message = deepcopy(random.choice(messages))
    if message.get("id") == "s":
        message["id"] = number
    for _ in range(random.randrange(3)):
        spoil_value(random, message)
    text = json.dumps(message, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    for _ in range(random.choice([0, 0, 1, 2])):
        text = spoil_text(random, text) if len(text) > 1 else text
    return text


def expected(line: bytes) -> object:
    """Return the ID of the expected response to a line, the null ID, or none."""
    if not line.strip():
        return NOTHING
    try:
        message = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return NULL
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return NULL
    message_id = message.get("id", NOTHING)
    has_id = isinstance(message_id, int | str) and not isinstance(message_id, bool)
    if "method" not in message:
        return NOTHING if _is_reply(message, has_id=has_id) else NULL
    if isinstance(message["method"], str) and has_id:
        return message_id
    is_notification = isinstance(message["method"], str) and message_id is NOTHING
    return NOTHING if is_notification and isinstance(message.get("params", {}), dict | None) else NULL


def _is_reply(message: dict[str, Any], *, has_id: bool) -> bool:
    result, error = message.get("result"), message.get("error")
    if error is None:
        return has_id and isinstance(result, dict)
    is_whole = isinstance(error, dict) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)
    return is_whole and result is None and (has_id or message.get("id") is None)
