"""Reading of the values of one server's entry: references are expanded, files read, problems collected."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.client.config.variables import Expanded, ExpansionError
from bridge.client.redaction import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.config.document import Diagnostics
    from bridge.client.config.variables import Variables

_MISSING = Expanded("", "", is_missing=True)


@dataclass(frozen=True, slots=True)
class EntryReader:
    """Reads the values of one server's entry, for `Transport.from_entry`, or of the top level."""

    server: str | None
    """The server's name; None for the top level."""
    variables: Variables
    """Values of references."""
    written: Mapping[str, str]
    """Original spelling of each key."""
    diagnostics: Diagnostics
    """Collects problems."""

    @property
    def workspace_folder(self) -> Path:
        """The configuration's folder."""
        return self.variables.workspace_folder

    def expand(self, text: str, key: str, place: str = "") -> Expanded:
        """Expand a text's references; empty after a problem was reported."""
        try:
            expanded = self.variables.expand(text)
        except ExpansionError as error:
            for message in error.messages:
                self.problem(message, key, place)
            return _MISSING
        if "\0" in expanded.value or not _is_encodable(expanded.value):
            self.problem("contains a character that cannot be passed to a program", key, place)
            return _MISSING
        return expanded

    def path(self, text: str, key: str, place: str = "") -> Expanded:
        """Expand a path, relative to the workspace folder."""
        path = self.expand(text, key, place)
        return path if path.is_missing else Expanded(str(self.workspace_folder / Path(path.value)), path.shown)

    def file(self, text: str, key: str, place: str = "") -> Expanded:
        """Read a PEM file; empty after a problem was reported."""
        path = self.path(text, key, place)
        try:
            return path if path.is_missing else Expanded(Path(path.value).read_text(encoding="ascii"), HIDDEN)
        except OSError as error:
            self.problem(f"cannot read {path.shown!r}: {error.strerror or type(error).__name__}", key, place)
        except ValueError:
            self.problem(f"{path.shown!r} is not a PEM file", key, place)
        return _MISSING

    def problem(self, message: str, key: str | None = None, place: str = "") -> None:
        """Report a problem of a key, or of the whole entry."""
        written = None if key is None else self.written.get(key, key) + place
        self.diagnostics.problem(message, server=self.server, key=written)

    def warning(self, message: str, key: str, place: str = "") -> None:
        """Report a warning."""
        self.diagnostics.warning(message, server=self.server, key=self.written.get(key, key) + place)


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True
