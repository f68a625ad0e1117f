"""A process of a server for each caller, where a configuration asks for it (``"processPer": "caller"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from bridge.client.callers import CallerAuth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.errors import ServerAuthError
    from bridge.tools.caller import Caller


class CallerProcess(CallerAuth):
    """The caller of a process, which needs no credential.

    Args:
        owner: Identity of the caller.
    """

    def __init__(self, owner: tuple[str, str]) -> None:
        self.owner = owner

    async def prepare(self) -> None:
        """Do nothing: there is no credential."""

    async def refused(self, error: ServerAuthError) -> ServerAuthError:
        """Return the error: there is no credential to forget."""
        return error


class CallerProcesses:
    """The callers of a server with a process of their own; a `bridge.client.callers.CallerAuths`."""

    def __init__(self) -> None:
        self._callers: WeakValueDictionary[tuple[str, str], CallerProcess] = WeakValueDictionary()

    def of(self, caller: Caller | None, headers: Mapping[str, str]) -> CallerProcess | None:  # noqa: ARG002 - none
        """Return what a caller's process is found by; None for callers without an identity, who share one process."""
        if caller is None:
            return None
        found = self._callers.get(caller.identity)
        if found is None:
            found = self._callers[caller.identity] = CallerProcess(caller.identity)
        return found
