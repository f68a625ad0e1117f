"""Transport of a server behind a URL: streamable HTTP, or the older HTTP with SSE."""

from __future__ import annotations

import re
import shlex
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self
from urllib.parse import urlsplit

from bridge.client.auth.grants import AssertionExchange, OAuthLogin, PerCaller, SecretHeader, TokenExchange
from bridge.client.auth.ready import NO_AUTH
from bridge.client.transports.link import Cause
from bridge.client.transports.transport import LoginTarget, Transport, secrets_of
from bridge.redaction import HIDDEN, redact_url, scrub
from bridge.tools.annotated_checks import check_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from bridge.client.auth.grants import Grant
    from bridge.client.config.schema import ServerEntry
    from bridge.client.config.variables import EntryReader, Expanded
    from bridge.client.transports.link import Link, LinkOptions

_PORTS = {"http": 80, "https": 443}

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")
_BLANK_OR_CONTROL = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True, repr=False)
class HttpTransport(Transport):
    """A server behind a URL."""

    url: str
    """The server's URL, ``http`` or ``https``."""
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every request."""
    auth: Grant | PerCaller | None = None
    """Grant type, also of a gateway's callers; None to use `headers`, or else a stored login."""
    kind: Literal["http", "sse"] | None = None
    """Streamable HTTP, or HTTP with SSE; None to detect it (POST, then GET; MCP, Transports, "Backwards
    Compatibility")."""
    shown: str | None = field(default=None, compare=False)
    """The redacted URL, if it is known better than by heuristics; see `redacted`."""
    expanded: tuple[str, ...] = field(default=(), compare=False)
    """Texts from variables or the user, which may be secret; see `scrub`."""
    login_target: str | None = field(default=None, compare=False)
    """Argument for ``bridge login``, if it is not the URL."""

    takes_headers: ClassVar[bool] = True
    address_key: ClassVar[str] = "url"
    entry_types: ClassVar[frozenset[str]] = frozenset({"http", "sse"})
    entry_keys: ClassVar[frozenset[str]] = frozenset({"auth", "headers", "listPer"})

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def from_entry(cls, entry: ServerEntry, reader: EntryReader) -> Self:
        """Create the transport of an entry with a ``url``."""
        from bridge.client.config.credentials import read_auth  # noqa: PLC0415 - only for configurations

        url = reader.expand(entry.url or "", "url")
        if not url.is_missing and (complaint := _url_complaint(url.value)):
            reader.problem(complaint, "url")
        headers: dict[str, Expanded] = {}
        for name, text in (entry.headers or {}).items():
            if not _HEADER_NAME.fullmatch(name):
                reader.problem("is not a valid header name", "headers", f".{name}")
            headers[name] = reader.expand(text, "headers", f".{name}")
            _check_header_value(headers[name], reader, "headers", f".{name}")
        if len({name.lower() for name in headers}) < len(headers):
            reader.problem("a header is given twice in different case: remove one", "headers")
        auth = read_auth(entry.auth, reader)
        is_given = any(name.lower() == "authorization" for name in headers)
        if entry.auth is not None and is_given and not isinstance(auth.grant, PerCaller):
            reader.problem("is given together with an 'Authorization' header: keep one of them", "auth")
        if auth.header is not None:
            headers["Authorization"] = auth.header
            _check_header_value(auth.header, reader, "auth")
        return cls(
            url.value,
            headers={name: value.value for name, value in headers.items()},
            auth=auth.grant,
            kind=None if entry.type == "stdio" else entry.type,
            shown=redact_url(url.shown).shown,
            expanded=secrets_of(url, *headers.values(), *auth.texts),
        )

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Host and port of the URL."""
        url = urlsplit(self.url)
        return url.hostname or "", url.port or _PORTS.get(url.scheme, 0)

    @property
    def login(self) -> LoginTarget | None:
        """Target of a login by a user; None if the requests have other credentials."""
        grant = None if self._has_credentials else self._own_grant
        if not isinstance(grant, OAuthLogin):
            return None
        return LoginTarget(url=self.url, headers=self.headers, grant=grant, is_configured=self.auth is not None)

    @property
    def _own_grant(self) -> Grant | TokenExchange | AssertionExchange | SecretHeader:
        """Grant of this program, which is the only caller if it is no gateway."""
        return self.auth.grant if isinstance(self.auth, PerCaller) else self.auth or OAuthLogin()

    @property
    def _has_credentials(self) -> bool:
        return any(name.lower() == "authorization" for name in self.headers)

    def redacted(self) -> str:
        """The URL without secrets."""
        return self.shown if self.shown is not None else redact_url(self.url).shown

    def scrub(self, text: str) -> str:
        """Remove this transport's secrets from a text, such as another library's error."""
        values = self.headers.values()
        credentials = (value.partition(" ")[2] for value in values)
        of_auth = self.auth.secrets if self.auth is not None else ()
        return scrub(text, (*values, *credentials, *of_auth, *self.expanded, *redact_url(self.url).secrets))

    def links(self, options: LinkOptions, last_kind: str | None) -> Sequence[Link]:
        """Create the link of the configured kind, or of the detected one, or both in order."""
        from bridge.client.transports.sse import SseLink  # noqa: PLC0415 - only when a session is opened
        from bridge.client.transports.streamable_http import StreamableHttpLink  # noqa: PLC0415 - likewise

        kind = self.kind or ("sse" if last_kind == "sse" else None)
        auth = options.auth if options.auth is not None else self.sign_in()
        if kind == "sse":
            return (SseLink(self.url, self.headers, auth, options),)
        streamable = StreamableHttpLink(self.url, self.headers, auth, options)
        return (streamable,) if kind == "http" else (streamable, SseLink(self.url, self.headers, auth, options))

    def with_headers(self, headers: Mapping[str, str]) -> HttpTransport:
        """Copy the transport with these headers merged over the configured ones."""
        overridden = {name.lower() for name in headers}
        configured = {name: value for name, value in self.headers.items() if name.lower() not in overridden}
        return replace(self, headers={**configured, **headers})

    def with_login_target(self, target: str) -> HttpTransport:
        """Copy the transport with an argument for ``bridge login``."""
        return replace(self, login_target=target)

    def sign_in(self) -> httpx2.Auth | None:
        """Return the authentication of the requests; None if a header has the credentials.

        Without a grant, a stored login of ``bridge login`` is used.
        """
        if self._has_credentials:
            return None
        grant = self._own_grant
        if isinstance(grant, TokenExchange | AssertionExchange | SecretHeader):
            return NO_AUTH  # only a gateway has callers
        from bridge.client.auth.errors import BY_A_KEY  # noqa: PLC0415 - only when a session is opened
        from bridge.client.auth.sign_in import shared_sign_in  # noqa: PLC0415 - imports the SDK

        hint = f"run: bridge login {shlex.quote(self.login_target or self.redacted())}"
        key_hint = None
        if self.auth is None:
            nonetheless = f"it names no authorization server; if it has logins nonetheless, {hint}"
            key_hint = f"it wants a key: give it {BY_A_KEY} ({nonetheless})"
            hint += " (or give it an 'Authorization' header in 'headers')"
        return shared_sign_in(self.url, grant, hint=hint, key_hint=key_hint)

    def explain_refusal(self, error: Exception) -> Cause | None:
        """Explain a response that demands a scope (RFC 6750, section 3.1)."""
        import httpx2  # noqa: PLC0415 - only for refused requests

        from bridge.client.auth.challenge import parse_challenge  # noqa: PLC0415 - likewise

        challenge = parse_challenge(error.response) if isinstance(error, httpx2.HTTPStatusError) else None
        if challenge is None or not challenge.is_step_up or challenge.scope is None:
            return None
        target = shlex.quote(self.login_target or self.redacted())
        options = " ".join(f"--scope {shlex.quote(each)}" for each in challenge.scope.split())
        hint = f"grant it to the key or token; or remove its header, and run: bridge login {target} {options}"
        return Cause(f"the scope {challenge.scope!r} is missing (HTTP 403)", hint)

    def __repr__(self) -> str:
        headers = dict.fromkeys(self.headers, HIDDEN)
        auth = f", auth={self.auth!r}" if self.auth is not None else ""
        return f"HttpTransport({self.redacted()!r}, headers={headers!r}{auth}, kind={self.kind!r})"


def _check_header_value(value: Expanded, reader: EntryReader, key: str, place: str = "") -> None:
    if not _HEADER_VALUE.fullmatch(value.value):
        message = "is not a valid header value: it has a line break, a blank at an end, or a non-ASCII character"
        reader.problem(message, key, place)


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
