"""Convert the ``auth`` entry of a configuration to a grant or a token."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from bridge.client.auth.grants import (
    AssertionExchange,
    ClientCredentials,
    FileAssertion,
    IdentityAssertion,
    OAuthLogin,
    PerCaller,
    SecretHeader,
    TokenExchange,
)
from bridge.client.config.schema import AuthEntry
from bridge.client.config.variables import MISSING, Expanded
from bridge.redaction import HIDDEN
from bridge.types import without_none

if TYPE_CHECKING:
    from bridge.client.auth.grants import Grant
    from bridge.client.config.variables import EntryReader

_HERE = ("127.0.0.1", "::1", "localhost")
_TEXTS = (
    *("token", "client_id", "client_secret", "client_metadata_url", "private_key", "issuer", "redirect_uri"),
    *("token_url", "audience", "resource", "idp_token_url", "idp_client_id", "idp_client_secret"),
)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~]*\{secret\}[ -~]*)")
_ONLY_FOR = {
    "oauth": {"client_id", "client_secret", "client_authentication", "client_metadata_url", "issuer", "redirect_uri"}
    | {"callback_port"},
    "client_credentials": {"client_id", "client_secret", "client_authentication", "issuer", "signing_algorithm"}
    | {"private_key", "private_key_file"},
    "workload_identity": {"client_id", "client_secret", "client_authentication", "issuer", "assertion_file"},
    "bearer": {"token"},
}
_PER_CALLER = {
    "login": {"client_id", "client_secret", "client_authentication", "client_metadata_url", "issuer"},
    "exchange": {"token_url", "client_id", "client_secret", "client_authentication", "private_key", "private_key_file"}
    | {"signing_algorithm", "audience", "resource", "subject_token_type"},
    "identity_assertion": {"idp_token_url", "client_id", "client_secret", "client_authentication", "issuer"}
    | {"idp_client_id", "idp_client_secret", "subject_token_type"},
    "secret": {"header"},
}
"""Keys of credentials per caller."""


class Auth(NamedTuple):
    """Authentication of an entry: a grant, a header, or neither."""

    grant: Grant | PerCaller | None = None
    """Grant type."""
    header: Expanded | None = None
    """Value of the ``Authorization`` header."""
    texts: tuple[Expanded, ...] = ()
    """All texts that were read, which may be secret."""


def read_auth(entry: AuthEntry | str | None, reader: EntryReader) -> Auth:
    """Convert an ``auth`` entry; neither grant nor header without one, or after a problem was reported."""
    if entry is None:
        return Auth()
    if isinstance(entry, str):
        return Auth(OAuthLogin()) if entry == "oauth" else _token(reader.expand(entry, "auth"), reader)
    return Auth() if (kind := _kind_of(entry, reader)) is None else _read_entry(entry, kind, reader)


def _kind_of(entry: AuthEntry, reader: EntryReader) -> str | None:
    """Return the type of an entry; None after a problem was reported."""
    if entry.per is None:
        kind = entry.type or ("bearer" if entry.token is not None else "oauth")
        if kind not in _PER_CALLER:
            return kind
        reader.problem(f"{kind!r} is for the callers of a gateway: add 'per': 'caller'", "auth", ".type")
        return None
    kind = "login" if entry.type is None or entry.type == "oauth" else entry.type
    if kind in _PER_CALLER:
        return kind
    kinds = ", ".join(map(repr, _PER_CALLER))
    reader.problem(f"{kind!r} is not a credential of a caller: write one of {kinds}, or remove 'per'", "auth", ".type")
    return None


def _read_entry(entry: AuthEntry, kind: str, reader: EntryReader) -> Auth:
    used = _ONLY_FOR[kind] if entry.per is None else {"per", "anonymous", *_PER_CALLER[kind]}
    unused = sorted(entry.model_fields_set - used - {"type", "scopes"})
    for name in unused:
        reader.problem(f"is not used for {kind!r}: remove it", "auth", f".{_written(name)}")
    read = {
        name: reader.expand(text, "auth", f".{_written(name)}")
        for name in _TEXTS
        if (text := getattr(entry, name)) is not None
    }
    if entry.private_key_file is not None:
        pem = reader.file(entry.private_key_file, "auth", ".privateKeyFile", read=_ascii_text, kind="a PEM file")
        read["private_key"] = MISSING if pem is None else Expanded(pem, HIDDEN)
    secrets = tuple(read.values())
    if unused or any(text.is_missing for text in secrets):
        return Auth(texts=secrets)
    if kind == "bearer":
        return _token(read.get("token", Expanded("", "")), reader)
    texts = {name: text.value for name, text in read.items()}
    if entry.per is not None:
        own = _OF_CALLERS[kind](entry, texts, reader)
        return Auth(None if own is None else PerCaller(own, entry.anonymous or "refuse"), texts=secrets)
    return Auth(_OF_ALL[kind](entry, texts, reader), texts=secrets)


def _token(token: Expanded, reader: EntryReader) -> Auth:
    if not token.value and not token.is_missing:
        reader.problem("is empty: give a token, or 'oauth' for a login", "auth")
    header = Expanded(f"Bearer {token.value}", HIDDEN, (token.value,)) if token.value else None
    return Auth(header=header, texts=(token,))


def _credentials(entry: AuthEntry, texts: dict[str, str], reader: EntryReader) -> ClientCredentials | None:
    missing = [_written(name) for name in ("client_id", "issuer") if not texts.get(name)]
    if not (texts.get("client_secret") or texts.get("private_key")):
        missing.append("clientSecret")
    if missing:
        reader.problem(f"client_credentials needs {', '.join(map(repr, missing))}", "auth")
        return None
    if not _check_url(texts["issuer"], "issuer", reader):
        return None
    return ClientCredentials(
        client_id=texts["client_id"],
        client_secret=texts.get("client_secret"),
        private_key=texts.get("private_key"),
        issuer=texts["issuer"],
        scopes=tuple(entry.scopes or ()),
        **without_none(client_authentication=entry.client_authentication, signing_algorithm=entry.signing_algorithm),
    )


def _workload(entry: AuthEntry, texts: dict[str, str], reader: EntryReader) -> IdentityAssertion | None:
    file = "" if entry.assertion_file is None else reader.path(entry.assertion_file, "auth", ".assertionFile").value
    given = {**texts, "assertion_file": entry.assertion_file}
    if missing := [_written(name) for name in ("client_id", "issuer", "assertion_file") if not given.get(name)]:
        reader.problem(f"workload_identity needs {', '.join(map(repr, missing))}", "auth")
        return None
    if not _check_url(texts["issuer"], "issuer", reader):
        return None
    return IdentityAssertion(
        client_id=texts["client_id"],
        client_secret=texts.get("client_secret"),
        issuer=texts["issuer"],
        assertion=FileAssertion(file),
        scopes=tuple(entry.scopes or ()),
        **without_none(client_authentication=entry.client_authentication),
    )


def _login(entry: AuthEntry, texts: dict[str, str], reader: EntryReader) -> OAuthLogin | None:
    redirect_uri = texts.get("redirect_uri")
    if entry.callback_port is not None and redirect_uri is None:
        redirect_uri = f"http://localhost:{entry.callback_port}/callback"
    redirect = None if redirect_uri is None else _split(redirect_uri)
    is_here = redirect is not None and redirect.scheme == "http" and redirect.hostname in _HERE and not redirect.query
    if redirect_uri is not None and not is_here:
        reader.problem("must be http on this machine, such as http://localhost:8765/callback", "auth", ".redirectUri")
        return None
    metadata_url = texts.get("client_metadata_url")
    document = None if metadata_url is None else _split(metadata_url)
    if metadata_url is not None and (document is None or document.scheme != "https" or document.path in {"", "/"}):
        reader.problem("must be the https URL of a document", "auth", ".clientMetadataUrl")
        return None
    if texts.get("client_secret") and not texts.get("client_id"):
        reader.problem("needs a 'clientId' with the secret", "auth")
        return None
    return OAuthLogin(
        client_id=texts.get("client_id"),
        client_secret=texts.get("client_secret"),
        client_authentication=entry.client_authentication,
        client_metadata_url=metadata_url,
        issuer=texts.get("issuer"),
        scopes=tuple(entry.scopes or ()),
        redirect_uri=redirect_uri,
    )


def _exchange(entry: AuthEntry, texts: dict[str, str], reader: EntryReader) -> TokenExchange | None:
    missing = [_written(name) for name in ("token_url", "client_id") if not texts.get(name)]
    if missing:
        reader.problem(f"exchange needs {', '.join(map(repr, missing))}", "auth")
        return None
    if not _check_url(texts["token_url"], "token_url", reader):
        return None
    return TokenExchange(
        token_url=texts["token_url"],
        client_id=texts["client_id"],
        client_secret=texts.get("client_secret"),
        private_key=texts.get("private_key"),
        audience=texts.get("audience"),
        resource=texts.get("resource"),
        scopes=tuple(entry.scopes or ()),
        **_exchange_options(entry),
        **without_none(signing_algorithm=entry.signing_algorithm),
    )


def _assertion(entry: AuthEntry, texts: dict[str, str], reader: EntryReader) -> AssertionExchange | None:
    if not texts.get("idp_token_url"):
        reader.problem("identity_assertion needs 'idpTokenUrl'", "auth")
        return None
    if not _check_url(texts["idp_token_url"], "idp_token_url", reader):
        return None
    return AssertionExchange(
        idp_token_url=texts["idp_token_url"],
        client_id=texts.get("client_id"),
        client_secret=texts.get("client_secret"),
        idp_client_id=texts.get("idp_client_id"),
        idp_client_secret=texts.get("idp_client_secret"),
        issuer=texts.get("issuer"),
        scopes=tuple(entry.scopes or ()),
        **_exchange_options(entry),
    )


def _exchange_options(entry: AuthEntry) -> dict[str, Any]:
    return without_none(client_authentication=entry.client_authentication, subject_token_type=entry.subject_token_type)


def _secret(entry: AuthEntry, texts: dict[str, str], reader: EntryReader) -> SecretHeader | None:  # noqa: ARG001
    if entry.header is None:
        return SecretHeader()
    if (found := _HEADER.fullmatch(entry.header)) is None:
        reader.problem("must be a header with {secret}, such as 'Authorization: Bearer {secret}'", "auth", ".header")
        return None
    return SecretHeader(name=found[1], template=found[2])


_OF_ALL = {"oauth": _login, "client_credentials": _credentials, "workload_identity": _workload}
_OF_CALLERS = {"login": _login, "exchange": _exchange, "identity_assertion": _assertion, "secret": _secret}


def _check_url(url: str, name: str, reader: EntryReader) -> bool:
    is_url = url.startswith(("https://", "http://")) and _split(url) is not None
    if not is_url:
        kind = "the authorization server" if name == "issuer" else "a token endpoint"
        reader.problem(f"must be the URL of {kind}", "auth", f".{_written(name)}")
    return is_url


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _ascii_text(path: str) -> str:
    return Path(path).read_text(encoding="ascii")


def _written(name: str) -> str:
    return AuthEntry.model_fields[name].alias or name
