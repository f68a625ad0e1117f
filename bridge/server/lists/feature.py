"""The part that resources and prompts share: both are found by access, and run like tools."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS, INVALID_REQUEST
from bridge.server.auth.access import EVERYTHING
from bridge.server.lists.listing import Listing, Views
from bridge.text import clip
from bridge.tools.box import Box
from bridge.tools.labels import version_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.prompts.prompt import Prompt
    from bridge.resources.box import Readable
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.server.auth.access import Access
    from bridge.server.lists.listing import ListKind
    from bridge.tools.tool import Tool
    from bridge.types import Feature

B = TypeVar("B", bound=Box[Any])
F = TypeVar("F", bound="Prompt | Readable")
T = TypeVar("T", bound="Tool | Resource | ResourceTemplate | Prompt")


class View(NamedTuple, Generic[B]):
    """The part of a box that some callers see, and its lists by member of their results."""

    box: B
    lists: Mapping[str, Listing[Any]]


class ServedFeature(Generic[B, F]):
    """Base of the resources and the prompts of a server.

    Args:
        box: The resources or prompts.
        page_size: Maximum number of items on a page of a list; None for one page.
        kinds: Their lists.
    """

    feature: ClassVar[Feature]

    def __init__(self, box: B, page_size: int | None, *kinds: ListKind[Any]) -> None:
        self.box = box
        self.views: Views[B, View[B]] = Views(
            box, lambda part: View(part, {kind.member: Listing(part, kind, page_size) for kind in kinds})
        )
        """The resources or prompts by access."""

    @abstractmethod
    def find(self, key: str, access: Access = EVERYTHING) -> F | None:
        """Return the prompt of a name, or what reads a URI; None if the caller sees none."""

    @abstractmethod
    def required(self, key: str, access: Access, *, modern: bool, meta: Mapping[str, Any] | None = None) -> F:
        """Return the prompt of a name, or what reads a URI.

        Args:
            key: The name or URI.
            access: Permissions of the caller.
            modern: True for a client of version 2026-07-28.
            meta: ``_meta`` of a request, which may name a version.

        Raises:
            ProtocolError: The caller sees none, or lacks a scope for it, or there is no such version.
        """

    @abstractmethod
    def completed(self, key: str, access: Access) -> Prompt | ResourceTemplate | None:
        """Return the prompt of a name, or the template of a text; None for a resource, which has no variables.

        Raises:
            ProtocolError: The caller sees none, or lacks a scope for it.
        """

    @abstractmethod
    def item_of(self, found: F) -> Prompt | Resource | ResourceTemplate:
        """Return what was found, as it is listed."""


def in_version(item: T, versions: Mapping[str, T], meta: Mapping[str, Any], what: str) -> T:
    """Return an item in the version that a request names, if it names one.

    Args:
        item: The newest version.
        versions: All versions; empty for an item without versions, or one of another server, which chooses.
        meta: ``_meta`` of the request.
        what: The item, for the error.

    Raises:
        ProtocolError: There is no such version.
    """
    if not versions or item.server is not None or (version := version_in(meta)) is None:
        return item
    if version not in versions:
        known = ", ".join(versions)
        raise ProtocolError(INVALID_PARAMS, f"{what} has no version {clip(version)!r}; there is {known}")
    return versions[version]


def check_scopes(name: str, access: Access) -> None:
    """Refuse a caller who lacks a scope."""
    if access.missing(name):
        raise ProtocolError(INVALID_REQUEST, f"{name!r} needs a scope that was not granted")
