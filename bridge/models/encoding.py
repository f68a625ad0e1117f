"""Text, JSON and media in encodable form.

Media: what the blocks of a message come to where a provider takes them, and in words where it does not.

What can be sent: text and JSON data as UTF-8, whatever a model or a tool made of them before.
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
    """The bytes of a block in base64."""
    data = block.data if isinstance(block, Media) else block.content
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


def image_in(block: Content) -> Image | None:
    """The picture that a block is, or a file holds."""
    if isinstance(block, Image):
        return block if media_type_of(block) == block.mime_type else Image(block.data, media_type_of(block))
    if isinstance(block, File) and isinstance(block.content, bytes) and media_type_of(block).startswith("image/"):
        return Image(block.content, media_type_of(block))
    return None


def is_pdf(block: Content) -> bool:
    """The block is a PDF document."""
    return isinstance(block, File) and isinstance(block.content, bytes) and media_type_of(block) == PDF


def media_type_of(block: Media | File) -> str:
    """The media type of a block without parameters, in its usual spelling."""
    kind = (block.mime_type or "").partition(";")[0].strip().lower()
    return {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "audio/mp3": "audio/mpeg"}.get(kind, kind)


def file_name_of(block: File) -> str:
    """The last part of a file's URI."""
    return block.uri.rstrip("/").rpartition("/")[2] or block.uri


def describe_block(block: Content) -> str:
    """A block in words: text as it is, a file of text with its name, and what else there is by its description."""
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
            raise TypeError(f"{block!r} is no content")


def utf8_text(text: str) -> str:
    """A text that UTF-8 can hold: halves of characters that found no other half become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def utf8_json(value: Any) -> Any:
    """JSON data whose texts UTF-8 can hold; the same object where all of them are."""
    text = json.dumps(value, default=dict)
    if not _SURROGATE.search(text):
        return value
    return json.loads(utf8_text(json.dumps(value, default=dict, ensure_ascii=False)))


def json_text(value: Any) -> str:
    """JSON data as compact text."""
    return utf8_text(json.dumps(value, default=dict, ensure_ascii=False, separators=(",", ":")))


def json_object(text: str) -> Json | None:
    """The JSON object that a text is; None where it is anything else."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = from_json(text.encode(), allow_inf_nan=False)
    except (ValueError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None
