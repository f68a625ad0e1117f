"""Locks: the lock files that a configuration names, and what its servers are held to by them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from bridge.client.config.document import kind_of
from bridge.client.config.variables import ExpansionError
from bridge.client.tool_pins import PinMode, ServerPins, load_pins
from bridge.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.config.document import Findings
    from bridge.client.config.schema import ServerEntry
    from bridge.client.config.variables import Variables

_MODES = get_args(PinMode)


class Held(NamedTuple):
    """What one server is held to."""

    lock: str | None = None
    """The lock file; None for none."""
    pins: ServerPins | None = None
    """What is in it of the server; of a server that is not in it, nothing was looked at."""


class Locks:
    """The lock files of one configuration, each read once.

    Args:
        said: What the root of the configuration says, for servers that say nothing themselves.
        variables: What references can be replaced by.
        findings: Where problems go.
        are_read: Whether the files are there already; whoever writes them only wants to know which.
    """

    def __init__(self, said: Mapping[str, Any], variables: Variables, findings: Findings, *, are_read: bool) -> None:
        self._variables = variables
        self._findings = findings
        self._are_read = are_read
        self._read: dict[tuple[str, PinMode], Mapping[str, ServerPins]] = {}
        self._lock: str | None = None
        self._mode: PinMode = "refuse"
        if (lock := said.get("pins")) is not None:
            self._lock = lock if isinstance(lock, str) else None
            if self._lock is None:
                findings.problem(f"should be the path of a lock file, not {kind_of(lock)}", key="pins")
        if (mode := said.get("pinMode")) is not None:
            if mode in _MODES:
                self._mode = mode
            else:
                findings.problem("should be 'refuse' or 'flag'", key="pinMode")

    def held(self, server: str, entry: ServerEntry, written: Mapping[str, str]) -> Held:
        """What a server is held to.

        Args:
            server: Its name.
            entry: What it says itself.
            written: How each key was written.
        """
        text = self._lock if entry.pins is None else entry.pins
        if text is None:
            if entry.pin_mode is not None:
                self._findings.warning("has no use without 'pins'", server=server, key=written["pinMode"])
            return Held()
        key = "pins" if entry.pins is None else written["pins"]
        place = {"key": key} if entry.pins is None else {"key": key, "server": server}
        try:
            expanded = self._variables.expand(text)
        except ExpansionError as error:
            for message in error.messages:
                self._findings.problem(message, **place)
            return Held()
        path = str(self._variables.workspace_folder / Path(expanded.value))
        if not self._are_read:
            return Held(path)
        mode = entry.pin_mode or self._mode
        try:
            if (path, mode) not in self._read:
                self._read[path, mode] = load_pins(path, mode=mode)
        except ConfigError as error:
            told = "; ".join(problem.message for problem in error.problems)
            self._findings.problem(f"{expanded.shown!r} {told} (write it with `bridge pin`)", **place)
            return Held(path)
        return Held(path, self._read[path, mode].get(server, ServerPins(tools={}, mode=mode)))
