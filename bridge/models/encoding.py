"""Encoding of text, JSON and media for providers.

Text and JSON are made valid UTF-8.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.text import utf8_text
from bridge.tools.content import File, Image, Media, media_type_of

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


def file_name_of(block: File) -> str:
    """Last segment of a file's URI."""
    return block.uri.rstrip("/").rpartition("/")[2] or block.uri


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
