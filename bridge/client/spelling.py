"""Spelling: the keys and the transports of one server as hosts write them, brought to this package's own.

Known are the spellings of Claude, Cursor, VS Code, FastMCP, Windsurf, Cline, Copilot and Gemini. Our own keys are
written in camelCase, and ``snake_case`` says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_camel

from bridge.client.auth.entry import spelled_auth
from bridge.client.config.schema import KEYS
from bridge.client.jsonc import repeated_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.client.config.document import Findings

_KEY_SPELLINGS = {
    "transport": "type",
    "transportType": "type",
    "serverUrl": "url",
    "httpUrl": "url",
    "disabledTools": "exclude",
    "excludeTools": "exclude",
    "enabledTools": "include",
    "includeTools": "include",
    "enabled": "disabled",
    "oauth": "auth",
}
_TRANSPORT_SPELLINGS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "httpsse": "sse",
}


@dataclass(frozen=True, slots=True)
class SpelledEntry:
    """A server's entry in our own spelling."""

    values: Mapping[str, Any]
    """What is said, by key; a key that holds null is left out."""
    written: Mapping[str, str]
    """How each key was written."""
    meant: Mapping[str, str]
    """What each key that is not known may be meant to be."""


def canonical_key(key: str) -> str | None:
    """Our own spelling of a key of a server; None for one that is not known."""
    camel = to_camel(key) if "_" in key else key
    camel = _KEY_SPELLINGS.get(camel, camel)
    return camel if camel in KEYS else None


def is_disabled(raw: Mapping[str, Any]) -> bool:
    """Whether a server is switched off, and so not to be read."""
    return raw.get("disabled") is True or raw.get("enabled") is False


def spelled(name: str, raw: Mapping[str, Any], findings: Findings) -> SpelledEntry:
    """Bring the keys and the transport of one server to our own spelling."""
    for path in (*repeated_keys(raw), *(f"{key}.{inner}" for key in raw for inner in repeated_keys(raw[key]))):
        findings.problem("stands twice: remove one", server=name, key=path)
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    meant: dict[str, str] = {}
    for key, value in raw.items():
        canonical = canonical_key(str(key))
        if canonical is None:
            if (near := nearest(str(key), (*KEYS, *_KEY_SPELLINGS))) is not None:
                meant[str(key)] = near
            suggestion = f"; did you mean {near!r}?" if near is not None else ""
            findings.warning(f"not known, and ignored{suggestion}", server=name, key=str(key))
        elif value is not None:
            said = _canonical_value(canonical, str(key), value)
            if canonical == "auth":
                said = spelled_auth(name, str(key), said, findings)
            if canonical in values and values[canonical] != said:
                findings.problem(f"contradicts {written[canonical]!r}: keep one of them", server=name, key=str(key))
            values[canonical] = said
            written.setdefault(canonical, str(key))
    if written.get("url") == "httpUrl" and "type" not in values:
        values["type"], written["type"] = "http", "httpUrl"
    return SpelledEntry(values, written, meant)


def _canonical_value(canonical: str, key: str, value: Any) -> Any:
    if canonical == "disabled" and key == "enabled" and isinstance(value, bool):
        return not value
    if canonical == "type" and isinstance(value, str):
        letters = "".join(char for char in value.lower() if char.isalpha())
        return _TRANSPORT_SPELLINGS.get(letters, value)
    return value


def nearest(key: str, known: Iterable[str]) -> str | None:
    """Which of the known keys one that is not may be meant to be; None for none."""
    spellings = {spelling.lower(): spelling for spelling in known}
    near = get_close_matches(key.lower().replace("_", ""), spellings, n=1, cutoff=0.75)
    return spellings[near[0]] if near else None
