"""The lists of one server, as some of its callers see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.server.lists.feature import ServedFeature
    from bridge.server.lists.prompts import ServedPrompts
    from bridge.server.lists.resources import ServedResources
    from bridge.server.lists.tools import ToolViews
    from bridge.types import Feature


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Lists:
    """The lists of tools, resources and prompts that some callers see."""

    tools: ToolViews
    """The tools, by access."""
    resources: ServedResources | None
    """None if the server has no resources."""
    prompts: ServedPrompts | None
    """None if the server has no prompts."""

    def of(self, feature: Feature) -> ServedFeature[Any, Any] | None:
        """Return the resources, or the prompts; None if the server has none."""
        return self.prompts if feature == "prompts" else self.resources
