"""Blocks of content as JSON, and back: MCP's ``ContentBlock``, which serves for what goes to a disk as well."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from bridge.errors import WireError
from bridge.text import short_repr
from bridge.tools.content import Audio, File, Image, ResourceLink, Text
from bridge.types import Json, optional_field, require_base64, require_object, require_text, without_none

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.content import Content


def block_to_json(block: Content) -> Json:
    """A block as MCP's ``ContentBlock``."""
    json = _WRITERS[type(block)](block)
    if block.annotations is not None:
        json["annotations"] = block.annotations
    if block.metadata is not None:
        json["_meta"] = block.metadata
    return json


def block_from_json(json: Mapping[str, Any]) -> Content:
    """MCP's ``ContentBlock`` as a block.

    Raises:
        WireError: The block's type is unknown, or something that it needs is missing or malformed.
    """
    kind = require_object(json, "content").get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise WireError(f"content of an unknown type: {short_repr(json)}")
    carried = {
        "annotations": optional_field(json, "annotations", dict),
        "metadata": optional_field(json, "_meta", dict),
    }
    try:
        return reader(json, carried)
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


def _read_file(json: Mapping[str, Any], carried: Json) -> File:
    resource = json["resource"]
    content = require_text(resource["text"]) if "text" in resource else require_base64(resource["blob"])
    return File(
        require_text(resource["uri"]),
        content,
        optional_field(resource, "mimeType", str),
        optional_field(resource, "_meta", dict),
        **carried,
    )


def _read_link(json: Mapping[str, Any], carried: Json) -> ResourceLink:
    return ResourceLink(
        require_text(json["uri"]),
        require_text(json["name"]),
        optional_field(json, "title", str),
        optional_field(json, "description", str),
        optional_field(json, "mimeType", str),
        optional_field(json, "size", int),
        tuple(optional_field(json, "icons", list) or ()),
        **carried,
    )


_READERS: dict[str, Callable[[Mapping[str, Any], Json], Content]] = {
    "text": lambda json, carried: Text(require_text(json["text"]), **carried),
    "image": lambda json, carried: Image(require_base64(json["data"]), require_text(json["mimeType"]), **carried),
    "audio": lambda json, carried: Audio(require_base64(json["data"]), require_text(json["mimeType"]), **carried),
    "resource": _read_file,
    "resource_link": _read_link,
}
