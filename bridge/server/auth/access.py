"""Access: what a caller may do with the tools. Pure data, which both paths of an answer ask."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEPT_NAMES = 4096

_NOTHING: frozenset[str] = frozenset()

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""A scope as OAuth writes it (RFC 6749, section 3.3)."""


def scopes_of(texts: Iterable[str]) -> frozenset[str]:
    """Scopes, each of which can be sent.

    Raises:
        DefinitionError: One of them cannot.
    """
    scopes = frozenset(texts)
    for scope in scopes:
        if not _SCOPE.fullmatch(scope):
            raise DefinitionError(f"a scope is visible ASCII without spaces, quotes and backslashes, not {scope!r}")
    return scopes


class ToolScopes:
    """Which scopes the tools ask for.

    Args:
        scopes: Scopes by the name of a tool, or by a pattern such as ``delete_*``; where several match, all are asked
            for.

    Raises:
        DefinitionError: A scope is none.
    """

    def __init__(self, scopes: Mapping[str, Iterable[str]] | None = None) -> None:
        self._scopes = {pattern: scopes_of(each) for pattern, each in (scopes or {}).items()}
        self.all: frozenset[str] = _NOTHING.union(*self._scopes.values())
        """Every scope that any of them asks for."""
        self.of = lru_cache(_KEPT_NAMES)(self._of)
        """What a tool asks for."""

    @property
    def patterns(self) -> frozenset[str]:
        """The names and patterns of tools that are to need a scope."""
        return frozenset(self._scopes)

    def _of(self, name: str) -> frozenset[str]:
        return _NOTHING.union(*(each for pattern, each in self._scopes.items() if matches((pattern,), name)))

    def __bool__(self) -> bool:
        return bool(self._scopes)

    def __repr__(self) -> str:
        return f"ToolScopes({ {pattern: sorted(each) for pattern, each in self._scopes.items()} })"


_NO_SCOPES = ToolScopes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one caller may do with the tools.

    A tool outside of `tools` does not exist for the caller. A tool whose scopes were not granted is listed, so that
    the caller can ask its identity provider for more, and cannot be called.
    """

    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools that the caller may know of; None for all."""
    scopes: frozenset[str] = _NOTHING
    """What the caller was granted."""
    tool_scopes: ToolScopes = field(default=_NO_SCOPES, compare=False)
    """What the tools ask for."""

    def missing(self, tool: str) -> frozenset[str]:
        """The scopes that a tool asks for and that the caller was not granted."""
        return self.tool_scopes.of(tool) - self.scopes if self.tool_scopes else _NOTHING


EVERYTHING = Access()
"""The access of whoever needs no credential: whoever started this process, or everyone where nobody is asked."""


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a name is one of the names and patterns; the case of letters counts."""
    return _compiled(patterns).match(name) is not None


@lru_cache(_KEPT_NAMES)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or "(?!)")
