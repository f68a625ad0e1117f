"""Estimated tokens of a server's definitions and results, for ``/status`` and metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from bridge.server.core import ServerCore
    from bridge.server.lists.listing import Edition
    from bridge.types import Json

_known: WeakKeyDictionary[Edition[Any], dict[str, int]] = WeakKeyDictionary()
"""Tokens by upstream, until the list changes."""


def definition_tokens(core: ServerCore) -> dict[str, int]:
    """Return the estimated tokens of the definitions of tools, by upstream server; ``""`` for those of this process."""
    edition = core.catalog.current()
    known = _known.get(edition)
    if known is None:
        tokens: Counter[str] = Counter()
        for tool in edition.items.values():
            tokens[tool.server or ""] += tool.specification.estimated_tokens
        known = _known[edition] = dict(tokens)
    return known


def costs(core: ServerCore) -> Json:
    """Return the tokens that models have to read, and those that were saved, as JSON."""
    definitions, kept = definition_tokens(core), core.kept
    results = None if kept is None else kept.spill.usage.by_tool()
    return {
        "definitions": {"estimatedTokens": sum(definitions.values()), "servers": definitions},
        "results": None if kept is None else {"mode": kept.spill.mode, "tools": results},
        "estimatedTokensSaved": {} if kept is None else {"spill": sum(kept.spill.usage.saved().values())},
    }
