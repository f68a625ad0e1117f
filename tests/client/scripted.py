"""A child with scripted responses, valid or not, which knows nothing else of the protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bridge.client import StdioTransport
from tests.client.conftest import python_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.client import ServerConfig

CODE = """
import json, sys

SCRIPT = json.loads(%r)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    if method == "tools/list":
        answer = {"result": SCRIPT["pages"][int(params.get("cursor", 0))]}
    elif method == "tools/call":
        answer = {"result": SCRIPT["results"].get(params["name"], {"content": []})}
    elif method == "initialize":
        told = {"name": "scripted", "version": SCRIPT["version"]}
        answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": told}}
    else:
        answer = {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


def scripted_config(
    tools: Sequence[Mapping[str, Any]],
    results: Mapping[str, Any] | None = None,
    *,
    page_size: int = 100,
    page: Mapping[str, Any] | None = None,
    version: str = "1",
    **settings: Any,
) -> ServerConfig:
    """Return the configuration of a server with these tools in pages, and results by the tools' names."""
    starts = range(0, max(len(tools), 1), page_size)
    pages: list[dict[str, Any]] = [{"tools": tools[start : start + page_size], **(page or {})} for start in starts]
    for number, each in enumerate(pages[:-1], 1):
        each["nextCursor"] = str(number)
    return python_config(CODE % json.dumps({"pages": pages, "results": results or {}, "version": version}), **settings)


def scripted_command(tools: Sequence[Mapping[str, Any]], *arguments: Any, **settings: Any) -> list[str]:
    """Return the command line of such a server."""
    transport = scripted_config(tools, *arguments, **settings).transport
    assert isinstance(transport, StdioTransport)
    return [transport.command, *transport.args]


def listed(name: str, **more: Any) -> dict[str, Any]:
    """Return a tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"}, **more}
