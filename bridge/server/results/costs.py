"""Estimated tokens of a server's definitions and results, for ``/status`` and metrics."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.core import ServerCore
    from bridge.server.lists.listing import Edition
    from bridge.server.lists.tools import ToolList, ToolView
    from bridge.types import Json

_known: WeakKeyDictionary[Edition[Any], dict[str, int]] = WeakKeyDictionary()
"""Tokens by upstream, until the list changes."""


def definition_tokens(core: ServerCore) -> dict[str, int]:
    """Return the estimated tokens of the definitions of tools, by upstream server; ``""`` for those of this process."""
    return _tokens_of(core.catalog)


def hidden_tokens(view: ToolView) -> int:
    """Return the estimated tokens of the definitions that callers can find, and do not list."""
    return max(0, sum(_tokens_of(view.catalog).values()) - sum(_tokens_of(view.listed).values()))


def _tokens_of(tools: ToolList) -> dict[str, int]:
    edition = tools.current()
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
    saved = {feature: sum(tokens_of().values()) for feature, tokens_of in savings_of(core).items()}
    return {
        "definitions": {"estimatedTokens": sum(definitions.values()), "servers": definitions},
        "results": None if kept is None else {"mode": kept.spill.mode, "tools": results},
        "estimatedTokensSaved": saved,
    }


def savings_of(core: ServerCore) -> dict[str, Callable[[], Mapping[str, int]]]:
    """Return functions for the estimated tokens that each feature of a server has saved so far, by tool."""
    found: dict[str, Callable[[], Mapping[str, int]]] = {}
    if core.kept is not None:
        found["spill"] = core.kept.spill.usage.saved
    if (search := core.views.search) is not None:
        found["search"] = partial(core.savings.of, "search")
        if search.options.mode == "code":
            found["code"] = partial(core.savings.of, "code")
    return found
