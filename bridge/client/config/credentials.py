"""Convert the ``auth`` entry of a configuration to a grant or a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from bridge.client.auth.grants import ClientCredentials, OAuthLogin
from bridge.client.config.schema import AuthEntry

if TYPE_CHECKING:
    from bridge.client.auth.grants import Grant

_HERE = ("127.0.0.1", "::1", "localhost")
_TEXTS = ("token", "client_id", "client_secret", "client_metadata_url", "private_key", "issuer", "redirect_uri")
_ONLY_FOR = {
    "oauth": {"client_id", "client_secret", "client_authentication", "client_metadata_url", "issuer", "redirect_uri"}
    | {"callback_port"},
    "client_credentials": {"client_id", "client_secret", "client_authentication", "issuer", "signing_algorithm"}
    | {"private_key", "private_key_file"},
    "bearer": {"token"},
}


class CredentialReader(Protocol):
    """Reads the texts of one server's entry."""

    def text(self, text: str, key: str, place: str = "") -> str | None:
        """Expand a text's references; None after a problem was reported."""

    def file(self, text: str, key: str, place: str = "") -> str | None:
        """Read a file; None after a problem was reported."""

    def problem(self, message: str, key: str, place: str = "") -> None:
        """Report a problem."""


def read_auth(said: AuthEntry | str, reader: CredentialReader) -> Grant | str | None:
    """Convert an ``auth`` entry to a grant or a token; None after a problem was reported.

    Args:
        said: The value of ``auth``.
        reader: Reads its texts.
    """
    if isinstance(said, str):
        return OAuthLogin() if said == "oauth" else _token(reader.text(said, "auth"), reader)
    kind = said.type or ("bearer" if said.token is not None else "oauth")
    unused = sorted(said.model_fields_set - _ONLY_FOR[kind] - {"type", "scopes"})
    for name in unused:
        reader.problem(f"is not used for {kind!r}: remove it", "auth", f".{_written(name)}")
    texts = _texts(said, reader)
    if unused or texts is None:
        return None
    match kind:
        case "bearer":
            return _token(texts.get("token", ""), reader)
        case "client_credentials":
            return _credentials(said, texts, reader)
        case _:
            return _login(said, texts, reader)


def _texts(said: AuthEntry, reader: CredentialReader) -> dict[str, str] | None:
    """Expand the texts by name; None if one fails."""
    found = {
        name: reader.text(text, "auth", f".{_written(name)}")
        for name in _TEXTS
        if (text := getattr(said, name)) is not None
    }
    if said.private_key_file is not None:
        found["private_key"] = reader.file(said.private_key_file, "auth", ".privateKeyFile")
    texts = {name: text for name, text in found.items() if text is not None}
    return texts if len(texts) == len(found) else None


def _token(token: str | None, reader: CredentialReader) -> str | None:
    if token == "":
        reader.problem("is empty: give a token, or 'oauth' for a login", "auth")
    return token or None


def _credentials(said: AuthEntry, texts: dict[str, str], reader: CredentialReader) -> ClientCredentials | None:
    missing = [_written(name) for name in ("client_id", "issuer") if not texts.get(name)]
    if not (texts.get("client_secret") or texts.get("private_key")):
        missing.append("clientSecret")
    if missing:
        reader.problem(f"client_credentials needs {', '.join(map(repr, missing))}", "auth")
        return None
    if not _is_web(texts["issuer"]):
        reader.problem("must be the URL of the authorization server", "auth", ".issuer")
        return None
    options: dict[str, Any] = {}
    if said.client_authentication is not None:
        options["client_authentication"] = said.client_authentication
    if said.signing_algorithm is not None:
        options["signing_algorithm"] = said.signing_algorithm
    return ClientCredentials(
        client_id=texts["client_id"],
        client_secret=texts.get("client_secret"),
        private_key=texts.get("private_key"),
        issuer=texts["issuer"],
        scopes=tuple(said.scopes or ()),
        **options,
    )


def _login(said: AuthEntry, texts: dict[str, str], reader: CredentialReader) -> OAuthLogin | None:
    redirect_uri = texts.get("redirect_uri")
    if said.callback_port is not None and redirect_uri is None:
        redirect_uri = f"http://localhost:{said.callback_port}/callback"
    if redirect_uri is not None and not _is_here(redirect_uri):
        reader.problem("must be http on this machine, such as http://localhost:8765/callback", "auth", ".redirectUri")
        return None
    metadata_url = texts.get("client_metadata_url")
    if metadata_url is not None and not _is_document(metadata_url):
        reader.problem("must be the https URL of a document", "auth", ".clientMetadataUrl")
        return None
    if texts.get("client_secret") and not texts.get("client_id"):
        reader.problem("needs a 'clientId' with the secret", "auth")
        return None
    return OAuthLogin(
        client_id=texts.get("client_id"),
        client_secret=texts.get("client_secret"),
        client_authentication=said.client_authentication,
        client_metadata_url=metadata_url,
        issuer=texts.get("issuer"),
        scopes=tuple(said.scopes or ()),
        redirect_uri=redirect_uri,
    )


def _is_web(url: str) -> bool:
    return url.startswith(("https://", "http://")) and bool(_split(url))


def _is_here(url: str) -> bool:
    parts = _split(url)
    return parts is not None and parts.scheme == "http" and parts.hostname in _HERE and not parts.query


def _is_document(url: str) -> bool:
    parts = _split(url)
    return parts is not None and parts.scheme == "https" and parts.path not in {"", "/"}


def _split(url: str) -> Any:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _written(name: str) -> str:
    return AuthEntry.model_fields[name].alias or name
