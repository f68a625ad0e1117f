"""Conversion of resources, templates and their contents to MCP JSON and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.tools.content import File, block_to_json
from bridge.types import Json, without_none

if TYPE_CHECKING:
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.tools.calls import ToolExecutionResult


def resource_to_wire(resource: Resource) -> Json:
    """Convert a resource to MCP's ``Resource``."""
    return {"uri": resource.uri, "name": resource.name} | _described(resource) | without_none(size=resource.size)


def template_to_wire(template: ResourceTemplate) -> Json:
    """Convert a template to MCP's ``ResourceTemplate``."""
    return {"uriTemplate": str(template.uri_template), "name": template.name} | _described(template)


def contents_to_wire(result: ToolExecutionResult) -> Json:
    """Convert what was read to MCP's ``ReadResourceResult``."""
    contents = [block_to_json(block)["resource"] for block in result.content if isinstance(block, File)]
    wire: Json = {"contents": contents}
    return wire | {"_meta": result.metadata} if result.metadata else wire


def _described(item: Resource | ResourceTemplate) -> dict[str, Any]:
    return without_none(
        title=item.title,
        description=item.description,
        mimeType=item.mime_type,
        annotations=item.annotations,
        icons=list(item.icons) or None,
        _meta=dict(item.metadata) or None,
    )
