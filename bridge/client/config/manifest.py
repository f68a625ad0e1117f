"""Manifests of MCP Bundles (MCPB): what a server is, how a host starts it, and what its users are asked for.

Manifests 0.1 to 0.4 are read.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bridge.client.config.variables import InputDefinition, input_variable
from bridge.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.config.document import Diagnostics
    from bridge.client.config.variables import InputSource
    from bridge.types import Json

MANIFEST = "manifest.json"
"""Name of the manifest in a bundle."""
SettingKind: TypeAlias = Literal["string", "number", "boolean", "directory", "file"]
"""Types of what users are asked for."""
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_SETTING = "user_config."
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_OF_A_VARIABLE = re.compile(r"[^A-Za-z0-9]+")
_PLAIN_NAME, _PLAIN_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*"), re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_DIGEST_CHARS = 8
_BOOLEANS = {"true": "true", "1": "true", "yes": "true", "false": "false", "0": "false", "no": "false"}
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE")
_FOLDERS = {"HOME": "", "DESKTOP": "Desktop", "DOCUMENTS": "Documents", "DOWNLOADS": "Downloads"}


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)


class Setting(_Part):
    """A value that users are asked for: an entry of ``user_config``."""

    type: SettingKind
    """Type of the value."""
    title: str = ""
    """Name for people."""
    description: str = ""
    """Meaning."""
    required: bool = False
    """True if the server needs it."""
    default: str | float | bool | list[str] | None = None
    """Value if none is given."""
    multiple: bool = False
    """True for several folders or files."""
    sensitive: bool = False
    """True for a secret."""
    min: float | None = None
    """Least number."""
    max: float | None = None
    """Greatest number."""

    @property
    def label(self) -> str:
        """Title and description, for messages."""
        return ": ".join(dict.fromkeys(filter(None, (self.title, self.description))))


class _Overrides(_Part):
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None


class _Start(_Part):
    command: str
    args: list[str] = []
    env: dict[str, str] = {}
    platform_overrides: dict[str, _Overrides] = {}


class _Server(_Part):
    type: Literal["python", "node", "binary", "uv"]
    entry_point: str
    mcp_config: _Start | None = None


class _Compatibility(_Part):
    platforms: list[str] = []


class Manifest(_Part):
    """The manifest of a bundle, as far as a host needs it."""

    name: str = Field(min_length=1)
    """Name of the bundle."""
    version: str
    """Version of the bundle."""
    server: _Server
    """The server."""
    user_config: dict[str, Setting] = {}
    """Values that users are asked for, by key."""
    compatibility: _Compatibility = _Compatibility()
    """Systems on which it runs."""

    @property
    def server_name(self) -> str:
        """Name of the server in a configuration."""
        return _NOT_OF_A_NAME.sub("-", self.name).strip("-") or "server"

    def variable(self, key: str) -> str:
        """Environment variable for the value of a key: the names of the bundle and of the key, in capitals.

        No two have the same one: names that a variable cannot spell are followed by a digest.
        """
        variable = f"{input_variable(self.server_name)}__{_NOT_OF_A_VARIABLE.sub('_', key).upper()}"
        if _PLAIN_NAME.fullmatch(self.name) and _PLAIN_KEY.fullmatch(key):
            return variable
        digest = sha256(json.dumps([self.name, key]).encode()).hexdigest()  # which has lone surrogates, too
        return f"{variable}__{digest[:_DIGEST_CHARS]}"


@dataclass(frozen=True, slots=True)
class StartedBundle:
    """A bundle as a configuration."""

    document: Json
    """The configuration, in which values of users are ``${input:…}``."""
    values: Mapping[str, str]
    """These values by their IDs."""


class _Settings:
    """Values of the settings of a manifest: from the environment, a source that asks, or the default."""

    def __init__(
        self, manifest: Manifest, system: Mapping[str, str], environ: Mapping[str, str], source: InputSource | None
    ) -> None:
        self._manifest, self._system, self._environ, self._source = manifest, system, environ, source

    def of(self, key: str, setting: Setting, diagnostics: Diagnostics) -> list[str] | None:
        """Return the values of a setting, one unless it is multiple; None for none, which may be a problem."""
        given = self._given(key, setting)
        if given is None and setting.default is not None:
            return self._default(setting)
        if not given:
            if setting.required:
                remedy = f"set the variable {self._manifest.variable(key)}"
                diagnostics.problem(f"{setting.label or 'a value'} is needed: {remedy}", key=key)
            return None
        parts = given.split(os.pathsep) if setting.multiple else [given]
        try:
            return [_checked(part, setting) for part in parts]
        except WireError as error:
            diagnostics.problem(str(error), key=key)
            return None

    def _given(self, key: str, setting: Setting) -> str | None:
        if self._source is not None and not callable(self._source) and key in self._source:
            return self._source[key]
        if (value := self._environ.get(self._manifest.variable(key))) is not None:
            return value
        if not (callable(self._source) and setting.required):
            return None
        default = None if setting.default is None else os.pathsep.join(self._default(setting))
        return self._source(
            InputDefinition(id=key, description=setting.label or None, default=default, password=setting.sensitive)
        )

    def _default(self, setting: Setting) -> list[str]:
        found = setting.default if isinstance(setting.default, list) else [setting.default]
        return [_REFERENCE.sub(lambda match: self._system.get(match[1], match[0]), _as_text(each)) for each in found]


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _checked(text: str, setting: Setting) -> str:
    """Return a value as the server gets it.

    Raises:
        WireError: It is not a value of the type; the message does not show it.
    """
    match setting.type:
        case "number":
            try:
                number = float(text)
            except ValueError:
                raise WireError("the value is not a number") from None
            if setting.min is not None and not number >= setting.min:
                raise WireError(f"the number is less than {setting.min:g}")
            if setting.max is not None and not number <= setting.max:
                raise WireError(f"the number is more than {setting.max:g}")
            return text.strip()
        case "boolean":
            if (word := _BOOLEANS.get(text.strip().lower())) is None:
                raise WireError("the value is neither true nor false")
            return word
        case "directory" | "file":
            path = Path(text).expanduser().absolute()
            if not (path.is_dir() if setting.type == "directory" else path.is_file()):
                raise WireError(f"there is no {setting.type} {str(path)!r}")
            return str(path)
        case _:
            return text


def read_manifest(document: Any, diagnostics: Diagnostics) -> Manifest | None:
    """Read a manifest; None after a problem was reported."""
    try:
        return TypeAdapter(Manifest).validate_python(document)
    except ValidationError as error:
        diagnostics.invalid(error, within=MANIFEST, written={})
        return None


def started(
    manifest: Manifest,
    folder: Path,
    diagnostics: Diagnostics,
    *,
    environ: Mapping[str, str],
    source: InputSource | None = None,
    platform: str = sys.platform,
) -> StartedBundle:
    """Return a configuration that starts the server of a bundle in its folder.

    Args:
        manifest: The manifest.
        folder: The folder with the files of the bundle.
        diagnostics: Collects problems.
        environ: Environment variables with values of users.
        source: Values by the keys of ``user_config``, or a function that asks the user.
        platform: Name of the system: ``darwin``, ``linux`` or ``win32``.
    """
    platforms = manifest.compatibility.platforms
    if platforms and platform not in platforms:
        diagnostics.problem(f"it runs on {', '.join(platforms)} only, not on {platform}", key="platforms")
    home = Path.home()
    system = {"__dirname": str(folder), "pathSeparator": os.sep, "/": os.sep}
    system |= {name: str(home / inner) for name, inner in _FOLDERS.items()}
    settings = _Settings(manifest, system, environ, source)
    values: dict[str, list[str] | None] = {
        key: settings.of(key, setting, diagnostics) for key, setting in manifest.user_config.items()
    }
    start = _start_of(manifest.server, platform)
    writer = _References(system, values)
    entry: Json = {
        "command": _own_program(writer.text(start.command), folder, platform),
        "args": [word for arg in start.args for word in writer.words(arg)],
        "env": {name: text for name, value in start.env.items() if (text := writer.value(value)) is not None},
        "cwd": _escaped(str(folder)),
    }
    if manifest.server.type == "uv":  # uv installs packages
        wanted = [name for name in environ if name.startswith("UV_") or name.upper() in _PROXIES]
        entry["inheritEnv"] = sorted(wanted)
    given = {f"{key}.{number}": each for key, found in values.items() for number, each in enumerate(found or ())}
    return StartedBundle({"mcpServers": {manifest.server_name: entry}}, given)


def _start_of(server: _Server, platform: str) -> _Start:
    """Return the command of a server on a system; by default that of its type."""
    if (given := server.mcp_config) is None:
        own = f"${{__dirname}}/{server.entry_point}"
        commands = {
            "uv": ["uv", "run", "--directory", "${__dirname}", own],
            "python": [sys.executable, own],
            "node": ["node", own],
            "binary": [own],
        }
        command, *arguments = commands[server.type]
        return _Start(command=command, args=arguments)
    changed = given.platform_overrides.get(platform, _Overrides()).model_dump(exclude_none=True)
    start = given.model_copy(update={name: value for name, value in changed.items() if value})
    is_python = server.type == "python" and start.command in {"python", "python3"}
    return start.model_copy(update={"command": sys.executable}) if is_python else start


def _own_program(command: str, folder: Path, platform: str) -> str:
    """Return a program with the folder of the bundle, if it is in it."""
    name = command if platform != "win32" or Path(command).suffix else f"{command}.exe"
    path = folder / name
    return _escaped(str(path)) if path.is_file() else command


def _escaped(text: str) -> str:
    return text.replace("${", "$${")


class _References:
    """Rewrites references of a manifest to those of a configuration."""

    def __init__(self, system: Mapping[str, str], values: Mapping[str, list[str] | None]) -> None:
        self._system, self._values = system, values

    def text(self, text: str) -> str:
        """Return a text with references; a setting without a value is empty."""
        parts: list[str] = []
        end = 0
        for match in _REFERENCE.finditer(text):
            parts += _escaped(text[end : match.start()]), self._reference(match)
            end = match.end()
        return "".join([*parts, _escaped(text[end:])])

    def _reference(self, match: re.Match[str]) -> str:
        name = match[1]
        if (known := self._system.get(name)) is not None:
            return _escaped(known)
        key = name.removeprefix(_SETTING)
        if key == name or key not in self._values:
            return _escaped(match[0])
        references = (f"${{input:{key}.{number}}}" for number in range(len(self._values[key] or ())))
        return os.pathsep.join(references)

    def words(self, text: str) -> list[str]:
        """Return an argument; several for a setting with several values, and none for one without."""
        match = _REFERENCE.fullmatch(text)
        key = match[1].removeprefix(_SETTING) if match and match[1].startswith(_SETTING) else None
        if key is None or key not in self._values:
            return [self.text(text)]
        return [f"${{input:{key}.{number}}}" for number in range(len(self._values[key] or ()))]

    def value(self, text: str) -> str | None:
        """Return a variable of the environment; None if it is only a setting without a value."""
        return self.text(text) if self.words(text) else None
