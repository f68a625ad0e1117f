"""Conversion of a server's entry to its transport: references are expanded, files read, values checked.

Values in environment files are literal: ``${VAR}`` is not expanded there.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bridge.client.config.credentials import read_auth
from bridge.client.config.servers import HttpTransport, StdioTransport
from bridge.client.config.variables import Expanded, ExpansionError
from bridge.client.redaction import HIDDEN, redact_command, redact_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.client.config.document import Diagnostics
    from bridge.client.config.schema import ServerEntry
    from bridge.client.config.variables import Variables

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")

_BLANK_OR_CONTROL = re.compile(r"[\x00-\x20\x7f]")

_NOTHING = Expanded("", "")


@dataclass(frozen=True, slots=True)
class TransportReader:
    """Creates the transport of one server; problems go to the diagnostics."""

    server: str
    """The server's name."""
    variables: Variables
    """Values of references."""
    written: Mapping[str, str]
    """Original spelling of each key."""
    findings: Diagnostics
    """Collects problems."""

    def stdio(self, entry: ServerEntry) -> StdioTransport:
        """Create the transport of a child process."""
        command = self.expand(entry.command or "", "command")
        if not command.value.strip() and command is not _NOTHING:
            self.problem("is empty: give the program to start, or a 'url'", "command")
        args = [self.expand(arg, "args", f"[{index}]") for index, arg in enumerate(entry.args or ())]
        cwd = None if entry.cwd is None else self.path(entry.cwd, "cwd").value
        self._check_location(command.value, cwd)
        inherited = entry.inherit_env or "minimal"
        return StdioTransport(
            command.value,
            args=tuple(arg.value for arg in args),
            env=self._environment(entry),
            cwd=cwd,
            inherit_env=tuple(inherited) if isinstance(inherited, list) else inherited,
            shown=redact_command([command.shown, *(arg.shown for arg in args)]).shown,
            expanded=_secrets((command, *args)),
        )

    def _check_location(self, command: str, cwd: str | None) -> None:
        """Warn if the program is not found, but is in the configuration's folder."""
        path, folder = Path(command), self.variables.workspace_folder
        is_of_path = path.name == command or path.is_absolute()
        if is_of_path or (Path.cwd() / (cwd or "") / path).exists():
            return
        if (folder / path).is_file():
            message = "is in the configuration's folder, not in the working directory: write ${workspaceFolder}/…"
            self.findings.warning(message, server=self.server, key=self._written("command"))

    def http(self, entry: ServerEntry) -> HttpTransport:
        """Create the transport of a URL."""
        url = self.expand(entry.url or "", "url")
        if url is not _NOTHING and (complaint := _url_complaint(url.value)):
            self.problem(complaint, "url")
        headers = {name: self._header(name, value) for name, value in (entry.headers or {}).items()}
        if len({name.lower() for name in headers}) < len(headers):
            self.problem("a header is given twice in different case: remove one", "headers")
        if entry.auth is not None and any(name.lower() == "authorization" for name in headers):
            self.problem("is given together with an 'Authorization' header: keep one of them", "auth")
        texts = _Texts(self)
        auth = read_auth(entry.auth, texts) if entry.auth is not None else None
        if isinstance(auth, str):
            headers["Authorization"] = self._header_value(Expanded(f"Bearer {auth}", HIDDEN, (auth,)), "auth")
        return HttpTransport(
            url.value,
            headers={name: value.value for name, value in headers.items()},
            auth=None if isinstance(auth, str) else auth,
            kind=None if entry.type == "stdio" else entry.type,
            shown=redact_url(url.shown).shown,
            expanded=_secrets((url, *headers.values(), *texts.read)),
        )

    def _environment(self, entry: ServerEntry) -> dict[str, str]:
        environment = self._environment_file(entry.env_file) if entry.env_file is not None else {}
        for name, text in (entry.env or {}).items():
            if not name or "=" in name or "\0" in name:
                self.problem("is not a valid variable name", "env", f".{name}")
            elif text is None:
                environment.pop(name, None)
                place = f"{self._written('env')}.{name}"
                self.findings.warning("null removes the variable", server=self.server, key=place)
            else:
                environment[name] = self.expand(text, "env", f".{name}").value
        return environment

    def _environment_file(self, text: str) -> dict[str, str]:
        path = self.path(text, "envFile")
        try:
            return read_environment_file(path.value) if path is not _NOTHING else {}
        except OSError as error:
            self.problem(f"cannot read {path.shown!r}: {error.strerror or type(error).__name__}", "envFile")
        except ValueError:
            self.problem(f"{path.shown!r} is not a UTF-8 text file", "envFile")
        return {}

    def path(self, text: str, key: str, place: str = "") -> Expanded:
        """Expand a path, relative to the workspace folder."""
        path = self.expand(text, key, place)
        if path is _NOTHING:
            return path
        return Expanded(str(self.variables.workspace_folder / Path(path.value)), path.shown)

    def _header(self, name: str, text: str) -> Expanded:
        if not _HEADER_NAME.fullmatch(name):
            self.problem("is not a valid header name", "headers", f".{name}")
        return self._header_value(self.expand(text, "headers", f".{name}"), "headers", f".{name}")

    def _header_value(self, value: Expanded, key: str, place: str = "") -> Expanded:
        if not _HEADER_VALUE.fullmatch(value.value):
            message = "is not a valid header value: it has a line break, a blank at an end, or a non-ASCII character"
            self.problem(message, key, place)
        return value

    def expand(self, text: str, key: str, place: str = "") -> Expanded:
        """Expand a text's references; empty after a problem was reported."""
        try:
            expanded = self.variables.expand(text)
        except ExpansionError as error:
            for message in error.messages:
                self.problem(message, key, place)
            return _NOTHING
        if "\0" in expanded.value or not _is_encodable(expanded.value):
            self.problem("contains a character that cannot be passed to a program", key, place)
            return _NOTHING
        return expanded

    def _written(self, key: str) -> str:
        return self.written.get(key, key)

    def problem(self, message: str, key: str, place: str = "") -> None:
        """Report a problem."""
        self.findings.problem(message, server=self.server, key=self._written(key) + place)


class _Texts:
    """Reads the texts under ``auth`` and records them (`CredentialReader`)."""

    def __init__(self, reader: TransportReader) -> None:
        self._reader = reader
        self.read: list[Expanded] = []

    def text(self, text: str, key: str, place: str = "") -> str | None:
        """Expand a text's references; None after a problem was reported."""
        self.read.append(self._reader.expand(text, key, place))
        return self.read[-1].value if self.read[-1] is not _NOTHING else None

    def file(self, text: str, key: str, place: str = "") -> str | None:
        """Read a file; None after a problem was reported."""
        path = self._reader.path(text, key, place)
        try:
            return Path(path.value).read_text(encoding="ascii") if path is not _NOTHING else None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            self.problem(f"cannot read {path.shown!r}: {reason}", key, place)
        except ValueError:
            self.problem(f"{path.shown!r} is not a PEM file", key, place)
        return None

    def problem(self, message: str, key: str, place: str = "") -> None:
        """Report a problem."""
        self._reader.problem(message, key, place)


def _url_complaint(url: str) -> str | None:
    if not url:
        return "is empty: give the URL of the server, or a 'command'"
    if not url.lower().startswith(("http://", "https://")):
        return "must start with http:// or https://"
    if _BLANK_OR_CONTROL.search(url):
        return "contains a blank or a control character: remove it, or write it as %20"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return (
            "is not a valid URL: check the host and the port, and write '/', '?', '#' and '@' of a password as %2F, …"
        )
    return None if parts.hostname else "has no host"


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _secrets(texts: Iterable[Expanded]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(secret for text in texts for secret in text.secrets))


def read_environment_file(path: str) -> dict[str, str]:
    """Read the variables of an environment file (python-dotenv syntax); names without ``=`` are ignored.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not UTF-8 text, or the path is invalid.
    """
    from dotenv import dotenv_values  # noqa: PLC0415 - only for configurations with such a file

    text = Path(path).read_text(encoding="utf-8-sig")
    if "\0" in text:
        raise ValueError("a variable cannot contain a NUL character")
    values = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}
