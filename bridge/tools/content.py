"""Content blocks of results and messages, and their JSON in MCP's format (ContentBlock).

A tool returns them if plain text or JSON is not enough:

    @tool
    def chart(city: str) -> Image:
        return Image.from_path(f"charts/{city}.png")

The same JSON is used to store messages.
"""

from __future__ import annotations

import mimetypes
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bridge.errors import DefinitionError, WireError
from bridge.text import short_repr, utf8_text
from bridge.tools.checks import require_type
from bridge.types import Json, optional_field, require_base64, require_object, require_text, without_none

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Base of all content blocks."""

    annotations: Mapping[str, Any] | None = None
    """Hints for display, with MCP's keys: ``audience``, ``priority``, ``lastModified``."""
    metadata: Mapping[str, Any] | None = None
    """Arbitrary data about the block; sent over MCP in ``_meta``."""


@dataclass(frozen=True, slots=True)
class Text(Block):
    """A text block."""

    text: str


@dataclass(frozen=True, slots=True)
class Media(Block):
    """Bytes with a media type; base of `Image` and `Audio`."""

    data: bytes = field(repr=False)
    """Content of the file, not base64-encoded."""
    mime_type: str
    """IANA media type, such as ``image/png``."""

    def __post_init__(self) -> None:
        kind = type(self).__name__
        remedy = f"bytes; read a file by {kind}.from_path(path)"
        require_type(self.data, bytes | bytearray | memoryview, f"the data of {kind}", remedy)
        require_type(self.mime_type, str, f"the media type of {kind}", "text such as 'image/png'")

    @classmethod
    def from_path(cls, path: str | Path, mime_type: str | None = None) -> Self:
        """Read a file.

        Args:
            path: The file; read completely and at once.
            mime_type: Its media type. Defaults to a guess from the file's name.

        Raises:
            OSError: The file cannot be read.
            ValueError: The media type cannot be guessed from the name, or is of another kind.
        """
        kind = cls.__name__
        mime_type = mime_type or mimetypes.guess_type(str(path))[0]
        if mime_type is None:
            raise ValueError(f"cannot guess the media type from the name {str(path)!r}; pass mime_type=")
        if not mime_type.startswith(f"{kind.lower()}/"):
            remedy = f"{kind} is for {kind.lower()}/…: use File.from_path, or pass mime_type="
            raise ValueError(f"{str(path)!r} is {mime_type}, and {remedy}")
        return cls(Path(path).read_bytes(), mime_type)


@dataclass(frozen=True, slots=True)
class Image(Media):
    """An image."""

    mime_type: str = "image/png"


@dataclass(frozen=True, slots=True)
class Audio(Media):
    """An audio clip."""

    mime_type: str = "audio/wav"


@dataclass(frozen=True, slots=True)
class File(Block):
    """The content of a file embedded in a result (MCP's embedded resource)."""

    uri: str
    """Identifier of the file, such as ``file:///report.csv``; any URI is accepted."""
    content: str | bytes = field(repr=False)
    """Text, or bytes."""
    mime_type: str | None = None
    """IANA media type, if known."""
    resource_metadata: Mapping[str, Any] | None = None
    """``_meta`` of the resource inside the block, separate from the block's own."""

    def __post_init__(self) -> None:
        require_type(self.uri, str, "the URI of a File", "text; read a file by File.from_path(path)")
        require_type(
            self.content,
            str | bytes | bytearray | memoryview,
            "the content of a File",
            "text or bytes; read a file by File.from_path(path)",
        )

    @classmethod
    def from_path(cls, path: str | Path, mime_type: str | None = None) -> Self:
        """Read a file; as text if its media type is a text format and it is UTF-8, otherwise as bytes.

        Args:
            path: The file; read completely and at once.
            mime_type: Its media type. Defaults to a guess from the file's name.

        Raises:
            OSError: The file cannot be read.
        """
        path = Path(path).resolve()
        kind = mime_type or mimetypes.guess_type(path.name)[0]
        data = path.read_bytes()
        if kind is not None and (kind.startswith("text/") or kind in {"application/json", "application/xml"}):
            with suppress(UnicodeDecodeError):
                return cls(path.as_uri(), data.decode(), kind)
        return cls(path.as_uri(), data, kind)

    def inline(self) -> Content:
        """Return the content as a model reads it: text, an image or audio; the file itself for other media types."""
        if isinstance(self.content, str):
            return Text(self.content)
        kind = (self.mime_type or "").partition("/")[0]
        if kind == "image":
            return Image(self.content, self.mime_type or "")
        return Audio(self.content, self.mime_type or "") if kind == "audio" else self


@dataclass(frozen=True, slots=True)
class ResourceLink(Block):
    """A link to a resource that the receiver may fetch."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size_bytes: int | None = None
    icons: tuple[Mapping[str, Any], ...] = ()
    """Icons as MCP writes them: ``{"src": …, "mimeType": …, "sizes": […]}``."""


Content = Text | Image | Audio | File | ResourceLink
"""One block of content."""


def text_of(content: tuple[Content, ...]) -> str:
    """Return the text blocks joined by newlines."""
    if len(content) == 1 and type(block := content[0]) is Text:
        return block.text
    return "\n".join(block.text for block in content if isinstance(block, Text))


def media_type_of(block: Media | File) -> str:
    """Normalised media type of a block, without parameters."""
    kind = (block.mime_type or "").partition(";")[0].strip().lower()
    return {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "audio/mp3": "audio/mpeg"}.get(kind, kind)


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


@dataclass(frozen=True, slots=True)
class UserMessage:
    """Message of the user: text, images, audio and files.

    Raises:
        DefinitionError: The content is not a list of content blocks.
    """

    content: tuple[Content, ...]
    name: str | None = None
    """Name of the user, for models that distinguish several users."""

    def __post_init__(self) -> None:
        content: Any = self.content
        if type(content) is not tuple:
            if isinstance(content, str | Block) or not isinstance(content, Iterable):
                raise _unusable(content)
            content = tuple(content)
            object.__setattr__(self, "content", content)
        for block in content:
            if not isinstance(block, Block):
                raise _unusable(block)

    @classmethod
    def of(cls, *content: str | Content, name: str | None = None) -> UserMessage:
        """Create a message of text and blocks: ``UserMessage.of("What is this?", Image.from_path("cat.png"))``.

        Raises:
            DefinitionError: An item is neither text nor a content block.
        """
        return cls(tuple(Text(block) if isinstance(block, str) else block for block in content), name)

    @property
    def text(self) -> str:
        """The text blocks joined by newlines."""
        return text_of(self.content)


def _unusable(content: object) -> DefinitionError:
    return DefinitionError(
        f"the content of a UserMessage must be a list of content blocks, not {short_repr(content)}; "
        "create one of text and blocks with UserMessage.of(…)"
    )


def block_to_json(block: Content) -> Json:
    """Convert a block to MCP's ``ContentBlock``."""
    json = _WRITERS[type(block)](block)
    if block.annotations is not None:
        json["annotations"] = block.annotations
    if block.metadata is not None:
        json["_meta"] = block.metadata
    return json


def block_from_json(json: Mapping[str, Any]) -> Content:
    """Convert MCP's ``ContentBlock`` to a block.

    Raises:
        WireError: The block's type is unknown, or a required field is missing or malformed.
    """
    kind = require_object(json, "content").get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise WireError(f"content of an unknown type: {short_repr(json)}")
    common = {
        "annotations": optional_field(json, "annotations", dict),
        "metadata": optional_field(json, "_meta", dict),
    }
    try:
        return reader(json, common)
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"malformed content: {short_repr(json)}") from error


def _write_file(block: File) -> Json:
    body = {"text": block.content} if isinstance(block.content, str) else {"blob": b64encode(block.content).decode()}
    resource = {"uri": block.uri, **body} | without_none(mimeType=block.mime_type, _meta=block.resource_metadata)
    return {"type": "resource", "resource": resource}


def _write_link(block: ResourceLink) -> Json:
    return {"type": "resource_link", "uri": block.uri, "name": block.name} | without_none(
        title=block.title,
        description=block.description,
        mimeType=block.mime_type,
        size=block.size_bytes,
        icons=list(block.icons) or None,
    )


_WRITERS: dict[type, Callable[[Any], Json]] = {
    Text: lambda block: {"type": "text", "text": block.text},
    Image: lambda block: {"type": "image", "data": b64encode(block.data).decode(), "mimeType": block.mime_type},
    Audio: lambda block: {"type": "audio", "data": b64encode(block.data).decode(), "mimeType": block.mime_type},
    File: _write_file,
    ResourceLink: _write_link,
}


def _read_file(json: Mapping[str, Any], common: Json) -> File:
    resource = json["resource"]
    content = require_text(resource["text"]) if "text" in resource else require_base64(resource["blob"])
    return File(
        require_text(resource["uri"]),
        content,
        optional_field(resource, "mimeType", str),
        optional_field(resource, "_meta", dict),
        **common,
    )


def _read_link(json: Mapping[str, Any], common: Json) -> ResourceLink:
    return ResourceLink(
        require_text(json["uri"]),
        require_text(json["name"]),
        optional_field(json, "title", str),
        optional_field(json, "description", str),
        optional_field(json, "mimeType", str),
        optional_field(json, "size", int),
        tuple(optional_field(json, "icons", list) or ()),
        **common,
    )


_READERS: dict[str, Callable[[Mapping[str, Any], Json], Content]] = {
    "text": lambda json, common: Text(require_text(json["text"]), **common),
    "image": lambda json, common: Image(require_base64(json["data"]), require_text(json["mimeType"]), **common),
    "audio": lambda json, common: Audio(require_base64(json["data"]), require_text(json["mimeType"]), **common),
    "resource": _read_file,
    "resource_link": _read_link,
}
