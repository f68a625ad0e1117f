"""Sharing: one `SignIn` for all connections to a server that sign in alike, so that one renewal serves them all."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

from anyio.lowlevel import RunVar

from bridge.client.auth.errors import BY_A_KEY
from bridge.client.auth.grants import OAuthLogin
from bridge.client.auth.sign_in import SignIn

if TYPE_CHECKING:
    from bridge.client.auth.grants import Grant
    from bridge.client.config.servers import HttpTransport

_Shared: TypeAlias = "WeakValueDictionary[tuple[str, Grant], SignIn]"

_of_event_loop: RunVar[_Shared] = RunVar("bridge.client.auth.sharing")


def shared_sign_in(transport: HttpTransport) -> SignIn | None:
    """What signs the requests to a server; None where a header does.

    Where nothing is said of how to sign in, it is as whoever has logged in, if anybody has.
    """
    if any(name.lower() == "authorization" for name in transport.headers):
        return None
    hint = f"run: bridge login {shlex.quote(transport.login_target or transport.redacted())}"
    key_hint = None
    if transport.auth is None:
        nonetheless = f"it names no authorization server; if it has logins nonetheless, {hint}"
        key_hint = f"it wants a key: give it {BY_A_KEY} ({nonetheless})"
        hint += " (or give it an 'Authorization' header in 'headers')"
    grant = transport.auth or OAuthLogin()
    shared = _of_event_loop.get(None)
    if shared is None:
        shared = WeakValueDictionary()
        _of_event_loop.set(shared)
    signing = shared.get((transport.url, grant))
    if signing is None:
        signing = shared[transport.url, grant] = SignIn(transport.url, grant, hint=hint, key_hint=key_hint)
    return signing
