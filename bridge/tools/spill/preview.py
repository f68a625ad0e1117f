"""Content of large results: its length, what a model reads of it, and its parts once it is kept."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from bridge.text import clip
from bridge.tools.content import File, Media, ResourceLink, Text, block_from_json, text_of
from bridge.tools.spill.usage import tokens_of_chars

if TYPE_CHECKING:
    from bridge.tools.content import Content

READ_TOOL = "read_result"
"""Name of the tool that reads a part of a kept result."""

_POSITION = re.compile(r"[0-9]{1,6}")
_MAX_KEYS = 20
_MAX_KEY_CHARS = 40


def shown_of(
    content: tuple[Content, ...], limit: int, preview_chars: int, tool: str, uri: str | None
) -> tuple[Content, ...]:
    """Return what the model reads: the text, if need be shortened, blocks up to the limit, and links.

    Without a URI, nothing is kept to which a link could lead.
    """
    text, preview = text_of(content), min(limit, preview_chars)
    is_long = len(text) > limit
    room = limit - (preview if is_long else len(text))
    shown: list[Content] = []
    if is_long:
        kind, outline = _described_json(text)
        shown.append(Text(_shortened(text, preview, uri, outline)))
        if uri is not None:
            description = f"the whole text, {len(text):,} characters"
            shown.append(_link(uri, tool, description, kind, len(text.encode())))
    for position, block in enumerate(content):
        chars = chars_of(block)
        if isinstance(block, Text):
            if not is_long:
                shown.append(block)
        elif chars <= room:
            shown.append(block)
            room -= chars
        elif uri is not None:
            shown.append(_link_to(block, f"{uri}/{position}", tool))
        else:
            shown.append(Text(f"[{_kind_of(block)}: {chars:,} characters, too large to be shown or kept]"))
    return tuple(shown)


def json_of(value: Any) -> str | None:
    """Return a value as JSON; None if it cannot be written, such as text with lone surrogates."""
    try:
        return to_json(value, inf_nan_mode="null").decode()
    except ValueError:
        return None


def read_kept(kept: str, uri: str, position: str) -> File | None:
    """Return the text of kept content, or the block at a position; None if there is none."""
    content = [block_from_json(each) for each in from_json(kept)]
    if not position:
        text = text_of(tuple(content))
        return File(uri, text, _described_json(text)[0]) if text else None
    if not (_POSITION.fullmatch(position) and int(position) < len(content)):
        return None
    block = content[int(position)]
    if isinstance(block, Media):
        return File(uri, block.data, block.mime_type)
    return replace(block, uri=uri) if isinstance(block, File) else None


def chars_of(block: Content) -> int:
    """Return the characters of a block, with those of base64 for bytes."""
    match block:
        case Text():
            return len(block.text)
        case File(content=str() as text):
            return len(text)
        case File(content=bytes() as data) | Media(data=data):
            return -(-len(data) // 3) * 4
        case _:
            return 0


def _shortened(text: str, preview: int, uri: str | None, outline: str) -> str:
    tail = preview // 3
    head = preview - tail
    left_out = f"{len(text) - head - tail:,} of {len(text):,} characters (about {tokens_of_chars(len(text)):,} tokens)"
    way = (
        "they could not be kept: ask for less"
        if uri is None
        else f"read more with {READ_TOOL}, or as the resource {uri}{outline}"
    )
    return f"{text[:head]}\n\n[… {left_out} left out; {way} …]\n\n{text[len(text) - tail :]}"


def _described_json(text: str) -> tuple[str, str]:
    """Return the media type of a text, and for JSON what it is made of, for a path."""
    value: Any = None
    if text[:1] in {"{", "["}:
        with suppress(ValueError):
            value = from_json(text)
    if isinstance(value, list):
        return "application/json", f"; it is a JSON array of {len(value):,} items"
    if isinstance(value, dict):
        keys = ", ".join(clip(key, _MAX_KEY_CHARS) for key in islice(value, _MAX_KEYS))
        more = ", …" if len(value) > _MAX_KEYS else ""
        return "application/json", f"; it is a JSON object with {len(value):,} members: {keys}{more}"
    return "text/plain", ""


def _kind_of(block: Content) -> str:
    return getattr(block, "mime_type", None) or "application/octet-stream"


def _link(uri: str, tool: str, description: str, mime_type: str, size_bytes: int) -> ResourceLink:
    return ResourceLink(uri, f"{tool} result", description=description, mime_type=mime_type, size_bytes=size_bytes)


def _link_to(block: Content, uri: str, tool: str) -> ResourceLink:
    data: Any = block.content if isinstance(block, File) else getattr(block, "data", b"")
    length = len(data.encode() if isinstance(data, str) else data)
    return _link(uri, tool, f"{_kind_of(block)}, {length:,} bytes", _kind_of(block), length)
