"""Encoding of text, JSON and media for providers.

Text and JSON are made valid UTF-8; media that a provider does not support are described as text.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.tools.content import Audio, File, Image, Media, ResourceLink, Text

if TYPE_CHECKING:
    from bridge.tools.content import Content
    from bridge.types import Json

PDF = "application/pdf"
_SURROGATE = re.compile(r"\\ud[89a-f]")


def base64_of(block: Media | File) -> str:
    """Base64 of a block's data."""
    data = block.data if isinstance(block, Media) else block.content
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


def image_in(block: Content) -> Image | None:
    """The image of a block, or of a file with an image; None for other blocks."""
    if isinstance(block, Image):
        return block if media_type_of(block) == block.mime_type else Image(block.data, media_type_of(block))
    if isinstance(block, File) and isinstance(block.content, bytes) and media_type_of(block).startswith("image/"):
        return Image(block.content, media_type_of(block))
    return None


def is_pdf(block: Content) -> bool:
    """True for a PDF document."""
    return isinstance(block, File) and isinstance(block.content, bytes) and media_type_of(block) == PDF


def media_type_of(block: Media | File) -> str:
    """Normalised media type of a block, without parameters."""
    kind = (block.mime_type or "").partition(";")[0].strip().lower()
    return {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "audio/mp3": "audio/mpeg"}.get(kind, kind)


def file_name_of(block: File) -> str:
    """Last segment of a file's URI."""
    return block.uri.rstrip("/").rpartition("/")[2] or block.uri


def describe_block(block: Content) -> str:
    """Convert a block to text: text unchanged, a text file with its name, other blocks as a description."""
    match block:
        case Text():
            return utf8_text(block.text)
        case File(content=str() as content):
            return utf8_text(f"{block.uri}:\n{content}")
        case ResourceLink():
            details = [block.title or block.name, f"<{block.uri}>", block.mime_type or "", block.description or ""]
            return utf8_text("Resource: " + " ".join(detail for detail in details if detail))
        case File(content=bytes() as content):
            return f"[{block.uri}: {len(content)} bytes of {media_type_of(block) or 'unknown type'}, not shown]"
        case Image() | Audio():
            return f"[{media_type_of(block)}: {len(block.data)} bytes, not shown]"
        case _:
            raise TypeError(f"{block!r} is not content")


def utf8_text(text: str) -> str:
    """Make a text valid UTF-8: lone surrogates become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def utf8_json(value: Any) -> Any:
    """Make the texts of JSON data valid UTF-8; valid data is returned unchanged."""
    text = json.dumps(value, default=dict)
    if not _SURROGATE.search(text):
        return value
    return json.loads(utf8_text(json.dumps(value, default=dict, ensure_ascii=False)))


def json_text(value: Any) -> str:
    """Serialise JSON data compactly."""
    return utf8_text(json.dumps(value, default=dict, ensure_ascii=False, separators=(",", ":")))


def json_object(text: str) -> Json | None:
    """Parse a JSON object; None for other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = from_json(text.encode(), allow_inf_nan=False)
    except (ValueError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None
