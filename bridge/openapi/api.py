"""HTTP client of one API: requests to its host only, without redirects, with limits and credentials."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Self

import anyio
import httpx2
from anyio.lowlevel import current_token

from bridge.client.transports.received_data import SUCCESS, ResponseTooLongError, default_ssl_context, limited
from bridge.errors import ToolError
from bridge.openapi.base_url import origin_of
from bridge.openapi.serialization import encoded
from bridge.redaction import scrub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from bridge.openapi.security import Credential

DEFAULT_TIMEOUT_SECONDS = 30.0
"""Default maximum seconds of a request."""
MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""Default maximum bytes of the body of a response."""

_MAX_CONNECTIONS = 100
_MAX_ERROR_CHARS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request, encoded."""

    label: str
    """Method and path template of the operation, for messages."""
    method: str
    """HTTP method."""
    url: str
    """URL without the query."""
    query: Sequence[tuple[str, str]]
    """Names and values of the query, encoded."""
    headers: Sequence[tuple[str, str]]
    """Headers."""
    cookies: Sequence[tuple[str, str]]
    """Cookies, encoded."""
    content: bytes | None
    """The body; None for none."""
    credentials: Sequence[Credential]
    """Credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """A successful response."""

    status: int
    """HTTP status."""
    content_type: str
    """Type of the body; empty if there is none."""
    content: bytes
    """The whole body."""


class HttpApi:
    """Sends requests to one host, or to an ASGI application in this process.

    Without ``async with`` each request has a connection of its own. Within it, connections are kept, and the lifespan
    of an ASGI application runs. It belongs to the event loop in which it is entered.

    Args:
        base_url: URL whose host receives all requests.
        app: ASGI application that is called without a socket; None for HTTP.
        secrets: Texts that error messages must not contain.
        timeout_seconds: Maximum seconds of a request.
        max_response_bytes: Maximum bytes of the body of a response.
    """

    def __init__(
        self,
        base_url: str,
        *,
        app: Any = None,
        secrets: Sequence[str] = (),
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self.base_url = base_url
        """URL whose host receives all requests."""
        self._origin = origin_of(base_url)
        self._app = app
        self._secrets = tuple(secrets)
        self._timeout_seconds = timeout_seconds
        self._max_response_bytes = max_response_bytes
        self._kept: tuple[object, httpx2.AsyncClient] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if (lifespan := getattr(getattr(self._app, "router", None), "lifespan_context", None)) is not None:
                await stack.enter_async_context(lifespan(self._app))
            self._kept = current_token(), await stack.enter_async_context(self._new_client())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kept = None
        await self._stack.__aexit__(kind, error, traceback)

    async def send(self, request: ApiRequest) -> ApiResponse:
        """Send a request.

        Raises:
            ToolError: It failed: there was no response in time, or none with a status of success; or it is too long.
        """
        try:
            with anyio.fail_after(self._timeout_seconds):
                async with self._client() as client:
                    return await self._answered(client, self._http_request(client, request), request.label)
        except TimeoutError as error:
            raise ToolError(
                f"{request.label} did not answer within {self._timeout_seconds:g} seconds; it may have been executed"
            ) from error
        except ResponseTooLongError as error:
            raise ToolError(
                f"{request.label}: the response is longer than {self._max_response_bytes:,} bytes; "
                "if the operation has parameters that limit or filter its result, use them"
            ) from error
        except httpx2.TransportError as error:
            reason = scrub(str(error), self._secrets) or type(error).__name__
            raise ToolError(f"{request.label} failed: no response from {self._shown_host}: {reason}") from None

    @property
    def _shown_host(self) -> str:
        return str(httpx2.URL(self.base_url).netloc, "ascii")

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Return the kept client, or open one for this request."""
        kept = self._kept
        if kept is not None and kept[0] == current_token():
            yield kept[1]
            return
        async with self._new_client() as client:
            yield client

    def _new_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=None if self._app is None else _InProcess(self._app),
            verify=default_ssl_context(),
            timeout=self._timeout_seconds,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # callers must not share sessions
            headers={"accept-encoding": "gzip"},
            event_hooks={"response": [limited(self._max_response_bytes)]},
            limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
        )

    def _http_request(self, client: httpx2.AsyncClient, request: ApiRequest) -> httpx2.Request:
        secret = {place: [each for each in request.credentials if each.place == place] for place in _PLACES}
        names = {encoded(each.name) for each in secret["query"]}
        query = [f"{name}={value}" for name, value in request.query if name not in names]
        cookies = [*request.cookies, *((encoded(each.name), each.value) for each in secret["cookie"])]
        headers = {**dict(request.headers), **{each.name: each.value for each in secret["header"]}}
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies)
        try:
            url = httpx2.URL(request.url + ("?" + "&".join(query) if query else ""))
        except httpx2.InvalidURL as error:
            raise ToolError(f"{request.label}: the arguments make no valid URL ({error}), and were not sent") from None
        if origin_of(url) != self._origin:
            raise ToolError(f"{request.label} would leave the host of the API, and was not sent")
        extensions: dict[str, Any] = {}
        if secret["query"]:  # only on the wire: the client logs URLs
            parts = [*query, *(f"{encoded(each.name)}={each.value}" for each in secret["query"])]
            extensions["target"] = url.raw_path.partition(b"?")[0] + b"?" + "&".join(parts).encode()
        built = client.build_request(
            request.method, url, headers=headers, content=request.content, extensions=extensions
        )
        if extensions:  # the client has added its timeouts
            built.extensions.update(extensions)
        return built

    async def _answered(self, client: httpx2.AsyncClient, request: httpx2.Request, label: str) -> ApiResponse:
        response = await client.send(request, stream=True)
        try:
            if response.status_code in SUCCESS:
                content = await response.aread()
                content_type = response.headers.get("content-type", "")
                return ApiResponse(status=response.status_code, content_type=content_type, content=content)
            raise ToolError(await self._problem(response, label))
        finally:
            await response.aclose()

    async def _problem(self, response: httpx2.Response, label: str) -> str:
        status = f"{response.status_code} {response.reason_phrase}".strip()
        if response.has_redirect_location:
            return f"{label} failed with status {status}: redirects are not followed"
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > 4 * _MAX_ERROR_CHARS:
                break
        text = scrub(body.decode(errors="replace").strip(), self._secrets)
        if len(text) > _MAX_ERROR_CHARS:
            text = text[:_MAX_ERROR_CHARS] + "…"
        return f"{label} failed with status {status}" + (f": {text}" if text else "")


_PLACES = ("header", "query", "cookie")


class _InProcess(httpx2.ASGITransport):
    """ASGI application; like the transport of HTTP, it sends the ``target`` of a request instead of its path."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Call the application."""
        if (target := request.extensions.get("target")) is not None:
            url = request.url.copy_with(raw_path=target)
            assert isinstance(request.stream, httpx2.AsyncByteStream)
            request = httpx2.Request(request.method, url, headers=request.headers.raw, stream=request.stream)
        return await super().handle_async_request(request)
