"""Identification of callers in a browser: by the key that their program uses, or by a login at their issuer.

Either way the gateway's own `Auth` verifies the result, as it does for a request of the caller's program, so that both
have the same issuer and subject.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from bridge.gateway.credentials.browsers import SignedIn
from bridge.server.auth.credentials import RequestUser
from bridge.server.auth.failures import Challenge, FailedAuthThrottle
from bridge.server.auth.issuer import Issuer
from bridge.server.auth.tokens import IssuerUnavailableError, TokenRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Scope

    from bridge.gateway.credentials.browsers import Browser
    from bridge.gateway.credentials.links import OnceStore
    from bridge.server.auth.auth import Auth
    from bridge.types import Json

SIGN_IN_SECONDS = 600.0
"""Seconds within which a login at an issuer has to end."""

_NAME = "sign-in:"
_CREDENTIAL = re.compile(r"[\x21-\x7e]{1,8192}")
_METADATA_SECONDS = 300.0
_UNAUTHORIZED = 401
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class IdentificationError(Exception):
    """The caller was not identified. The message is for the caller, and contains no secret.

    Attributes:
        status: HTTP status of the page.
    """

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInClient:
    """The gateway as a client of its callers' issuer, at which they log in to open its pages."""

    client_id: str
    """ID of the client, which is registered with the redirect URI ``PUBLIC_URL/connect/signed-in``."""
    client_secret: str | None = field(default=None, repr=False)
    """Its secret; None for a public client."""
    scopes: tuple[str, ...] = ()
    """Scopes to ask for, beside those that every caller of the gateway needs."""


class CallerVerifier:
    """Verifies the keys and tokens of callers, with the same limit of failed attempts as for requests.

    Args:
        auth: Verifies credentials.
    """

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._throttle = FailedAuthThrottle()

    async def count_login(self, scope: Scope) -> None:
        """Count a login that is about to start at an issuer, of which the store keeps a record.

        Raises:
            IdentificationError: There were too many from this address.
        """
        challenge = Challenge(status=_UNAUTHORIZED, error="login_required", description="a login is started")
        if (await self._throttle.apply(scope, challenge)).status != _UNAUTHORIZED:
            raise IdentificationError("There were too many logins from your address; try again in a minute.", 429)

    async def caller_with(self, credential: str, scope: Scope) -> SignedIn:
        """Return the bearer of a key or token.

        Args:
            credential: The key or token.
            scope: ASGI scope of the request, for the limit of its address.

        Raises:
            IdentificationError: It is invalid, or may not be used here.
        """
        if not _CREDENTIAL.fullmatch(credential):
            raise IdentificationError("This is not a key: a key has no spaces, and only visible ASCII characters.", 400)
        try:
            with self._throttle.verifying(scope):
                token = await self._auth.verify_token(credential)
        except TokenRefusedError:
            token = None
        except IssuerUnavailableError as error:
            raise IdentificationError("The issuer of tokens is unavailable at the moment; try again.", 503) from error
        if token is None or (token.expires_at and token.expires_at < time.time()):
            reason = "the key or token is unknown, or has expired"
            challenge = Challenge(status=_UNAUTHORIZED, error="invalid_token", description=reason)
            status = (await self._throttle.apply(scope, challenge)).status
            raise IdentificationError("This key is unknown, or has expired.", status)
        if missing := self._auth.required_scopes.difference(token.scopes):
            raise IdentificationError(f"You were not granted {' '.join(sorted(missing))}, which this gateway needs.")
        return SignedIn.of(RequestUser(token, self._auth.access_of(token), name=self._auth.name_of(token)).caller)


class IssuerSignIn:
    """Login of callers at the issuer of their tokens: authorization code with PKCE, for a token of this gateway.

    RFC 6749 section 4.1, RFC 7636, RFC 8707 and RFC 9207. The token is verified and discarded.

    Args:
        issuer: The issuer.
        resource: The gateway as the audience of its tokens; None if unknown.
        client: The gateway as a client; None to use its client ID metadata document, if the issuer supports it.
        scopes: Scopes that every caller needs.
        store: Keeps the logins under way.
    """

    def __init__(
        self,
        issuer: str,
        resource: str | None,
        client: SignInClient | None,
        scopes: frozenset[str],
        store: OnceStore,
    ) -> None:
        self.issuer = issuer
        self._resource = resource
        self._client = client
        self._scopes = sorted(scopes.union(() if client is None else client.scopes))
        self._store = store
        self._metadata: Mapping[str, Any] = {}
        self._metadata_until = 0.0

    async def start(self, browser: Browser, redirect_uri: str, document_url: str, link: str | None) -> str:
        """Return the URL of the issuer's login page.

        Args:
            browser: The browser that logs in.
            redirect_uri: URL of the gateway that the browser comes back to.
            document_url: URL of the gateway's client ID metadata document.
            link: Token of the link that was opened; None for none.

        Raises:
            IdentificationError: The issuer is unavailable, or knows no client for the gateway.
        """
        metadata = await self._known_metadata()
        endpoint = _safe_url(metadata.get("authorization_endpoint"))
        client_id = self._client_id(metadata, document_url)
        state, verifier = token_urlsafe(), token_urlsafe(48)
        asked: Json = {"issuer": self.issuer, "browser": browser.id, "verifier": verifier, "client_id": client_id}
        asked |= {"redirect_uri": redirect_uri, "link": link}
        await self._store.put_once(_NAME + state, asked, SIGN_IN_SECONDS)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        query |= {"resource": self._resource} if self._resource else {}
        query |= {"scope": " ".join(self._scopes)} if self._scopes else {}
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"

    async def finish(self, asked: Mapping[str, Any], parameters: Mapping[str, str]) -> str:
        """Return the token that the issuer has issued to the caller.

        Args:
            asked: The login, of `taken`.
            parameters: Query parameters of the redirect.

        Raises:
            IdentificationError: The response is not from the issuer, or the login failed.
        """
        metadata = await self._known_metadata()
        must_name = metadata.get("authorization_response_iss_parameter_supported") is True
        if (parameters.get("iss") or (None if must_name else self.issuer)) != self.issuer:
            raise IdentificationError("This response is not from the expected authorization server.", 400)
        if "code" not in parameters:
            raise IdentificationError("The login was refused.")
        data = {
            "grant_type": "authorization_code",
            "code": parameters["code"],
            "redirect_uri": asked["redirect_uri"],
            "code_verifier": asked["verifier"],
        }
        data |= {"resource": self._resource} if self._resource else {}
        options = self._authenticated(data, asked["client_id"], metadata)
        issuer = Issuer(self.issuer)
        try:
            answer = await issuer.request("POST", _safe_url(metadata.get("token_endpoint")), **options)
        except IssuerUnavailableError as error:
            raise IdentificationError("The issuer did not issue a token for this login.") from error
        finally:
            await issuer.aclose()
        token = answer.get("access_token")
        if not isinstance(token, str):
            raise IdentificationError("The issuer did not issue a token for this login.")
        return token

    def _client_id(self, metadata: Mapping[str, Any], document_url: str) -> str:
        if self._client is not None:
            return self._client.client_id
        if metadata.get("client_id_metadata_document_supported") is True and document_url.startswith("https:"):
            return document_url
        raise IdentificationError(
            "This gateway is not a client of the issuer, so you cannot log in here. Its operator registers it there, "
            "and sets --connect-client-id.",
            501,
        )

    def _authenticated(self, data: dict[str, str], client_id: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return a token request with the client's authentication (RFC 6749 section 2.3.1)."""
        secret = None if self._client is None else self._client.client_secret
        if secret is None:
            return {"data": data | {"client_id": client_id}}
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if "client_secret_basic" not in methods:
            return {"data": data | {"client_id": client_id, "client_secret": secret}}
        return {"data": data, "auth": (quote(client_id, safe=""), quote(secret, safe=""))}

    async def _known_metadata(self) -> Mapping[str, Any]:
        if time.monotonic() >= self._metadata_until:
            issuer = Issuer(self.issuer)
            try:
                self._metadata = await issuer.metadata()
            except IssuerUnavailableError as error:
                raise IdentificationError(
                    "The issuer of tokens is unavailable at the moment; try again.", 503
                ) from error
            finally:
                await issuer.aclose()
            self._metadata_until = time.monotonic() + _METADATA_SECONDS
        return self._metadata


async def taken(store: OnceStore, state: str, browser: Browser) -> Mapping[str, Any]:
    """Return the login at an issuer that a browser has started, once.

    Raises:
        IdentificationError: It was started by another browser, or has ended.
    """
    asked = await store.take_once(_NAME + state)
    if asked is None or asked["browser"] != browser.id:
        raise IdentificationError("This is not a login that this browser has started, or it took too long.", 400)
    return asked


def _safe_url(url: object) -> str:
    """Return an endpoint of an issuer.

    Raises:
        IdentificationError: It is missing, or can be read on its way.
    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
        raise IdentificationError("The issuer has no usable login page.", 502)
    return str(url)
