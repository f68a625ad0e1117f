"""Logins on disk or in memory, and their revocation (RFC 7009).

Each login is one file that only its user can read. A file is replaced atomically; a renewal holds a lock across
processes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit, urlunsplit

import anyio
import anyio.to_thread
import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientMetadata
from pydantic import ValidationError

from bridge.client.auth.errors import SignInError
from bridge.client.auth.login import Login, SdkTokenStorage
from bridge.client.auth.server_validation import AllowedAddresses
from bridge.client.transports.received_data import authority_client
from bridge.errors import WireError
from bridge.private_files import make_private_folder, naming, state_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from bridge.client.auth.grants import OAuthLogin

_LOOK_SECONDS = 0.02
"""Seconds between attempts to acquire a lock; the operating system sends no notification."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_logger = logging.getLogger("bridge.client")


class LoginKeeper(Protocol):
    """Keeps logins by key."""

    async def load(self, key: str) -> Login | None:
        """Load the login of a key; None if there is none. Raises WireError or OSError if it cannot be read."""
        ...

    async def save(self, key: str, login: Login) -> None:
        """Store a login; raises OSError if it cannot be written."""
        ...

    def locked(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold the exclusive right to renew a login during this block; raises OSError if that is impossible."""
        ...


class LoginStore:
    """Logins in a folder; by default ``logins`` in `state_folder`."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder if folder is not None else state_folder() / "logins"

    def path(self, key: str) -> Path:
        """File of a login."""
        return self.folder / f"{key}.json"

    async def load(self, key: str) -> Login | None:
        """Load the login of a key; None if there is none.

        Raises:
            WireError: The stored data is not a login.
            OSError: It cannot be read.
        """
        return await anyio.to_thread.run_sync(self._load, key)

    async def save(self, key: str, login: Login) -> None:
        """Store a login. An existing file that is not a login is renamed to ``.bad``.

        Raises:
            OSError: It cannot be written; the previous login is unchanged.
        """
        await anyio.to_thread.run_sync(self._save, key, login)

    async def delete(self, key: str) -> bool:
        """Delete a login; returns True if there was one.

        Raises:
            OSError: The file cannot be removed.
        """
        try:
            await anyio.Path(self.path(key)).unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self, key: str) -> AsyncIterator[None]:
        """Hold the exclusive right to renew a login on this machine during this block."""
        from filelock import FileLock, Timeout  # noqa: PLC0415 - slow to import, rarely needed

        make_private_folder(self.folder)
        lock = FileLock(self.folder / f"{key}.lock", mode=0o600, thread_local=False)
        waits = False
        while not lock.is_locked:
            try:
                lock.acquire(blocking=False)
            except Timeout:
                if not waits:
                    _logger.debug("the login %s is being renewed by another process", key)
                waits = True
                await anyio.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def _load(self, key: str) -> Login | None:
        path = self.path(key)
        try:
            mode = path.stat().st_mode
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        if sys.platform != "win32" and mode & _OTHERS:
            _logger.warning("%s was readable by other users of this machine; its permissions were restricted", path)
            path.chmod(0o600)
        try:
            return Login.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise WireError(f"{str(path)!r} is not a valid login: {first['msg']}; remove it, or log in again") from None

    def _save(self, key: str, login: Login) -> None:
        make_private_folder(self.folder)
        path = self.path(key)
        try:
            self._load(key)
        except WireError:
            aside = path.with_suffix(".bad")
            path.replace(aside)
            _logger.warning("%s was not a valid login; it was renamed to %s", path, aside)
        descriptor, name = mkstemp(dir=self.folder, prefix=f".{key}.", suffix=".new")  # mkstemp makes it 0600
        new = Path(name)
        try:
            with naming(path), open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                file.write(login.model_dump_json(exclude_none=True, indent=1).encode())
                file.flush()
                os.fsync(descriptor)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        if sys.platform != "win32":  # sync the folder, so that the renaming survives a crash
            descriptor = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class StoredLogin:
    """The login of one server, in memory only if there is no store; `shown` and `hint` are for messages."""

    def __init__(self, store: LoginKeeper | None, key: str, *, shown: str, hint: str | None) -> None:
        self._store = store
        self._login: Login | None = None
        self._key = key
        self._shown = shown
        self._hint = hint

    async def load(self) -> Login | None:
        """Load the login; None if there is none.

        Raises:
            SignInError: The login cannot be read.
        """
        if self._store is None:
            return self._login
        try:
            return await self._store.load(self._key)
        except WireError as error:
            raise SignInError(str(error), hint=self._hint) from error
        except OSError as error:
            raise SignInError(f"its login cannot be read: {error}") from error

    async def save(self, login: Login) -> None:
        """Store a login; a failure is logged."""
        self._login = login
        try:
            if self._store is not None:
                await self._store.save(self._key, login)
        except OSError as error:
            _logger.warning("the login to %s cannot be saved: %s", self._shown, error)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Lock the login against renewal by other processes; a failure to lock is logged."""
        async with AsyncExitStack() as stack:
            try:
                if self._store is not None:
                    await stack.enter_async_context(self._store.locked(self._key))
            except OSError as error:
                _logger.warning("logins cannot be locked and are renewed without a lock: %s", error)
            yield


def login_key(server_url: str, client_id: str | None = None) -> str:
    """Key of the login of a client (by ID, if configured) to a server: the host for readability, and a hash."""
    parts = urlsplit(server_url)
    canonical = urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), parts.query, ""))
    digest = hashlib.sha256(f"{canonical}\n{client_id or ''}".encode()).hexdigest()
    host = "".join(char if char.isalnum() or char in ".-" else "_" for char in parts.hostname or "server")
    return f"{host}-{digest[:24]}"


async def log_out(url: str, grant: OAuthLogin) -> bool:
    """Delete a login, and revoke its tokens if the authorization server supports it; returns True if there was one.

    Raises:
        OSError: The file cannot be removed.
    """
    store, key = LoginStore(), login_key(url, grant.client_id)
    try:
        login = await store.load(key)
    except WireError as error:
        _logger.warning("the tokens were not revoked: %s", error)
        login = None
    if login is not None:
        await revoke(url, grant.issuer, login)
    return await store.delete(key)


async def revoke(url: str, issuer: str | None, login: Login) -> None:
    """Revoke the tokens of a login, if the authorization server supports it (RFC 7009); a failure is logged.

    Args:
        url: The MCP server.
        issuer: The configured authorization server; None for the server's choice.
        login: The login.
    """
    endpoint = login.metadata.revocation_endpoint if login.metadata is not None else None
    if endpoint is None or login.tokens is None or login.client is None:
        return
    draft = SdkTokenStorage(login.client, login.tokens)
    context = OAuthContext(url, OAuthClientMetadata(redirect_uris=None), draft, None, None)
    context.client_info = login.client
    kinds = {"refresh_token": login.tokens.refresh_token, "access_token": login.tokens.access_token}
    try:
        AllowedAddresses(url, issuer).check(endpoint)
        async with authority_client() as http:
            for kind, token in kinds.items():
                if token is None:
                    continue
                fields = {"token": token, "token_type_hint": kind, "client_id": login.client.client_id}
                data, headers = context.prepare_token_auth(fields, {})
                answer = await http.post(str(endpoint), data=data, headers=headers)
                if not answer.is_success:
                    _logger.warning("the %s was not revoked: HTTP %s", kind.replace("_", " "), answer.status_code)
    except (httpx2.HTTPError, OAuthFlowError, SignInError) as error:
        _logger.warning("the tokens were not revoked: %s", str(error) or type(error).__name__)
