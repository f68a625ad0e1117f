"""Refusals over HTTP: the reason in the body of an error that is no error of the protocol."""

from __future__ import annotations

import re
from contextlib import aclosing
from html import unescape
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
from pydantic_core import from_json

from bridge.client.transports.received_data import MAX_MESSAGE_BYTES, media_type
from bridge.text import clip, escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_BYTES = 64 * 1024
_READ_SECONDS = 2.0
_MAX_REASON_CHARS = 300
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_MEMBERS = ("error_description", "message", "detail", "reason", "msg", "title", "error", "errors")
"""Members of a JSON document that describe an error, as frameworks name them (also RFC 9457), best first."""
_MAX_DEPTH = 4
_TITLES = tuple(
    re.compile(rf"<{name}(?: [^<>]{{0,200}})?>([^<]{{1,1000}})</{name}", re.IGNORECASE)
    for name in ("title", "h1", "body")
)
"""The elements of a page that may name the reason, best first."""


async def refusal_of(response: httpx2.Response, *, is_whole: bool = False) -> httpx2.Response:
    """Return a refused response with its whole body, or the beginning, since it may be endless; close the response.

    A body that cannot be read is empty: the status is known without it.
    """
    max_bytes, seconds = (MAX_MESSAGE_BYTES, None) if is_whole else (_MAX_BYTES, _READ_SECONDS)
    body = bytearray()
    try:
        with anyio.move_on_after(seconds):
            async with aclosing(response.aiter_bytes()) as parts:
                async for part in parts:
                    body += part
                    if len(body) > max_bytes:
                        break
    except httpx2.TransportError:
        body.clear()
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _FRAMING]
    content = bytes(body[:max_bytes])
    return httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)


def reason_in(response: httpx2.Response) -> str:
    """Return the reason in the body of a refused response that was read; empty if there is none for readers."""
    kind = media_type(response.headers.get("content-type", ""))
    text, reason = response.content[:_MAX_BYTES].decode(errors="replace").strip(), ""
    if kind.endswith("json") or text.startswith(("{", "[")):
        reason = _reason_in_json(text)
    elif kind == "text/html":
        found = (element.search(text) for element in _TITLES)
        reason = next((unescape(each[1]) for each in found if each is not None), "")
    elif kind in {"", "text/plain"}:
        reason = text
    return clip(escape_controls(" ".join(reason.split())), _MAX_REASON_CHARS)


def _reason_in_json(text: str) -> str:
    try:
        document: Any = from_json(text)
    except ValueError:
        return "" if text.startswith(("{", "[")) else text  # cut off, or no JSON, whatever its type says
    if isinstance(document, dict) and document.get("jsonrpc") == "2.0":
        return ""  # the error of the protocol says it
    return next(_texts_in(document, _MAX_DEPTH), "")


def _texts_in(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str) and value.strip():
        yield value
    elif isinstance(value, dict) and depth:
        for member in _MEMBERS:
            yield from _texts_in(value.get(member), depth - 1)
    elif isinstance(value, list) and depth and value:
        yield from _texts_in(value[0], depth - 1)
