"""Access: permissions of a caller, as plain data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp.server.auth.provider import AccessToken

    from bridge.tools.decoration import Published

_CACHED_NAMES = 4096
_EMPTY: frozenset[str] = frozenset()

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""Syntax of a scope (RFC 6749, section 3.3)."""


def scopes_of(texts: Iterable[str]) -> frozenset[str]:
    """Validate scopes.

    Raises:
        DefinitionError: A scope has invalid characters.
    """
    scopes = frozenset(texts)
    for scope in scopes:
        if not _SCOPE.fullmatch(scope):
            raise DefinitionError(f"a scope is visible ASCII without spaces, quotes and backslashes, not {scope!r}")
    return scopes


class ToolScopes:
    """Scopes that tools, resources and prompts require, by name or by a pattern such as ``delete_*``.

    If several match, all are required.
    """

    def __init__(self, scopes: Mapping[str, Iterable[str]] | None = None) -> None:
        self._scopes = {pattern: scopes_of(each) for pattern, each in (scopes or {}).items()}
        self.patterns = frozenset(self._scopes)
        """Names and patterns of the tools that require a scope."""
        self.all: frozenset[str] = _EMPTY.union(*self._scopes.values())
        """Every scope that a tool requires."""
        self.of = lru_cache(_CACHED_NAMES)(self._of)
        """Return the scopes that a tool requires."""

    def _of(self, name: str) -> frozenset[str]:
        return _EMPTY.union(*(each for pattern, each in self._scopes.items() if matches((pattern,), name)))

    def __bool__(self) -> bool:
        return bool(self._scopes)


_NO_SCOPES = ToolScopes()


class Restricted(Protocol):
    """An endpoint for some callers only: a profile."""

    def is_given_to(self, token: AccessToken | None, profiles: tuple[str, ...] | None) -> bool:
        """Return True if it is given to a caller; see `bridge.server.profiles.Profile.is_given_to`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Permissions of one caller, by the names of tools. They hold for resources and prompts of these names as well.

    A tool outside of `tools` does not exist for the caller. A tool whose scopes were not granted is listed, so that
    the caller can request them from its identity provider, but cannot be called.
    """

    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools, resources and prompts that are visible to the caller; None for all."""
    tags: frozenset[str] | None = None
    """Tags, of which a tool, resource or prompt that is visible to the caller has at least one; None for all."""
    profiles: tuple[str, ...] | None = None
    """Names and patterns of the profiles to which a key is limited; None for those that are given by scopes and claims.
    """
    scopes: frozenset[str] = _EMPTY
    """Scopes that the caller was granted."""
    tool_scopes: ToolScopes = field(default=_NO_SCOPES, compare=False)
    """Scopes that the tools require."""
    sees_all: bool = field(init=False, compare=False, repr=False)
    """True if everything is visible to the caller."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sees_all", self.tools is None and self.tags is None)

    def shows(self, item: Published) -> bool:
        """True if a tool, resource or prompt is visible to the caller."""
        return (self.tools is None or matches(self.tools, item.name)) and (
            self.tags is None or not self.tags.isdisjoint(item.tags)
        )

    def sees_all_of(self, name: str) -> bool:
        """True if nothing of a name is hidden from the caller: what is not found does not exist for anybody."""
        return self.sees_all and not self.missing(name)

    def missing(self, tool: str) -> frozenset[str]:
        """Return the scopes that a tool requires and the caller was not granted."""
        return _EMPTY if self.tool_scopes is _NO_SCOPES else self.tool_scopes.of(tool) - self.scopes


EVERYTHING = Access()
"""Access without a credential: over stdio, and over HTTP without authentication."""


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """True if a name matches one of the names and patterns, case-sensitively."""
    return _compiled(patterns).match(name) is not None


@lru_cache(_CACHED_NAMES)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or "(?!)")
