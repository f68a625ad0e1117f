"""Connect pages: a caller of the gateway gives it a credential for a server, sees what it has given, and disconnects.

    link ─> sign in, as the caller of the link ─> consent ─┬─> login at the server's authorization server ─┐
                                                           ╰─> key or token ───────────────────────────────┴─> kept

Whoever opens a link has to be the caller who has caused it: otherwise a caller could let somebody else connect an
account of his with the caller's name (MCP 2026-07-28, "Elicitation", Phishing; "Security Best Practices", Confused
Deputy). Pages have no scripts; nothing in a request decides where a browser is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bridge.client.auth.errors import SignInError
from bridge.errors import ToolError
from bridge.gateway.credentials import views
from bridge.gateway.credentials.browsers import Browser, Browsers, is_own_form, set_cookie
from bridge.gateway.credentials.errors import CredentialStoreError
from bridge.gateway.credentials.grants import LoginGrant, SecretGrant
from bridge.gateway.credentials.identification import CallerVerifier, IdentificationError, IssuerSignIn, taken
from bridge.gateway.credentials.markup import HEADERS
from bridge.gateway.credentials.store import CredentialKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from bridge.gateway.credentials.address import PublicAddress
    from bridge.gateway.credentials.broker import CredentialBroker
    from bridge.gateway.credentials.browsers import SignedIn
    from bridge.gateway.credentials.identification import SignInClient
    from bridge.gateway.credentials.links import Link, Links
    from bridge.gateway.credentials.store import Credential
    from bridge.server.auth.auth import Auth
    from bridge.types import Json

PATH = "/connect"
"""Path of the pages."""

_LOGIN = "login:"
_logger = logging.getLogger("bridge.gateway")
_LOGIN_SECONDS = 900.0
_MAX_FORM_BYTES = 64 * 1024
_UNKNOWN_LINK = "This link is unknown, was used, or has expired. Repeat the request in your program to get a new one."
_OTHERS_LINK = (
    "This link was made for another caller of this gateway, not for you. If somebody has sent it to you, they may want "
    "to use an account of yours: do not go on. Nothing was changed."
)

_Form: TypeAlias = Mapping[str, str]


class PageError(Exception):
    """A request that is answered by a page with the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class _Visit:
    """One request of a browser."""

    request: Request
    base: str
    """Public URL of the gateway."""
    browser: Browser

    @property
    def caller(self) -> SignedIn | None:
        return self.browser.caller

    def url(self, path: str) -> str:
        """Return the path of a page, for links and forms."""
        return f"{urlsplit(self.base).path}{PATH}{path}"


class ConnectPages:
    """The pages of one gateway: `bridge.server.http.pages.Pages`.

    Args:
        broker: The credentials.
        links: The links that callers get.
        address: The gateway's public URL.
        client: The gateway as a client of its callers' issuers; None to use its client ID metadata document.
    """

    path = PATH

    def __init__(
        self, broker: CredentialBroker, links: Links, address: PublicAddress, client: SignInClient | None = None
    ) -> None:
        self._broker = broker
        self._store = broker.store
        self._links = links
        self._address = address
        self._client = client
        self._browsers = Browsers(broker.store)
        self._verifier: CallerVerifier
        self._issuers: Sequence[IssuerSignIn] = ()
        self._takes_keys = True

    def routes(self, auth: Auth, endpoint_path: str) -> Sequence[Route]:
        """Return the routes; see `bridge.server.http.pages.Pages`."""
        self._address.bind(auth.resource_url, endpoint_path)
        self._verifier = CallerVerifier(auth)
        self._takes_keys = auth.takes_keys
        self._issuers = [
            IssuerSignIn(issuer, auth.resource_url, self._client, auth.required_scopes, self._store)
            for issuer in auth.authorization_servers
        ]
        return [
            Route(PATH, self._page(self._overview)),
            Route(f"{PATH}/client.json", self._document),
            Route(f"{PATH}/client/{{server}}.json", self._document_for_server),
            Route(f"{PATH}/link/{{link}}", self._page(self._open_link)),
            Route(f"{PATH}/link/{{link}}", self._form_page(self._use_link), methods=["POST"]),
            Route(f"{PATH}/callback/{{server}}", self._page(self._finish_login)),
            Route(f"{PATH}/sign-in", self._form_page(self._sign_in), methods=["POST"]),
            Route(f"{PATH}/sign-in/{{number:int}}", self._form_page(self._sign_in_at_issuer), methods=["POST"]),
            Route(f"{PATH}/signed-in", self._page(self._finish_sign_in)),
            Route(f"{PATH}/sign-out", self._form_page(self._sign_out), methods=["POST"]),
            Route(f"{PATH}/servers/{{server}}/disconnect", self._form_page(self._disconnect), methods=["POST"]),
        ]

    # --- every page ---------------------------------------------------------------------------------------------------

    def _page(self, handle: Callable[[_Visit], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page."""

        async def endpoint(request: Request) -> Response:
            try:
                base = self._address.base(request.headers["host"])
            except ToolError as error:
                return views.problem(500, str(error))
            visit = _Visit(request, base, Browser(""))
            try:
                visit.browser = await self._browsers.of(request, base)
                response = await handle(visit)
            except (PageError, IdentificationError) as error:
                return views.problem(error.status, str(error), visit.url(""))
            except CredentialStoreError:
                _logger.exception("a connect page could not be shown")
                return views.problem(503, "The gateway cannot read its credentials at the moment; try again.")
            set_cookie(response, visit.browser, base)
            response.headers.update(HEADERS)  # also of a redirect
            return response

        return endpoint

    def _form_page(
        self, handle: Callable[[_Visit, _Form], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a form."""

        async def handle_form(visit: _Visit) -> Response:
            body = await visit.request.body()
            if len(body) > _MAX_FORM_BYTES:
                raise PageError(413, "That is too long.")
            form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
            if not is_own_form(visit.request, form, visit.browser, visit.base):
                raise PageError(403, "This form is not one of this gateway in this browser. Open your link again.")
            return await handle(visit, form)

        return self._page(handle_form)

    def _signed_in(self, visit: _Visit) -> SignedIn:
        if visit.caller is None:
            raise PageError(403, "You are not signed in any more. Open your link again.")
        return visit.caller

    # --- signing in ---------------------------------------------------------------------------------------------------

    def _sign_in_page(self, visit: _Visit, link: str = "", problem: str = "", status: int = 200) -> Response:
        issuers = [each.issuer for each in self._issuers]
        form = views.SignInForm(visit.url("/sign-in"), visit.browser.form_token, link, issuers, self._takes_keys)
        return views.sign_in(form, problem, status)

    async def _sign_in(self, visit: _Visit, form: _Form) -> Response:
        if not self._takes_keys:
            raise PageError(404, "Log in at the issuer of your tokens.")
        link = form.get("link", "")
        try:
            caller = await self._verifier.caller_with(form.get("key", "").strip(), visit.request.scope)
        except IdentificationError as error:
            return self._sign_in_page(visit, link, str(error), error.status)
        return await self._go_on(visit, caller, link)

    async def _sign_in_at_issuer(self, visit: _Visit, form: _Form) -> Response:
        number = visit.request.path_params["number"]
        if number >= len(self._issuers):
            raise PageError(404, "There is no such issuer.")
        await self._verifier.count_login(visit.request.scope)
        url = await self._issuers[number].start(
            visit.browser, f"{visit.base}{PATH}/signed-in", f"{visit.base}{PATH}/client.json", form.get("link") or None
        )
        return views.leave_for(url)

    async def _finish_sign_in(self, visit: _Visit) -> Response:
        parameters = visit.request.query_params
        asked = await taken(self._store, parameters.get("state", ""), visit.browser)
        issuer = next(each for each in self._issuers if each.issuer == asked["issuer"])
        token = await issuer.finish(asked, parameters)
        return await self._go_on(
            visit, await self._verifier.caller_with(token, visit.request.scope), asked["link"] or ""
        )

    async def _go_on(self, visit: _Visit, caller: SignedIn, link: str) -> Response:
        """Sign a caller in, and show the page of the link that was opened, or the overview."""
        visit.browser = await self._browsers.sign_in(visit.browser, caller)
        return RedirectResponse(visit.url(f"/link/{quote(link, safe='')}" if link else ""), 303)

    async def _sign_out(self, visit: _Visit, _: _Form) -> Response:
        await self._browsers.sign_out(visit.browser)
        return RedirectResponse(visit.url(""), 303)

    # --- connecting ---------------------------------------------------------------------------------------------------

    async def _own_link(self, visit: _Visit, token: str) -> Link:
        """Return an unused link, if it is for the caller who has signed in.

        Raises:
            PageError: It is unknown, or for another caller.
        """
        caller = self._signed_in(visit)
        link = await self._links.find(token)
        if link is None or link.key.server not in self._broker.grants:
            raise PageError(404, _UNKNOWN_LINK)
        if (link.key.issuer, link.key.subject) != (caller.issuer, caller.subject):
            raise PageError(403, _OTHERS_LINK)
        return link

    async def _open_link(self, visit: _Visit) -> Response:
        if visit.caller is None:
            return self._sign_in_page(visit, visit.request.path_params["link"])
        return await self._consent_page(visit, await self._own_link(visit, visit.request.path_params["link"]))

    async def _consent_page(self, visit: _Visit, link: Link, problem: str = "", status: int = 200) -> Response:
        grant = self._broker.grants[link.key.server]
        assert isinstance(grant, LoginGrant | SecretGrant)
        caller = self._signed_in(visit)
        form = views.ConsentForm(
            visit.url(f"/link/{link.token}"), visit.browser.form_token, visit.url("/sign-out"), caller.name
        )
        back = _callback(visit.base, link.key.server)
        return views.consent(form, grant.describe(), link.scope, back, problem, status)

    async def _use_link(self, visit: _Visit, form: _Form) -> Response:
        link = await self._own_link(visit, visit.request.path_params["link"])
        grant = self._broker.grants[link.key.server]
        try:
            if isinstance(grant, SecretGrant):
                return await self._connect(
                    visit, link, await grant.accept_secret(link.key, form.get("secret", "").strip())
                )
            assert isinstance(grant, LoginGrant)
            await self._verifier.count_login(visit.request.scope)
            state = token_urlsafe()
            url = await grant.start(link.key, _callback(visit.base, link.key.server), state, scope=link.scope)
        except SignInError as error:
            return await self._consent_page(visit, link, str(error), 400)
        login: Json = {"link": link.token, "browser": visit.browser.id}
        await self._store.put_once(_LOGIN + state, login, _LOGIN_SECONDS)
        return views.leave_for(url)

    async def _finish_login(self, visit: _Visit) -> Response:
        self._signed_in(visit)
        parameters = dict(visit.request.query_params)
        login = await self._store.take_once(_LOGIN + parameters.get("state", ""))
        if login is None or login["browser"] != visit.browser.id:
            raise PageError(400, "This is not a login that this browser has started, or it took too long.")
        link = await self._own_link(visit, login["link"])
        if visit.request.path_params["server"] != link.key.server:  # RFC 9700 section 4.4.2.2
            raise PageError(400, "This response belongs to the login at another server.")
        grant = self._broker.grants[link.key.server]
        assert isinstance(grant, LoginGrant)
        try:
            credential = await grant.finish(link.key, parameters)
        except SignInError as error:
            return await self._consent_page(visit, link, f"You were not logged in: {error}.", 400)
        return await self._connect(visit, link, credential)

    async def _connect(self, visit: _Visit, link: Link, credential: Credential) -> Response:
        """Keep a credential.

        The link ends afterwards: as long as there is no credential, a repeated request gets the same link.
        """
        await self._broker.save(link.key, credential)
        await self._links.take(link.token)
        return RedirectResponse(visit.url(f"?connected={quote(link.key.server, safe='')}"), 303)

    # --- what is connected --------------------------------------------------------------------------------------------

    async def _overview(self, visit: _Visit) -> Response:
        if visit.caller is None:
            return self._sign_in_page(visit)
        records = await self._broker.list(visit.caller.issuer, visit.caller.subject)
        new = visit.request.query_params.get("connected")
        connected = [
            (each, visit.url(f"/servers/{quote(each.key.server, safe='')}/disconnect"), each.key.server == new)
            for each in records
        ]
        return views.overview(visit.caller.name, visit.browser.form_token, connected, visit.url("/sign-out"))

    async def _disconnect(self, visit: _Visit, _: _Form) -> Response:
        caller = self._signed_in(visit)
        await self._broker.forget(CredentialKey(caller.issuer, caller.subject, visit.request.path_params["server"]))
        return RedirectResponse(visit.url(""), 303)

    async def _document(self, request: Request) -> Response:
        """The gateway's client ID metadata document for the issuers of its callers."""
        return self._metadata(request, "client.json", "signed-in")

    async def _document_for_server(self, request: Request) -> Response:
        """The document for the authorization server of one server.

        Each server is a client of its own, with a redirect URI of its own, so that an authorization server cannot use
        the response of another.
        """
        server = request.path_params["server"]
        if not isinstance(self._broker.grants.get(server), LoginGrant):
            return JSONResponse({"error": "no such server"}, 404)
        name = quote(server, safe="")
        return self._metadata(request, f"client/{name}.json", f"callback/{name}")

    def _metadata(self, request: Request, document: str, redirect: str) -> Response:
        try:
            base = self._address.base(request.headers["host"])
        except ToolError as error:
            return JSONResponse({"error": str(error)}, 404)
        metadata = {
            "client_id": f"{base}{PATH}/{document}",
            "client_name": "bridge gateway",
            "client_uri": base,
            "redirect_uris": [f"{base}{PATH}/{redirect}"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        return JSONResponse(metadata, headers={"cache-control": "public, max-age=3600"})


def _callback(base: str, server: str) -> str:
    """Return the redirect URI of the logins at a server."""
    return f"{base}{PATH}/callback/{quote(server, safe='')}"
