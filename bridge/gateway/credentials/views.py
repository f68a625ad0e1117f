"""The connect pages as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bridge.gateway.credentials.markup import Markup, joined, markup, page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from bridge.gateway.credentials.grants import GrantDescription
    from bridge.gateway.credentials.store import CredentialRecord

_NOTHING = Markup()
_KINDS = {"login": "a login", "secret": "a key or token", "exchange": "an exchanged token"}


@dataclass(frozen=True, slots=True)
class SignInForm:
    """The forms by which a caller signs in."""

    action: str
    """URL of the form for a key; that of an issuer has a slash and its number after it."""
    token: str
    """Secret of the browser's forms."""
    link: str
    """Token of the link that was opened; empty for none."""
    issuers: Sequence[str]
    """Issuers at which the caller may log in."""
    takes_keys: bool
    """True if the caller may give a key."""


@dataclass(frozen=True, slots=True)
class ConsentForm:
    """The form by which a caller agrees."""

    action: str
    token: str
    """Secret of the browser's forms."""
    sign_out: str
    """URL of the form to sign out."""
    name: str
    """Name of the caller."""


def problem(status: int, reason: str, home: str = "") -> Response:
    """Return the page of a refused request, with a link to the overview, if its URL is known."""
    link = markup('<p><a href="$home">Your connected servers</a></p>', home=home) if home else _NOTHING
    return page("That did not work", markup('<p class="problem">$reason</p>$link', reason=reason, link=link), status)


def sign_in(form: SignInForm, wrong: str, status: int) -> Response:
    """Return the page on which a caller signs in."""
    hidden = markup(
        '<input type="hidden" name="token" value="$token"><input type="hidden" name="link" value="$link">',
        token=form.token,
        link=form.link,
    )
    parts = [
        markup(
            '<form method="post" action="$action/$number">$hidden<button>Log in at $issuer</button></form>',
            action=form.action,
            number=number,
            hidden=hidden,
            issuer=issuer,
        )
        for number, issuer in enumerate(form.issuers)
    ]
    if form.takes_keys:
        parts.append(
            markup(
                '<form method="post" action="$action">$hidden<label for="key">The key with which your program calls '
                'this gateway</label><input type="password" id="key" name="key" autocomplete="off" required>'
                "<button>Sign in</button></form>",
                action=form.action,
                hidden=hidden,
            )
        )
    wrongs = markup('<p class="problem">$wrong</p>', wrong=wrong) if wrong else _NOTHING
    why = markup(
        "<p>This gateway has to know who you are, so that nobody else can use what you connect. Sign in as the one "
        "whom your program acts for.</p>"
    )
    return page("Sign in to the gateway", joined([wrongs, why, *parts]), status)


def consent(
    form: ConsentForm, grant: GrantDescription, scope: str | None, redirect_uri: str, wrong: str, status: int
) -> Response:
    """Return the page that says which server asks for what."""
    facts = [("Server", f"{grant.server} ({grant.address})"), ("You are", form.name)]
    if grant.kind == "login":
        scopes = " ".join(filter(None, [*grant.scopes, scope]))
        facts += [
            ("You will log in at", grant.issuer or "the authorization server that this server names"),
            ("For the permissions", scopes or "that the server asks for"),
            ("You come back to", redirect_uri),
        ]
        field, button = _NOTHING, "Continue to the login"
    else:
        facts.append(("It is sent in the header", grant.header or "that the configuration names"))
        button = "Connect"
        field = markup(
            '<label for="secret">Your key or token for $server</label>'
            '<input type="password" id="secret" name="secret" autocomplete="off" required>',
            server=grant.server,
        )
    listed = joined(markup("<dt>$name</dt><dd>$value</dd>", name=name, value=value) for name, value in facts)
    body = markup(
        "$wrong<p>A program that acts for you wants to use this server. What you give is encrypted, kept by this "
        "gateway, and sent to this server alone, for requests of yours.</p><dl>$facts</dl>"
        '<form method="post" action="$action"><input type="hidden" name="token" value="$token">$field'
        "<button>$button</button></form>$footer",
        wrong=markup('<p class="problem">$wrong</p>', wrong=wrong) if wrong else _NOTHING,
        facts=listed,
        action=form.action,
        token=form.token,
        field=field,
        button=button,
        footer=_footer(form.name, form.token, form.sign_out),
    )
    return page(f"Connect {grant.server}", body, status)


def leave_for(url: str) -> Response:
    """Return the page that leads to an authorization server.

    A redirect would be one of a form, which the policy of the pages allows to this gateway only.
    """
    host = urlsplit(url).netloc
    body = markup(
        '<p>You are sent to <a href="$url" rel="noreferrer">$host</a>, to log in there.</p>', url=url, host=host
    )
    return page("One moment", body, head=markup('<meta http-equiv="refresh" content="0;url=$url">', url=url))


def overview(name: str, token: str, connected: Sequence[tuple[CredentialRecord, str, bool]], sign_out: str) -> Response:
    """Return the page that lists what a caller has connected.

    Args:
        name: The caller.
        token: Secret of the browser's forms.
        connected: Each credential, the URL of the form that forgets it, and True for one that is new.
        sign_out: URL of the form to sign out.
    """
    notices = [
        markup(
            '<p class="notice">$server is connected. You can close this window; your program goes on.</p>',
            server=record.key.server,
        )
        for record, _, is_new in connected
        if is_new
    ]
    items = [
        markup(
            '<li>$server: $kind, since $since <form class="inline" method="post" action="$action">'
            '<input type="hidden" name="token" value="$token">'
            '<button aria-label="Disconnect $server">Disconnect</button></form></li>',
            server=record.key.server,
            kind=_KINDS.get(record.kind, record.kind),
            since=datetime.fromtimestamp(record.made_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
            action=action,
            token=token,
        )
        for record, action, _ in connected
    ]
    listed = markup("<ul>$items</ul>", items=joined(items)) if items else markup("<p>Nothing is connected.</p>")
    return page("Your connected servers", joined([*notices, listed, _footer(name, token, sign_out)]))


def _footer(name: str, token: str, sign_out: str) -> Markup:
    return markup(
        '<footer>Signed in as $name <form class="inline" method="post" action="$action">'
        '<input type="hidden" name="token" value="$token"><button>Sign out</button></form></footer>',
        name=name,
        action=sign_out,
        token=token,
    )
