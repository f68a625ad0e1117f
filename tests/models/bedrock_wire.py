"""Responses of Bedrock's Converse API, as its reference documents them."""

from __future__ import annotations

import json
import struct
from binascii import crc32
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from bridge.models.bedrock.model import BedrockChatModel
from tests.models.provider import Answer, json_answer

if TYPE_CHECKING:
    from tests.models.provider import Provider

EVENTS = {"content-type": "application/vnd.amazon.eventstream", "x-amzn-requestid": "req-1"}
USAGE = {
    "inputTokens": 4,
    "outputTokens": 5,
    "totalTokens": 35,
    "cacheWriteInputTokens": 10,
    "cacheReadInputTokens": 16,
}
_TEXT = 7


@cache
def _session() -> Any:
    """One session for all tests: it takes half a second to load the description of the service."""
    return boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-central-1")


def model(provider: Provider, *, own_client: bool = False, **more: Any) -> BedrockChatModel:
    """Return an adapter for a provider, with a given client or one of its own; it repeats no request."""
    if own_client:
        usual: dict[str, Any] = {"endpoint_url": provider.url, "region_name": "eu-central-1", "max_retries": 0}
        return BedrockChatModel("test.model-v1:0", **usual | more)
    config = Config(retries={"total_max_attempts": 1})
    client = _session().client("bedrock-runtime", endpoint_url=provider.url, config=config)
    return BedrockChatModel("test.model-v1:0", client=client, **more)


def reply(*content: dict[str, Any], reason: str = "end_turn") -> Answer:
    """Return a whole reply."""
    message = {"role": "assistant", "content": list(content)}
    body = {"output": {"message": message}, "stopReason": reason, "usage": USAGE, "metrics": {"latencyMs": 1}}
    return json_answer(body, headers={"x-amzn-requestid": "req-1"})


def frame(payload: Any, **headers: str) -> bytes:
    """Return one message of an event stream (vnd.amazon.eventstream)."""
    head = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", _TEXT, len(value)) + value.encode()
        for name, value in headers.items()
    )
    body = json.dumps(payload, ensure_ascii=False).encode()
    prelude = struct.pack("!II", 16 + len(head) + len(body), len(head))
    prelude += struct.pack("!I", crc32(prelude))
    message = prelude + head + body
    return message + struct.pack("!I", crc32(message))


def event(kind: str, payload: Any) -> bytes:
    """Return one event of a reply."""
    return frame(payload, **{":message-type": "event", ":event-type": kind, ":content-type": "application/json"})


def failure(kind: str, message: str) -> bytes:
    """Return an error within a stream."""
    headers = {":message-type": "exception", ":exception-type": kind, ":content-type": "application/json"}
    return frame({"message": message}, **headers)


def call(index: int, call_id: str, name: str, *pieces: str) -> list[bytes]:
    """Return the events of a block that calls a tool."""
    start = {"start": {"toolUse": {"toolUseId": call_id, "name": name}}, "contentBlockIndex": index}
    deltas = [{"delta": {"toolUse": {"input": piece}}, "contentBlockIndex": index} for piece in pieces]
    return [event("contentBlockStart", start), *_block(index, deltas)]


def said(index: int, *deltas: dict[str, Any]) -> list[bytes]:
    """Return the events of a block of text or reasoning."""
    return _block(index, [{"delta": delta, "contentBlockIndex": index} for delta in deltas])


def _block(index: int, deltas: list[dict[str, Any]]) -> list[bytes]:
    return [
        *(event("contentBlockDelta", delta) for delta in deltas),
        event("contentBlockStop", {"contentBlockIndex": index}),
    ]


def stream_events(*blocks: list[bytes], reason: str = "end_turn") -> list[bytes]:
    """Return the events of one reply."""
    return [
        event("messageStart", {"role": "assistant"}),
        *(each for block in blocks for each in block),
        event("messageStop", {"stopReason": reason}),
        event("metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}}),
    ]


def streamed(*blocks: list[bytes], reason: str = "end_turn") -> Answer:
    """Return a streamed reply."""
    return Answer(headers=EVENTS, chunks=tuple(stream_events(*blocks, reason=reason)))
