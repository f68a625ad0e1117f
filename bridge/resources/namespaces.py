"""Namespaces of URIs, which keep the resources of several servers apart: ``notes://a`` of ``x`` is ``x+notes://a``.

A page of an app keeps its scheme, by which hosts recognise it: ``ui://x/page``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.tools.content import Block, File, ResourceLink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.types import Json

APP = "ui://"
"""Beginning of the URIs of apps' pages, which hosts recognise by it (extension ``io.modelcontextprotocol/ui``)."""
_OLDER_APP_KEY = "ui/resourceUri"
_APP_KEYS = frozenset({"ui", _OLDER_APP_KEY})
_NOT_OF_A_NAME = re.compile(r"[^a-z0-9.-]")
B = TypeVar("B", bound=Block)


def namespace_of(name: str) -> str:
    """Return the namespace that is like a name: a scheme without ``+``, in lower case."""
    namespace = _NOT_OF_A_NAME.sub("-", name.lower())
    return namespace if namespace[:1].isalpha() else f"s{namespace}"


def with_namespace(namespace: str, uri: str) -> str:
    """Return a URI, or the text of a template, in a namespace."""
    return f"{APP}{namespace}/{uri[len(APP) :]}" if uri.startswith(APP) else f"{namespace}+{uri}"


def split_namespace(uri: str) -> tuple[str, str] | None:
    """Return the namespace that a URI may have, and the rest; None if it can have none."""
    if uri.startswith(APP):
        namespace, mark, rest = uri[len(APP) :].partition("/")
        rest = APP + rest
    else:
        namespace, mark, rest = uri.partition("+")
    return (namespace, rest) if mark else None


def localized(content: B, local: Callable[[str], str]) -> B:
    """Return a content block whose URI, if it has one, is another one.

    Args:
        content: The block.
        local: Returns the other URI for one.
    """
    return replace(content, uri=local(content.uri)) if isinstance(content, File | ResourceLink) else content


def localized_json(block: Json, local: Callable[[str], str]) -> Json:
    """Return MCP's ``ContentBlock``, or the contents of a resource, with another URI; see `localized`."""
    if isinstance(resource := block.get("resource"), dict):
        block = {**block, "resource": localized_json(resource, local)}
    return {**block, "uri": local(uri)} if isinstance(uri := block.get("uri"), str) else block


def localized_metadata(metadata: Mapping[str, Any], local: Callable[[str], str]) -> Mapping[str, Any]:
    """Return a tool's metadata with another URI of its app (extension ``io.modelcontextprotocol/ui``)."""
    if metadata.keys().isdisjoint(_APP_KEYS):
        return metadata
    changed = dict(metadata)
    if isinstance(app := metadata.get("ui"), dict) and isinstance(uri := app.get("resourceUri"), str):
        changed["ui"] = {**app, "resourceUri": local(uri)}
    if isinstance(uri := metadata.get(_OLDER_APP_KEY), str):
        changed[_OLDER_APP_KEY] = local(uri)
    return changed
