"""Variable references and inputs in the texts of a configuration, and the reader that expands those of an entry.

    ${VAR}  ${env:VAR}                         an environment variable; it must be set
    ${VAR:-default}  ${env:VAR:-default}       the default if the variable is unset or empty
    ${input:id}                                a value from the user (VS Code's ``inputs``)
    ${workspaceFolder}  ${workspaceFolderBasename}  ${userHome}  ${pathSeparator}  ${/}
    $${                                        a literal ${

Expanded values are not expanded again, so a variable cannot refer to another one. ``$VAR`` without braces is literal.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bridge.client.config.document import json_type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.client.config.document import Diagnostics

_T = TypeVar("_T")
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<reference>[^{}]*)(?P<closed>\})?")
_VARIABLE = re.compile(r"(?:(?P<plain>[A-Za-z_]\w*)|env:(?P<env>[^:=\s]+))(?P<rest>:-(?P<default>.*))?", re.DOTALL)
_FOREIGN = re.compile(r"(?P<kind>[A-Za-z]+):")
_PUBLIC_VARIABLES = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER", "USERPROFILE"})
_FORMS = "${VAR}, ${VAR:-default}, ${env:VAR}, ${input:id}, ${workspaceFolder} and ${userHome}"


class ExpansionError(ValueError):
    """A text cannot be expanded; the messages contain names, never values."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__("; ".join(messages))
        self.messages = messages


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text with expanded references."""

    value: str
    """The expanded text."""
    shown: str
    """The text to display, with references to variables and inputs unexpanded."""
    secrets: tuple[str, ...] = ()
    """Values of variables and inputs."""
    is_missing: bool = False
    """True if the text could not be expanded, which was reported."""


@dataclass(frozen=True, slots=True)
class Variables:
    """Values of references."""

    environ: Mapping[str, str]
    """Environment variables."""
    workspace_folder: Path
    """The configuration's folder."""
    inputs: Inputs
    """Values from the user."""
    are_editable: bool = True
    """False if the user cannot change the references, but only the variables."""

    def expand(self, text: str) -> Expanded:
        """Expand the references of a text.

        Raises:
            ExpansionError: A reference has no value or is malformed.
        """
        parts: list[Expanded] = []
        messages: list[str] = []
        end = 0
        for match in _REFERENCE.finditer(text):
            between = text[end : match.start()]
            end = match.end()
            try:
                parts += Expanded(between, between), self._resolve(match)
            except ExpansionError as error:
                messages += error.messages
        if messages:
            raise ExpansionError(list(dict.fromkeys(messages)))
        return Expanded(
            "".join(part.value for part in parts) + text[end:],
            "".join(part.shown for part in parts) + text[end:],
            tuple(secret for part in parts for secret in part.secrets),
        )

    def _resolve(self, match: re.Match[str]) -> Expanded:
        """Expand one reference; raises as `expand`."""
        reference = match["reference"]
        if reference is None:
            return Expanded("${", "${")
        if match["closed"] is None:
            raise ExpansionError(["a '${' has no matching '}': write $${ for a literal ${"])
        if (known := self._known(reference)) is not None:
            return Expanded(known, known)
        if reference.startswith("input:"):
            return self._input(reference)
        if variable := _VARIABLE.fullmatch(reference):
            return self._variable(variable)
        foreign = _FOREIGN.match(reference)
        named = f"'${{{foreign['kind']}:…}}'" if foreign else "a '${…}'"
        raise ExpansionError([f"{named} cannot be expanded; supported are {_FORMS}, and $${{ for a literal ${{"])

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

    def _input(self, reference: str) -> Expanded:
        input_id = reference.removeprefix("input:")
        if not input_id:
            raise ExpansionError(["'${input:}' has no input id"])
        value = self.inputs.value(input_id)
        return Expanded(value, f"${{{reference}}}", (value,))

    def _variable(self, match: re.Match[str]) -> Expanded:
        name = match["plain"] or match["env"]
        value = self.environ.get(name)
        if match["rest"] is not None and not value:
            value = match["default"]
        if value is None:
            remedy = f"set it, or write ${{{name}:-default}}" if self.are_editable else "set it in the environment"
            raise ExpansionError([f"the variable {name!r} is not set: {remedy}"])
        return Expanded(value, value) if name in _PUBLIC_VARIABLES else Expanded(value, f"${{{name}}}", (value,))


MISSING = Expanded("", "", is_missing=True)
"""A text that could not be expanded."""


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
    translated: Mapping[str, str] = field(default_factory=dict)
    """Keys of a host; see `bridge.client.config.document.JsonObject`."""

    def expand(self, text: str, key: str, place: str = "") -> Expanded:
        """Expand a text's references; empty after a problem was reported."""
        variables = self.variables
        if key + place in self.translated and place:  # the host has the name of a variable, without a reference
            variables = replace(variables, are_editable=False)
        try:
            expanded = variables.expand(text)
        except ExpansionError as error:
            for message in error.messages:
                self.problem(message, key, place)
            return MISSING
        if "\0" in expanded.value or not _is_encodable(expanded.value):
            self.problem("contains a character that cannot be passed to a program", key, place)
            return MISSING
        return expanded

    def path(self, text: str, key: str, place: str = "") -> Expanded:
        """Expand a path, relative to the workspace folder."""
        path = self.expand(text, key, place)
        whole = str(self.variables.workspace_folder / Path(path.value))
        return path if path.is_missing else Expanded(whole, path.shown)

    def file(self, text: str, key: str, place: str = "", *, read: Callable[[str], _T], kind: str) -> _T | None:
        """Read a file of a kind; None after a problem was reported."""
        path = self.path(text, key, place)
        try:
            return None if path.is_missing else read(path.value)
        except OSError as error:
            self.problem(f"cannot read {path.shown!r}: {error.strerror or type(error).__name__}", key, place)
        except ValueError:
            self.problem(f"{path.shown!r} is not {kind}", key, place)
        return None

    def problem(self, message: str, key: str | None = None, place: str = "") -> None:
        """Report a problem of a key, or of the whole entry."""
        written = None if key is None else self.spelled(key, place)
        self.diagnostics.problem(message, server=self.server, key=written)

    def warning(self, message: str, key: str, place: str = "") -> None:
        """Report a warning."""
        self.diagnostics.warning(message, server=self.server, key=self.spelled(key, place))

    def spelled(self, key: str, place: str = "") -> str:
        """Path in the file of a key, and of a place in its value; for an absent key as the host spells it."""
        whole = self.translated.get(key + place)
        return whole or self.written.get(key, key) + place


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


class InputDefinition(BaseModel):
    """One value to ask the user for."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)

    id: str = Field(min_length=1, description="The name that ${input:…} uses.")
    description: str | None = Field(default=None, description="Prompt for the user.")
    default: str | None = Field(default=None, description="Default value.")
    password: bool = Field(default=False, description="Hide the typed text.")
    options: list[Any] | None = Field(default=None, description="Choices.")


InputSource: TypeAlias = "Mapping[str, str] | Callable[[InputDefinition], str | None]"
"""Source of values: a mapping by id, or a function that asks the user and returns None without an answer."""


def input_variable(input_id: str) -> str:
    """Return the environment variable with the value of an input."""
    return "BRIDGE_INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", input_id).upper()


class Inputs:
    """Values of the inputs, each requested once and only if needed.

    A value comes from the source, else from the environment (``api-key`` from ``BRIDGE_INPUT_API_KEY``), else from the
    definition's default.
    """

    def __init__(
        self, definitions: Iterable[InputDefinition], source: InputSource | None, environ: Mapping[str, str]
    ) -> None:
        self._definitions = {definition.id: definition for definition in definitions}
        self._source = source
        self._environ = environ
        self._values: dict[str, str | None] = {}
        self._taken: dict[str, str] = {}
        """IDs of the inputs whose values are from variables, by these."""

    def value(self, input_id: str) -> str:
        """Return the value of an input.

        Raises:
            ExpansionError: It has none, or its variable is that of another input, too.
        """
        definition = self._definitions.get(input_id) or InputDefinition(id=input_id)
        variable = input_variable(input_id)
        if input_id not in self._values:
            given = self._source(definition) if callable(self._source) else (self._source or {}).get(input_id)
            if given is None and variable in self._environ:
                given = self._environ[variable]
                other = self._taken.setdefault(variable, input_id)
                if other != input_id:
                    raise ExpansionError([f"the inputs {other!r} and {input_id!r} both have {variable}: rename one"])
            self._values[input_id] = definition.default if given is None else given
        if (value := self._values[input_id]) is None:
            described = f" ({definition.description!r})" if definition.description else ""
            missing = f"the input {input_id!r}{described} has no value: pass it in inputs=, or set {variable}"
            raise ExpansionError([missing])
        return value


def read_inputs(raw: Any, diagnostics: Diagnostics) -> tuple[InputDefinition, ...]:
    """Read the definitions of a configuration."""
    if raw is None:
        return ()
    if not isinstance(raw, list):
        diagnostics.problem(f"must be a list, not {json_type_name(raw)}", key="inputs")
        return ()
    definitions: dict[str, InputDefinition] = {}
    for index, item in enumerate(raw):
        place = f"inputs[{index}]"
        try:
            definition = InputDefinition.model_validate(item)
        except ValidationError as error:
            diagnostics.invalid(error, within=place, written={})
            continue
        if definition.id in definitions:
            diagnostics.problem(f"two inputs have the id {definition.id!r}: rename one", key=f"{place}.id")
        definitions[definition.id] = definition
    return tuple(definitions.values())
