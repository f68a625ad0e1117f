"""A server with a large blob, for gateways that pass it on."""

from __future__ import annotations

from functools import cache
from random import Random

from bridge import resource

BYTES = 20 * 1024 * 1024
TEXT_BYTES = 1024 * 1024


@cache
def blob() -> bytes:
    """Bytes that are the same in every process."""
    return Random(20).randbytes(BYTES)


@resource("big://blob", run_in_thread=False)
def big() -> bytes:
    """20 MiB."""
    return blob()


@resource("big://{kind}/text", run_in_thread=False)
def text(kind: str) -> str:
    """1 MiB, of which some looks like JSON."""
    return f'{kind}: "uri":"big://x" ' + "é" * (TEXT_BYTES // 2)
