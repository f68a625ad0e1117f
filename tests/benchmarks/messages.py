"""Messages of a client in either era, and checks of the responses."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from pydantic_core import from_json, to_json

_CLIENT_INFO = {"name": "benchmarks", "version": "1"}
_MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": _CLIENT_INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_EVENT = re.compile(rb"(?m)^data: (\{.*\})\r?$")
_THREE = re.compile(rb'"text": ?"3"')


KINDS: dict[str, tuple[str, dict[str, Any], bytes]] = {
    "a call": ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, b'"3"'),
    "a read": ("resources/read", {"uri": "notes://today"}, b"It rains."),
    "a read by template": ("resources/read", {"uri": "notes://by/ada"}, b"A note of ada"),
    "a prompt": ("prompts/get", {"name": "review", "arguments": {"code": "x = 1"}}, b"Review this: x = 1"),
    "a list": ("resources/list", {}, b"notes://today"),
}
"""Requests to `features.py`: the method, its parameters, and a text that the response must contain."""


class Era(Enum):
    """The two eras of the protocol, each with the revision used here."""

    HANDSHAKE = "2025-11-25"
    MODERN = "2026-07-28"


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": Era.HANDSHAKE.value, "capabilities": {}, "clientInfo": _CLIENT_INFO},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(era: Era, method: str, request_id: int = 1, **params: Any) -> dict[str, Any]:
    """Return a request."""
    if era is Era.MODERN:
        params["_meta"] = _MODERN_META
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def call(era: Era, tool: str, request_id: int = 1, **meta: Any) -> dict[str, Any]:
    """Return a call that adds 1 and 2, with additional members in its ``_meta``."""
    message = request(era, "tools/call", request_id, name=tool, arguments={"a": 1, "b": 2})
    if meta:
        message["params"]["_meta"] = message["params"].get("_meta", {}) | meta
    return message


def line(message: dict[str, Any]) -> bytes:
    """Return a message as a line, for stdio."""
    return to_json(message) + b"\n"


def says_three(answer: bytes) -> bool:
    """True if a response is that of a call that added 1 and 2."""
    return _THREE.search(answer) is not None


def message_in(answer: bytes) -> Any:
    """Return the message in a response over HTTP, or the last one in an event stream; None if there is none."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"text/event-stream" in head.lower():
        body = b"".join(_EVENT.findall(body)[-1:])
    try:
        return from_json(body)
    except ValueError:
        return None
