"""Redaction of secrets in command lines and URLs for display.

Secrets are recognised by heuristics that prefer to hide too much: all credentials and query values of a URL, values
after a flag or name such as ``--api-key``, ``Authorization:`` or ``TOKEN=``, and words that look like API keys.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HIDDEN = "***"
"""Replacement for a secret."""

MIN_SECRET_CHARS = 6
"""Minimum length of secrets that are replaced in other texts; shorter values would match everywhere."""

_SECRET_WORDS = frozenset(
    {
        *("auth", "authorization", "bearer", "cookie", "dsn", "jwt", "pass", "pat", "signature"),
        *("assertion", "cert", "clientcert", "dpop", "oidc", "saml", "session", "sessionid"),
    }
)
_SECRET_ENDINGS = (
    *("key", "keys", "token", "tokens", "secret", "secrets", "password", "passwords"),
    *("credential", "credentials", "passphrase", "passwd", "pwd"),
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_KNOWN_KEY = re.compile(
    r"\b(?:sk-|pk-|rk-|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|hf_|npm_|pypi-|AKIA|ASIA|AIza|ya29\.|eyJ)[\w.~+/=-]{8,}"
)
_OPAQUE_SEGMENT = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w.~%+=-]{20,}")
_HOST_AND_PORT = re.compile(r"(?:\[[^\]]*\]|(?:\$\{[^}]*\}|[^:\[\]@])*)(?::(?:\d*|\$\{[^}]*\}))?")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HEADER = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*):\s*(?P<value>\S.*)", re.DOTALL)
_HEADER_FLAGS = frozenset({"-H", "--header", "--headers"})
_VARIABLE_FLAGS = frozenset({"-e", "--env"})


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and the secrets that were removed."""

    shown: str
    """The text, each secret replaced by `HIDDEN`."""
    secrets: tuple[str, ...] = ()
    """The secrets that were replaced."""


def redact_url(url: str) -> Redacted:
    """Redact credentials, query values, the fragment, and path segments that look like keys."""
    rest, hash_mark, fragment = url.partition("#")
    rest, question_mark, query = rest.partition("?")
    scheme, separator, rest = rest.rpartition("://")
    if scheme.lower() in {"http", "https"}:
        authority, slash, path = rest.partition("/")
        credentials, at, host = authority.rpartition("@")
    else:  # passwords in database URLs often contain a slash
        credentials, at, host = rest.rpartition("@")
        host, slash, path = host.partition("/")
    if not _HOST_AND_PORT.fullmatch(host):
        return Redacted(f"{scheme}{separator}{HIDDEN}", (url,))
    secrets = [credentials, *credentials.split(":", 1), query, fragment]
    shown = f"{scheme}{separator}{at and HIDDEN + at}{host}{slash}"
    segments = path.split("/")
    opaque = [segment for segment in segments if _OPAQUE_SEGMENT.fullmatch(segment)]
    shown += "/".join(HIDDEN if segment in opaque else segment for segment in segments)
    if question_mark:
        shown += "?" + "&".join(_query_part(part, secrets) for part in query.split("&"))
    if hash_mark:
        shown += f"#{HIDDEN}"
    secrets += opaque
    secrets += [unquote(secret) for secret in secrets]
    return Redacted(shown, tuple(dict.fromkeys(filter(None, secrets))))


_SPECIAL = re.compile(r"[\s'\"`;&|<>]|\$\(")
"""Text that a shell interprets, apart from patterns, which redacted words look like, and names of variables."""


def redact_command(words: Sequence[str]) -> Redacted:
    """Quote a command line for a shell, with arguments that look secret replaced."""
    parts: list[Redacted] = []
    flag = ""
    for word in [*words[0].split(), *words[1:]] if words else []:
        parts.append(_redacted_word(word, flag))
        flag = word if word.startswith("-") and "=" not in word else ""
    shown = " ".join(shlex.quote(part.shown) if _SPECIAL.search(part.shown) else part.shown for part in parts)
    return Redacted(shown, tuple(secret for part in parts for secret in part.secrets))


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Replace every given secret in a text, such as a process's standard error.

    Values shorter than `MIN_SECRET_CHARS` are not replaced: they would match everywhere.
    """
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= MIN_SECRET_CHARS:
            text = text.replace(secret, HIDDEN)
    return text


def names_secret(name: str) -> bool:
    """Return True if the value of a flag, variable or header of this name is probably secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)


def holds_key(text: str) -> bool:
    """Return True if a text contains a word that looks like an API key of a known issuer."""
    return _KNOWN_KEY.search(text) is not None


def _query_part(part: str, secrets: list[str]) -> str:
    name, equals, value = part.partition("=")
    secrets.append(value or part)
    return f"{name}={HIDDEN}" if equals else HIDDEN


def _redacted_word(word: str, flag: str) -> Redacted:
    if flag and not word.startswith("--") and names_secret(flag):
        return Redacted(HIDDEN, (word,))
    if _URL.match(word):
        return redact_url(word)
    if word.startswith(("{", "[")):  # JSON text as one argument
        return Redacted(HIDDEN, (word,))
    if header := _HEADER.fullmatch(word):
        if flag in _HEADER_FLAGS or names_secret(header["name"]):
            return Redacted(f"{header['name']}: {HIDDEN}", (header["value"],))
    elif "=" in word:
        return _redacted_assignment(word, flag)
    return Redacted(_KNOWN_KEY.sub(HIDDEN, word), tuple(_KNOWN_KEY.findall(word)))


def _redacted_assignment(word: str, flag: str) -> Redacted:
    name, _, value = word.partition("=")
    if flag in _VARIABLE_FLAGS or names_secret(name):
        return Redacted(f"{name}={HIDDEN}", (value,))
    redacted = _redacted_word(value, name if name.startswith("-") else "")
    return Redacted(f"{name}={redacted.shown}", redacted.secrets)
