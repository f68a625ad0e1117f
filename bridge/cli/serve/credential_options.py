"""Options of ``bridge serve`` for the credentials of a gateway's callers, and their store."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.options import setting, texts_setting
from bridge.errors import TargetError
from bridge.private_files import make_private_folder, open_private, state_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.gateway.credentials.broker import CredentialBroker
    from bridge.gateway.credentials.identification import SignInClient
    from bridge.gateway.credentials.store import CredentialStore

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialOptions:
    """Options of the credentials of callers."""

    credential_store: str | None = setting(
        metavar="FILE",
        help="File of the credentials of callers, for servers with 'per': 'caller'; by default credentials.db in the "
        "state folder, or the Redis of --redis-url. It is encrypted with --state-keys, or with a key in FILE.key.",
    )
    public_url: str | None = setting(
        metavar="URL",
        help="URL under which browsers reach this gateway, for the pages on which callers give credentials; by default "
        "that of --resource-url.",
    )
    connect_client_id: str | None = setting(
        help="Client ID of this gateway at the --oauth-issuer, where callers log in to open these pages; redirect URI "
        "is /connect/signed-in. By default the URL of its client ID metadata document."
    )
    connect_client_secret: str | None = setting(
        help="Secret of that client; better set in the environment. By default none.", repr=False
    )
    connect_scope: tuple[str, ...] = texts_setting(
        metavar="SCOPE", help="A scope to ask for in that login, beside each --required-scope. Repeatable."
    )

    def store(self, name: str, keys: Sequence[bytes] | None, redis_url: str | None) -> CredentialStore:
        """Return the store, which is not open.

        Args:
            name: Name of the gateway.
            keys: Keys of ``--state-keys``; None for none.
            redis_url: URL of ``--redis-url``; None for none.

        Raises:
            TargetError: The key cannot be read or written, or there are no keys for all replicas.
        """
        from bridge.gateway.credentials.sealing import CredentialSeal  # noqa: PLC0415 - only with such servers
        from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore  # noqa: PLC0415

        if redis_url is not None and self.credential_store is None:
            from bridge.gateway.credentials.redis_store import RedisCredentialStore  # noqa: PLC0415 - needs Redis

            if keys is None:
                raise TargetError("credentials of callers in Redis need --state-keys, the same for all replicas")
            return RedisCredentialStore(redis_url, CredentialSeal(keys), name)
        path = store_path(self.credential_store)
        return SqliteCredentialStore(path, CredentialSeal(keys or [key_beside(path)]))

    @property
    def sign_in_client(self) -> SignInClient | None:
        """The gateway as a client of its callers' issuer; None if it is not registered there."""
        if self.connect_client_id is None:
            return None
        from bridge.gateway.credentials.identification import SignInClient  # noqa: PLC0415 - only with such servers

        return SignInClient(
            client_id=self.connect_client_id, client_secret=self.connect_client_secret, scopes=self.connect_scope
        )

    def broker(
        self, name: str, keys: Sequence[bytes] | None, redis_url: str | None, *, default_url: str | None = None
    ) -> CredentialBroker:
        """Return the broker of a gateway; raises as `store`.

        Args:
            name: Name of the gateway.
            keys: As for `store`.
            redis_url: As for `store`.
            default_url: Public URL without ``--public-url``; None for none.
        """
        from bridge.gateway.credentials.broker import CredentialBroker  # noqa: PLC0415 - only with such servers

        return CredentialBroker(self.store(name, keys, redis_url), name=name, public_url=self.public_url or default_url)


def store_path(given: str | None) -> Path:
    """Return the file of the credentials; by default in the state folder."""
    if given is not None:
        return Path(given)
    return state_folder() / "credentials.db"


def key_beside(path: Path) -> bytes:
    """Return the key in the file beside a store, which is created for its user alone if it does not exist.

    Raises:
        TargetError: It cannot be read or written.
    """
    file = path.with_name(path.name + ".key")
    try:
        make_private_folder(file.parent)
        descriptor = open_private(file, os.O_RDWR)
        with os.fdopen(descriptor, "r+b") as opened:
            if hasattr(os, "lockf"):
                os.lockf(descriptor, os.F_LOCK, 0)  # workers start at the same time
            key = opened.read().strip()
            if not key:
                key = secrets.token_hex(_KEY_BYTES).encode()
                opened.write(key + b"\n")
                opened.flush()
                os.fsync(descriptor)
    except OSError as error:
        raise TargetError(f"the key of the credentials in {str(file)!r} cannot be used: {error}") from error
    if len(key) < _KEY_BYTES:
        raise TargetError(f"the key in {str(file)!r} has {len(key)} bytes, and must have at least {_KEY_BYTES}")
    return key
