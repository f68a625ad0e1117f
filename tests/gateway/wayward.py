"""A child that makes the handshake and lists its tools by itself, and handles calls as a test specifies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.client.conftest import python_config

if TYPE_CHECKING:
    from bridge.client import ServerConfig

_CODE = """
import json, socket, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def text(words):
    return {"content": [{"type": "text", "text": words}]}

def ask(words, name):
    form = {"type": "object", "properties": {name: {"type": "string"}}}
    send(id="question", method="elicitation/create", params={"message": words, "requestedSchema": form})

def calls_and_answers(*names):
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            told = {"capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "x", "version": "1"}}
            send(id=message["id"], result={"protocolVersion": "2025-11-25", **told})
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
            send(id=message["id"], result={"tools": tools})
        elif method in ("tools/call", None):
            yield message
        elif "id" in message:
            send(id=message["id"], result={})
"""


def wayward_config(code: str) -> ServerConfig:
    """Return the configuration of a server over stdio, of the handshake era, that runs some Python code.

    Args:
        code: Reads the calls of its tools, and the answers to its questions, from ``calls_and_answers(*names)``; it has
            ``send(**message)``, ``ask(words, name)`` and ``text(words)``, which returns a result.
    """
    return python_config(_CODE + code, protocol="legacy")
