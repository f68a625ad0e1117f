"""What keys and scopes say of tools that are not there: as a rule a name that is misspelt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.server.auth.access import unmatched

if TYPE_CHECKING:
    from bridge.server.auth.auth import Auth
    from bridge.tools.toolbox import ToolBox

_logger = logging.getLogger("bridge.server.auth")


class Unmatched:
    """Warns of names and patterns that no tool matches, each when it is found so.

    Args:
        auth: What names tools.
        tools: The tools. While there are none, they are still to come.
    """

    def __init__(self, auth: Auth, tools: ToolBox) -> None:
        self._auth = auth
        self._tools = tools
        self._scopes: frozenset[str] = frozenset()
        self._keys: frozenset[str] = frozenset()
        self._is_held = False

    def hold(self) -> None:
        """Say nothing until `release`: further tools are about to come."""
        self._is_held = True

    def release(self) -> None:
        """Warn from now on, and now."""
        self._is_held = False
        self.look()

    def look(self) -> None:
        """Warn of what has no tool now and had one, or was not there, when looked at before."""
        names = [tool.name for tool in self._tools]
        if self._is_held or not names:
            return
        scopes, keys = unmatched(self._auth.tool_scopes.patterns, names), unmatched(self._auth.key_tools, names)
        for pattern in sorted(scopes - self._scopes):
            _logger.warning("no tool matches %r, which is to need a scope: a tool of another name needs none", pattern)
        for pattern in sorted(keys - self._keys):
            _logger.warning("no tool matches %r, which a key is for: it opens no tool of another name", pattern)
        self._scopes, self._keys = scopes, keys
