"""Selection of a server's resources: those that its pins and its configuration let be used.

A URI can be read without being listed, so each URI is checked before it is requested.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from bridge.client.config.servers import matches_any
from bridge.client.connection.list_methods import RESOURCES, TEMPLATES
from bridge.client.remote_feature import template_of
from bridge.errors import PinMismatchError, ResourceNotFoundError, ServerFailure
from bridge.resources.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.resources.resource import ResourceTemplate
    from bridge.resources.uri_template import UriTemplate

_MAX_DECODING = 10
_DOT_SEGMENTS = frozenset({".", ".."})
_SEPARATORS = re.compile(r"[/\\?#]")


class ResourceSelection:
    """Selection of one server's resources.

    Args:
        config: The server.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._uris: frozenset[str] = frozenset()
        self._templates: tuple[UriTemplate, ...] = ()
        self._excluded: tuple[UriTemplate, ...] = ()
        self._refused: Mapping[str, str] = {}
        self._refused_templates: tuple[tuple[UriTemplate, str], ...] = ()

    @property
    def is_needed(self) -> bool:
        """False if everything may be read."""
        config, pins = self._config, self._config.pins
        is_pinned = pins is not None and pins.mode == "refuse" and any(map(pins.covers, (RESOURCES, TEMPLATES)))
        return is_pinned or config.include_resources is not None or bool(config.exclude_resources)

    def update(
        self,
        items: Iterable[Resource | ResourceTemplate],
        refused: Mapping[str, str],
        refused_templates: Mapping[str, str],
    ) -> tuple[Resource | ResourceTemplate, ...]:
        """Take a new list.

        Args:
            items: The listed resources and templates, with their URIs on the server.
            refused: Reasons of those refused by pins, by URI.
            refused_templates: Reasons of the refused templates, by their text.

        Returns:
            The items that may be used.
        """
        selected: list[Resource | ResourceTemplate] = []
        templates: list[UriTemplate] = []
        excluded: list[UriTemplate] = []
        for item in items:
            key = item.uri if isinstance(item, Resource) else str(item.uri_template)
            if self._config.admits_resource(key):
                selected.append(item)
            if isinstance(item, Resource):
                continue
            if self._config.admits_resource(key):
                templates.append(item.uri_template)
            elif matches_any(key, self._config.exclude_resources):
                excluded.append(item.uri_template)
        self._uris = frozenset(item.uri for item in selected if isinstance(item, Resource))
        self._templates, self._excluded = tuple(templates), tuple(excluded)
        self._refused = refused
        self._refused_templates = tuple((template_of(text), why) for text, why in refused_templates.items())
        return tuple(selected)

    def require(self, uri: str) -> None:
        """Check that a URI on the server may be read: one of the list, of a template, or that a result links to.

        Servers decode URIs, so what the configuration leaves out is not read in an encoded form either, nor by a path
        with the segments ``.`` and ``..``.

        A URI of the list, or of a template that may be used, is not affected by other templates that it belongs to.

        Raises:
            PinMismatchError: Its resource, or its template, differs from its pin.
            ResourceNotFoundError: The configuration leaves it out.
        """
        include, exclude = self._config.include_resources, self._config.exclude_resources
        decoded = _decoded(uri)
        has_patterns = include is not None or bool(exclude)
        if (
            matches_any(uri, exclude)
            or matches_any(decoded, (*exclude, *map(_decoded, exclude)))
            or (has_patterns and uri not in self._uris and _DOT_SEGMENTS & set(_SEPARATORS.split(decoded)))
        ):
            raise ResourceNotFoundError(uri)
        if (reason := self._refused.get(uri) or self._refused.get(decoded)) is not None:
            raise not_as_pinned(self._config.name, f"reading {uri!r}", reason)
        if uri in self._uris or any(each.match(uri) is not None for each in self._templates):
            return
        for template, reason in self._refused_templates:
            if template.match(uri) is not None:
                raise not_as_pinned(self._config.name, f"reading {uri!r}", reason)
        if any(each.match(uri) is not None for each in self._excluded) or not (
            include is None or matches_any(uri, include)
        ):
            raise ResourceNotFoundError(uri)


def _decoded(uri: str) -> str:
    """The URI as a server may read it, which may decode it more than once."""
    for _ in range(_MAX_DECODING):
        if (decoded := unquote(uri)) == uri:
            break
        uri = decoded
    return uri


def not_as_pinned(server: str, phase: str, reason: str) -> PinMismatchError:
    """Create the error for what differs from its pin, with the remedy."""
    remedy = "review the change, and accept it with bridge pin"
    return PinMismatchError(ServerFailure(server=server, phase=phase, reason=f"{reason}; {remedy}", is_permanent=True))
