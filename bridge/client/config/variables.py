"""Expansion: ``${VAR}`` and its relatives in the texts of a configuration.

    ${VAR}  ${env:VAR}                         a variable of the environment; it must be set
    ${VAR:-default}  ${env:VAR:-default}       the default where the variable is not set, or empty
    ${input:id}                                a value that a person gives
    ${workspaceFolder}  ${workspaceFolderBasename}  ${userHome}  ${pathSeparator}  ${/}
    $${                                        a literal ${

An expanded value is never expanded again, so what a variable holds cannot reach for another. ``$VAR`` without braces is
plain text.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bridge.client.inputs import Inputs

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<reference>[^{}]*)(?P<closed>\})?")
_VARIABLE = re.compile(r"(?:(?P<plain>[A-Za-z_]\w*)|env:(?P<env>[^:=\s]+))(?P<rest>:-(?P<default>.*))?", re.DOTALL)
_FOREIGN = re.compile(r"(?P<kind>[A-Za-z]+):")
_PUBLIC_VARIABLES = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER", "USERPROFILE"})
_FORMS = "${VAR}, ${VAR:-default}, ${env:VAR}, ${input:id}, ${workspaceFolder} and ${userHome}"


class ExpansionError(ValueError):
    """A text that cannot be expanded; the messages quote names, never values."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__("; ".join(messages))
        self.messages = messages


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text with its references replaced."""

    value: str
    """The text to use."""
    shown: str
    """The text to show: what came from a variable or a person is still a reference."""
    secrets: tuple[str, ...] = ()
    """What came from a variable or a person."""


@dataclass(frozen=True, slots=True)
class Variables:
    """What references can be replaced by."""

    environ: Mapping[str, str]
    """The variables."""
    workspace_folder: Path
    """The folder that the configuration is about."""
    inputs: Inputs
    """What a person gives."""

    def expand(self, text: str) -> Expanded:
        """Replace the references of a text.

        Raises:
            ExpansionError: One or more have no value, or are malformed.
        """
        values: list[str] = []
        shown: list[str] = []
        secrets: list[str] = []
        messages: list[str] = []
        end = 0
        for match in _REFERENCE.finditer(text):
            between = text[end : match.start()]
            end = match.end()
            part = self._resolve(match, messages)
            values += between, part.value
            shown += between, part.shown
            secrets += part.secrets
        if messages:
            raise ExpansionError(list(dict.fromkeys(messages)))
        return Expanded("".join((*values, text[end:])), "".join((*shown, text[end:])), tuple(secrets))

    def _resolve(self, match: re.Match[str], messages: list[str]) -> Expanded:
        if match["reference"] is None:
            return Expanded("${", "${")
        if match["closed"] is None:
            messages.append("a '${' has no '}' of its own: write $${ for a literal ${")
            return Expanded("", "")
        reference = match["reference"]
        if (known := self._known(reference)) is not None:
            return Expanded(known, known)
        if reference.startswith("input:"):
            return self._input(reference, messages)
        if variable := _VARIABLE.fullmatch(reference):
            return self._variable(variable, messages)
        foreign = _FOREIGN.match(reference)
        named = f"'${{{foreign['kind']}:…}}'" if foreign else "a '${…}'"
        messages.append(f"{named} cannot be expanded; there are {_FORMS}, and $${{ for a literal ${{")
        return Expanded("", "")

    def _known(self, reference: str) -> str | None:
        match reference:
            case "workspaceFolder":
                return str(self.workspace_folder)
            case "workspaceFolderBasename":
                return self.workspace_folder.name
            case "userHome":
                return self.environ.get("HOME") or self.environ.get("USERPROFILE")
            case "pathSeparator" | "/":
                return os.sep
            case _:
                return None

    def _input(self, reference: str, messages: list[str]) -> Expanded:
        input_id = reference.removeprefix("input:")
        value = self.inputs.value(input_id) if input_id else None
        if value is None:
            messages.append(self.inputs.missing(input_id) if input_id else "'${input:}' names no input")
            return Expanded("", "")
        return Expanded(value, f"${{{reference}}}", (value,))

    def _variable(self, match: re.Match[str], messages: list[str]) -> Expanded:
        name = match["plain"] or match["env"]
        value = self.environ.get(name)
        if match["rest"] is not None and not value:
            value = match["default"]
        if value is None:
            messages.append(f"the variable {name!r} is not set: set it, or write ${{{name}:-default}}")
            return Expanded("", "")
        if name in _PUBLIC_VARIABLES:
            return Expanded(value, value)
        return Expanded(value, f"${{{name}}}", (value,))
