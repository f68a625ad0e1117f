"""Estimated tokens of the definitions of tools, for ``bridge list --tokens``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from bridge.text import with_count

if TYPE_CHECKING:
    from bridge.tools.toolbox import ToolBox


def as_json(tools: ToolBox) -> dict[str, Any]:
    """Return the tokens of each tool, of each server, and of all."""
    of_servers: Counter[str] = Counter()
    for tool in tools:
        of_servers[tool.server or ""] += tool.specification.estimated_tokens
    return {
        "estimatedTokens": of_servers.total(),
        "servers": dict(of_servers.most_common()),
        "tools": [
            {"name": tool.name, "server": tool.server, "estimatedTokens": tool.specification.estimated_tokens}
            for tool in tools
        ],
    }


def as_text(tools: ToolBox) -> str:
    """Return a line for each tool, those with most tokens first, then one for each server, and one for all."""
    found = as_json(tools)
    rows = [(each["estimatedTokens"], each["name"]) for each in found["tools"]]
    rows.sort(key=lambda row: row[0], reverse=True)
    if len(found["servers"]) > 1:
        rows += [(tokens, f"tools of {server or 'this process'}") for server, tokens in found["servers"].items()]
    rows.append((found["estimatedTokens"], f"{with_count(len(found['tools']), 'tool')}, estimated tokens"))
    width = max(len(f"{tokens:,}") for tokens, _ in rows)
    return "\n".join(f"{tokens:>{width},}  {text}" for tokens, text in rows)
