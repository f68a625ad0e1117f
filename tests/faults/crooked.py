"""A child process that speaks the protocol, and breaks it as a call tells it to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.faults.served import note

INFO = {"name": "crooked", "version": "1"}
CAPABILITIES = {"tools": {"listChanged": True}}
CHANGED = b'{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n'
SCHEMA = {"type": "object"}
GARBAGE = (
    b"Listening on port 8080...\n",
    b'{"jsonrpc": "2.0", "id": \n',
    b'{"jsonrpc": "2.0", "id": 987654321, "result": {"content": []}}\n',
    b'[]\nnull\n"text"\n{}\n',
    b"\x00\xff\xfe not UTF-8\n",
    b"x" * 300_000 + b"\n",
)

writes_garbage = False
drips = False
is_deaf = False
lists = 0


def write(data: bytes) -> None:
    for part in [data[i : i + 1] for i in range(len(data))] if drips else [data]:
        os.write(1, part) if drips else sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def called(name: str, arguments: dict[str, Any]) -> str:
    global writes_garbage, drips, is_deaf  # noqa: PLW0603 - one process, one conversation
    match name:
        case "write_garbage":
            writes_garbage = arguments["on"]
        case "drip":
            drips = arguments["on"]
        case "fall_silent":
            is_deaf = True
        case "announce":
            write(CHANGED * arguments["times"])
        case "count_lists":
            return str(lists)
        case _:
            note(arguments["journal"], arguments["call"])
    return str(arguments.get("call", "done"))


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": INFO}
    if method == "server/discover":
        modern = {"supportedVersions": ["2026-07-28"], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {**modern, "capabilities": CAPABILITIES, "serverInfo": INFO}
    if method == "tools/list":
        global lists  # noqa: PLW0603 - as above
        lists += 1
        names = ("work", "announce", "count_lists", "write_garbage", "drip", "fall_silent", "die_within_a_frame")
        tools = [{"name": name, "description": name, "inputSchema": SCHEMA} for name in names]
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools}
    if method == "tools/call":
        text = called(params["name"], params["arguments"])
        return {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


def answer(message: dict[str, Any]) -> None:
    params = message.get("params", {})
    found = result(message["method"], params)
    outcome = {"error": {"code": -32601, "message": "no such method"}} if found is None else {"result": found}
    line = json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode() + b"\n"
    if params.get("name") == "die_within_a_frame":
        write(line[: len(line) // 2])
        os._exit(1)
    if not is_deaf:
        write(b"".join(GARBAGE) + line + GARBAGE[0] if writes_garbage else line)


def start() -> None:
    """Start as the first line of the file says, if there is a file; each line is for one start."""
    global is_deaf  # noqa: PLW0603 - as above
    starts = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if starts is None or not starts.exists() or not (lines := starts.read_text(encoding="utf-8").splitlines()):
        return
    starts.write_text("\n".join(lines[1:]), encoding="utf-8")
    if lines[0] == "die":
        sys.exit(1)
    is_deaf = True


if __name__ == "__main__":
    start()
    for text in sys.stdin:
        received = json.loads(text)
        if "id" in received and "method" in received:
            answer(received)
