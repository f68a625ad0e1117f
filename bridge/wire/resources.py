"""Conversion of resources, templates and their contents to MCP JSON and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.errors import WireError
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.content import File, block_from_json, block_to_json
from bridge.tools.specification import is_icon
from bridge.types import Json, optional_field, require_text, without_none
from bridge.wire.received import Received, own_meta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.resources.resource import Resource, ResourceTemplate

_URI = b'"uri"'
_ESCAPED = (rb"\u0075", rb"\u0072", rb"\u0069")
"""The letters of the name, as they may be written in JSON too."""


def resource_to_wire(resource: Resource) -> Json:
    """Convert a resource to MCP's ``Resource``."""
    return {"uri": resource.uri, "name": resource.name} | _described(resource) | without_none(size=resource.size)


def template_to_wire(template: ResourceTemplate) -> Json:
    """Convert a template to MCP's ``ResourceTemplate``."""
    return {"uriTemplate": str(template.uri_template), "name": template.name} | _described(template)


def contents_to_wire(result: ToolExecutionResult) -> Json:
    """Convert what was read to MCP's ``ReadResourceResult``."""
    if isinstance(result.received, ReceivedContents):
        return result.received.passed_on()
    contents = [block_to_json(block)["resource"] for block in result.content if isinstance(block, File)]
    wire: Json = {"contents": contents}
    return wire | {"_meta": result.metadata} if result.metadata else wire


def description_from_wire(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Convert MCP's ``Resource`` or ``ResourceTemplate`` to the attributes that both have.

    Raises:
        WireError: A member has the wrong type.
    """
    return {
        "name": require_text(wire.get("name")),
        "title": optional_field(wire, "title", str),
        "description": optional_field(wire, "description", str),
        "mime_type": optional_field(wire, "mimeType", str),
        "annotations": optional_field(wire, "annotations", dict),
        # Icons are decorative: malformed ones are dropped.
        "icons": tuple(filter(is_icon, optional_field(wire, "icons", list) or ())),
        "metadata": optional_field(wire, "_meta", dict) or {},
    }


def contents_from_wire(wire: Mapping[str, Any]) -> tuple[File, ...]:
    """Convert MCP's ``ReadResourceResult`` to contents.

    Raises:
        WireError: They are missing or malformed.
    """
    contents = optional_field(wire, "contents", list)
    if contents is None:
        raise WireError("a result without contents")
    files = tuple(block_from_json({"type": "resource", "resource": each}) for each in contents)
    return tuple(file for file in files if isinstance(file, File))


class ReceivedContents(Received):
    """MCP's ``ReadResourceResult`` of another server."""

    __slots__ = ()

    BODY = frozenset({"contents"})
    OWN = Received.OWN | {"ttlMs", "cacheScope"}

    def ended(self, members: bytes) -> None:
        """Return None: its client also needs to know how long it may keep the contents."""

    def with_uris(self, local: Callable[[str], str]) -> ReceivedContents:
        """Return a copy with other URIs; large contents are not written anew for it.

        Args:
            local: Returns the other URI for one.
        """
        uris = [each.get("uri") for each in self["contents"]]
        contents = [
            {**each, "uri": local(uri)} if isinstance(uri, str) else each
            for each, uri in zip(self["contents"], uris, strict=True)
        ]
        copy = ReceivedContents({**self, "contents": contents})
        pairs = [(uri, local(uri)) for uri in uris if isinstance(uri, str)]
        copy.text = None if self.text is None else _with_uris(self.text, pairs)
        return copy

    def read(self) -> ToolExecutionResult:
        """Convert it to a result; one that is malformed becomes an error."""
        try:
            contents = contents_from_wire(self)
        except WireError as error:
            return ToolExecutionResult.error(f"the server returned malformed contents: {error}")
        return ToolExecutionResult(contents, metadata=own_meta(self))


def _with_uris(text: bytes, uris: list[tuple[str, str]]) -> bytes | None:
    """Replace the values of the members ``uri`` in a JSON text, in their order; None if it has others.

    The bytes of such a member stand nowhere else if they follow a brace or a comma: within a string, each quotation
    mark follows a backslash.
    """
    has_escapes = b"\\" in text and any(each in text for each in _ESCAPED)
    if has_escapes or text.count(_URI) != len(uris):
        return None
    whole, position = memoryview(text), 0
    parts: list[bytes | memoryview] = []
    for old, new in uris:
        found, written = text.index(_URI, position), to_json(old)
        start = found + len(_URI) + 1
        if text[found - 1 : found] not in {b"{", b","} or not text.startswith(b":" + written, start - 1):
            return None
        parts += [whole[position:start], to_json(new)]
        position = start + len(written)
    return b"".join([*parts, whole[position:]])


def _described(item: Resource | ResourceTemplate) -> dict[str, Any]:
    return without_none(
        title=item.title,
        description=item.description,
        mimeType=item.mime_type,
        annotations=item.annotations,
        icons=list(item.icons) or None,
        _meta=dict(item.metadata) or None,
    )
