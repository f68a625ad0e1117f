"""Transport of a server behind a URL: streamable HTTP, or the older HTTP with SSE."""

from __future__ import annotations

import re
import shlex
from contextlib import asynccontextmanager, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit
from urllib.request import getproxies

from bridge.client.auth.grants import OAuthLogin
from bridge.client.redaction import HIDDEN, redact_url, scrub
from bridge.client.transports.channel import Cause, Channel
from bridge.client.transports.transport import LoginTarget, Transport, secrets_of
from bridge.portal import runs_on_asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    import httpx2
    from mcp import Client

    from bridge.client.auth.grants import Grant
    from bridge.client.config.schema import ServerEntry
    from bridge.client.config.variables import EntryReader, Expanded
    from bridge.client.transports.channel import ChannelOptions, RequestBeginner, RequestSender
    from bridge.client.transports.http_client import TrackedHttpClient
    from bridge.client.transports.plain_http import PlainHttp

_PORTS = {"http": 80, "https": 443}

_BAD_REQUEST, _FORBIDDEN, _NOT_FOUND, _METHOD_NOT_ALLOWED = 400, 403, 404, 405

_NO_STREAMABLE_HTTP: Final = frozenset({400, 404, 405, 406, 410, 415, 501})
"""Responses to a POST after which the older transport is tried (MCP, Transports, "Backwards Compatibility")."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")
_CHECK_THE_PATH = "check the path: it is often /mcp or /sse"
_BLANK_OR_CONTROL = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True, repr=False)
class HttpTransport(Transport):
    """A server behind a URL."""

    url: str
    """The server's URL, ``http`` or ``https``."""
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every request."""
    auth: Grant | None = None
    """Grant type; None to use `headers`, or else a stored login."""
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
    entry_keys: ClassVar[frozenset[str]] = frozenset({"auth", "fastPath", "headers"})

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
        if entry.auth is not None and any(name.lower() == "authorization" for name in headers):
            reader.problem("is given together with an 'Authorization' header: keep one of them", "auth")
        auth = read_auth(entry.auth, reader)
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
        grant = None if self._has_credentials else self.auth or OAuthLogin()
        if not isinstance(grant, OAuthLogin):
            return None
        return LoginTarget(url=self.url, headers=self.headers, grant=grant, is_configured=self.auth is not None)

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

    def channels(self, options: ChannelOptions, last_kind: str | None) -> Sequence[Channel]:
        """Create the channel of the configured kind, or of the detected one, or both in order."""
        kind = self.kind or ("sse" if last_kind == "sse" else None)
        if kind == "sse":
            return (SseChannel(self, options),)
        streamable = StreamableHttpChannel(self, options)
        return (streamable,) if kind == "http" else (streamable, SseChannel(self, options))

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
        from bridge.client.auth.errors import BY_A_KEY  # noqa: PLC0415 - only when a session is opened
        from bridge.client.auth.sign_in import shared_sign_in  # noqa: PLC0415 - imports the SDK

        hint = f"run: bridge login {shlex.quote(self.login_target or self.redacted())}"
        key_hint = None
        if self.auth is None:
            nonetheless = f"it names no authorization server; if it has logins nonetheless, {hint}"
            key_hint = f"it wants a key: give it {BY_A_KEY} ({nonetheless})"
            hint += " (or give it an 'Authorization' header in 'headers')"
        return shared_sign_in(self.url, self.auth or OAuthLogin(), hint=hint, key_hint=key_hint)

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


class _HttpChannel(Channel):
    """Requests of an HTTP client."""

    finishes_calls = True

    def __init__(self, transport: HttpTransport, options: ChannelOptions) -> None:
        super().__init__()
        self._transport = transport
        self._options = options
        self.status: int | None = None
        """HTTP status of the last response to a message; None without one."""

    def _sign_in(self) -> httpx2.Auth | None:
        """Return the authentication of the requests."""
        return self._options.auth if self._options.auth is not None else self._transport.sign_in()

    def _client(self, *, is_sse: bool, auth: httpx2.Auth | None, plain: PlainHttp | None = None) -> TrackedHttpClient:
        """Create the HTTP client."""
        from bridge.client.transports.http_client import TrackedHttpClient  # noqa: PLC0415 - only for a session

        return TrackedHttpClient(
            self._options.events,
            self._record_status,
            is_sse=is_sse,
            headers=dict(self._transport.headers),
            connect_seconds=self._options.connect_seconds,
            auth=auth,
            learn=None if plain is None else plain.learn,
        )

    def _record_status(self, status: int) -> None:
        self.status = status

    def explain_start(self, error: BaseException) -> Cause | None:
        """Explain a handshake that was refused with an HTTP status."""
        if self.status is None or self.status < _BAD_REQUEST:
            return None
        return _cause_of_status(self.status, getattr(error, "message", ""))

    def explain_error(self, error: BaseException) -> Cause | None:
        """Explain an HTTP error."""
        import httpx2  # noqa: PLC0415 - only for failures

        from bridge.client.transports.limits import ResponseTooLongError  # noqa: PLC0415 - as above

        if isinstance(error, httpx2.SSEError) and not isinstance(
            error, ResponseTooLongError
        ):  # an answer to GET that is no event stream, such as a web page
            return Cause("no MCP server at this URL: its answer is no event stream", _CHECK_THE_PATH)
        response = getattr(error, "response", None)
        return _cause_of_status(response.status_code) if response is not None else None


class StreamableHttpChannel(_HttpChannel):
    """Streamable HTTP: each message is a POST, and each response comes with that of its request."""

    kind = "http"
    mirrors_arguments = True

    def __init__(self, transport: HttpTransport, options: ChannelOptions) -> None:
        super().__init__(transport, options)
        self._plain: PlainHttp | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        """Open the HTTP client."""
        auth = self._sign_in()
        with self._plain_requests(auth) as plain:
            async with self._client(is_sse=False, auth=auth, plain=plain) as http:
                yield self._streams(http)

    @asynccontextmanager
    async def _streams(self, http: httpx2.AsyncClient) -> AsyncIterator[tuple[Any, Any]]:
        """Open clones of the SDK's message streams: for a message after their end, the SDK would log a traceback."""
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - imports the SDK

        from bridge.client.transports.limits import MAX_MESSAGE_BYTES  # noqa: PLC0415 - likewise

        url = self._transport.url
        transport: Any = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
        async with transport as (messages, writer), messages.clone() as received, writer.clone() as sent:
            yield received, sent

    def request_sender(self, client: Client) -> RequestSender | None:
        """Return the sender of plain requests."""
        return None if self._plain is None else self._plain.sender(client)

    def request_beginner(self) -> RequestBeginner | None:
        """Return the sender of plain requests that nothing waits for."""
        return None if self._plain is None else self._plain.begin

    @contextmanager
    def _plain_requests(self, auth: httpx2.Auth | None) -> Iterator[PlainHttp | None]:
        """Open what sends plain requests without the SDK's session; None if the SDK must send all."""
        from bridge.client.auth.sign_in import SignIn  # noqa: PLC0415 - imports the SDK

        url = urlsplit(self._transport.url)
        has_proxy = not getproxies().keys().isdisjoint({url.scheme, "all"})
        is_possible = runs_on_asyncio() and find_spec("httptools") is not None
        is_possible = is_possible and isinstance(auth, SignIn | None) and not has_proxy and not url.username
        if not is_possible or not self._options.fast_path:
            yield None
            return
        from bridge.client.transports.plain_http import PlainHttp  # noqa: PLC0415 - needs httptools

        assert isinstance(auth, SignIn | None)
        self._plain = PlainHttp(self, self._record_status, self._options, self._transport.url, auth)
        try:
            yield self._plain
        finally:
            self._plain.close()

    def is_refused(self) -> bool:
        """True if the server does not seem to support streamable HTTP."""
        return self.status in _NO_STREAMABLE_HTTP


class SseChannel(_HttpChannel):
    """HTTP with SSE: messages are POSTs, and one event stream carries all responses. The handshake era only."""

    kind = "sse"
    is_legacy = True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        """Create the HTTP client."""
        from bridge.client.transports.sse_streams import sse_streams  # noqa: PLC0415 - imports the SDK

        yield sse_streams(self._transport.url, self._client(is_sse=True, auth=self._sign_in()))


def _cause_of_status(status: int, message: str = "") -> Cause:
    detail = f": {message}" if message else ""
    if status == _FORBIDDEN:
        return Cause(f"it refuses this client (HTTP 403){detail}", "check its allowed hosts, origins and keys")
    if status in {_NOT_FOUND, _METHOD_NOT_ALLOWED}:
        return Cause(f"no MCP server at this URL (HTTP {status})", _CHECK_THE_PATH)
    return Cause(f"HTTP {status}{detail}")


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
