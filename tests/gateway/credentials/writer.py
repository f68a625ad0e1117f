"""Process that keeps credentials in a file until it is killed; run as ``python -m tests.gateway.credentials.writer``.

It prints the number of each credential as soon as the store has kept it.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import TYPE_CHECKING

import anyio

from bridge.gateway.credentials.sealing import CredentialSeal
from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore
from bridge.gateway.credentials.store import Credential, CredentialKey

if TYPE_CHECKING:
    from pathlib import Path

SUBJECTS = 7
"""Number of callers whose credentials are replaced in turn."""


def store_in(file: str | Path) -> SqliteCredentialStore:
    """Return the store of the process."""
    return SqliteCredentialStore(file, CredentialSeal([b"1" * 32]))


def key_of(number: int) -> CredentialKey:
    """Return the caller and server of a numbered credential."""
    return CredentialKey("https://id", f"caller-{number % SUBJECTS}", "notes")


async def write(file: str) -> None:
    """Keep one credential after another, with a value that comes once."""
    store = store_in(file)
    await store.open()
    for number in count():
        await store.put(key_of(number), Credential(kind="secret", secret=f"secret-{number}"))
        await store.put_once(f"link-{number}", {"number": number}, 600)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(write, sys.argv[1])
