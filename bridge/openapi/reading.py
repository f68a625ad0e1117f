"""Read the text of an OpenAPI document: JSON or YAML, from a file or a URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from pydantic_core import from_json

from bridge.client.transports.received_data import SUCCESS, default_ssl_context
from bridge.errors import DefinitionError
from bridge.redaction import redact_url
from bridge.yaml_reader import MAX_DEPTH, read_yaml

if TYPE_CHECKING:
    from bridge.types import Json

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a document."""
FETCH_SECONDS = 30.0
"""Maximum seconds to connect to the server of a document, and of each read."""

_MAX_VALUES = 5_000_000
_CHARS_OF_A_VALUE = 16
"""Characters of a text that count as one further value."""


def read_document(source: Mapping[str, Any] | str | Path) -> tuple[Json, str]:
    """Read a document; returns it with a name for messages.

    Args:
        source: The document itself, the path of a file, or an ``http(s)://`` URL.

    Raises:
        DefinitionError: It cannot be read, or is neither JSON nor YAML.
        MissingExtraError: It is YAML, and ``pyyaml`` is not installed.
    """
    if isinstance(source, Mapping):
        return _plain(source, "the OpenAPI document"), "the OpenAPI document"
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        shown = redact_url(source).shown
        return parse_document(_fetched(source, shown), shown), shown
    path = Path(source).expanduser()
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise DefinitionError(f"{path} is longer than {MAX_DOCUMENT_BYTES // 2**20} MiB")
        return parse_document(path.read_bytes(), str(path)), str(path)
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read: {error.strerror or error}") from error


def parse_document(text: bytes, source: str) -> Json:
    """Parse JSON or YAML; raises as `read_document` does."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        return _plain(from_json(text, allow_inf_nan=False), source)
    except ValueError as error:
        if text.lstrip()[:1] == b"{" or source.endswith(".json"):
            raise DefinitionError(f"{source} is not valid JSON: {error}") from error
    return _plain(read_yaml(text, source), source)


def _fetched(url: str, shown: str) -> bytes:
    try:
        with (
            httpx2.Client(timeout=FETCH_SECONDS, verify=default_ssl_context(), follow_redirects=False) as client,
            client.stream("GET", url, headers={"accept-encoding": "identity"}) as response,
        ):
            if response.status_code not in SUCCESS:
                hint = "; redirects are not followed: give the final URL" if response.has_redirect_location else ""
                raise DefinitionError(f"{shown} answered with status {response.status_code}{hint}")
            text = bytearray()
            for chunk in response.iter_raw():
                text += chunk
                if len(text) > MAX_DOCUMENT_BYTES:
                    raise DefinitionError(f"{shown} is longer than {MAX_DOCUMENT_BYTES // 2**20} MiB")
            return bytes(text)
    except httpx2.TransportError as error:
        host = urlsplit(url).netloc.rpartition("@")[2]
        raise DefinitionError(f"{shown} cannot be fetched: {type(error).__name__} for {host}") from error
    except httpx2.InvalidURL as error:
        raise DefinitionError(f"{shown} is not a valid URL") from error


def _plain(document: object, source: str) -> Json:
    """Return a document with text keys, and without references of YAML to what contains them."""
    plain = _Plain(source).value(document, 0)
    if not isinstance(plain, dict):
        raise DefinitionError(f"{source} is not an OpenAPI document: it is not an object")
    return plain


class _Plain:
    """Copies JSON values; those that YAML shares remain shared, and count at each place, as when they are written."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._copies: dict[int, tuple[Any, int] | None] = {}
        """Copy of each object and the values in it, by its id; None while it is copied."""
        self._left = _MAX_VALUES

    def value(self, value: Any, depth: int) -> Any:
        """Copy one value."""
        if not isinstance(value, Mapping | list | tuple):
            if isinstance(value, str):
                self._count(len(value) // _CHARS_OF_A_VALUE)
            if value is None or isinstance(value, str | bool | int | float):
                return value
            raise DefinitionError(f"{self._source} has a value that is not JSON, of type {type(value).__name__!r}")
        if id(value) in self._copies:
            if (known := self._copies[id(value)]) is None:
                raise DefinitionError(f"{self._source} has an object that contains itself")
            self._count(known[1])
            return known[0]
        left = self._left
        self._count(len(value))
        if depth > MAX_DEPTH:
            raise self._too_large()
        self._copies[id(value)] = None
        copy: Any
        if isinstance(value, Mapping):
            copy = {self._key(key): self.value(item, depth + 1) for key, item in value.items()}
        else:
            copy = [self.value(item, depth + 1) for item in value]
        self._copies[id(value)] = copy, left - self._left
        return copy

    def _key(self, key: Any) -> str:
        text = key if isinstance(key, str) else str(key)
        self._count(len(text) // _CHARS_OF_A_VALUE)
        return text

    def _count(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise self._too_large()

    def _too_large(self) -> DefinitionError:
        return DefinitionError(f"{self._source} is nested too deeply, or has too many values")
