"""The boxes of a server that is composed of others, or is part of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError
from bridge.prompts.box import PromptBox
from bridge.resources.box import ResourceBox
from bridge.server.composition.combination import Combination
from bridge.server.features import Features, joined
from bridge.text import nearest
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.server.composition.surrounded import Part
    from bridge.tools.box import Box
    from bridge.types import Feature


class OwnBoxes:
    """Boxes of all kinds that belong to one server, and follow those of its features and of the servers it mounts.

    Args:
        features: The features of the server.

    Attributes:
        features: The features with these boxes.
    """

    def __init__(self, features: Features) -> None:
        self._combinations: dict[Feature, Combination[Any]] = {
            "tools": Combination(ToolBox()),
            "resources": Combination(ResourceBox()),
            "prompts": Combination(PromptBox()),
        }
        boxes: dict[str, Any] = {feature: each.box for feature, each in self._combinations.items()}
        self._parts = [features.parts]
        self.features = replace(features, **boxes, parts=self._all_parts)
        self._follow(features)

    def are_in(self, features: Features) -> bool:
        """True if features follow these boxes."""
        return any(box.follows(each.box) for box in features.boxes.values() for each in self._combinations.values())

    def add(self, features: Features) -> None:
        """Serve further features as well.

        Raises:
            NameClashError: A key is taken; nothing was changed.
        """
        for feature, box in features.boxes.items():
            self._combinations[feature].check(box)
        self.features = replace(joined(self.features, [self.features, features]), parts=self._all_parts)
        self._parts.append(features.parts)
        self._follow(features)

    def _all_parts(self) -> tuple[Part, ...]:
        """Return the parts of all servers that are mounted by now, also for those that have mounted this one."""
        return tuple(part for parts in self._parts for part in parts())

    def switch(self, names: Iterable[str], tags: Iterable[str], *, to: bool) -> None:
        """Show or hide items; see `bridge.server.server.Server.enable`.

        Raises:
            DefinitionError: A name does not exist; nothing was changed.
        """
        boxes: list[Box[Any]] = [each.box for each in self._combinations.values()]
        names, tags = tuple(names), tuple(tags)
        for name in names:
            if not any(box.has(name) for box in boxes):
                near = nearest(name, [item.name for box in boxes for item in box.kept])
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise DefinitionError(f"there is no tool, resource or prompt {name!r}{hint}")
        for box in boxes:
            switch = box.enable if to else box.disable
            switch(*filter(box.has, names), tags=tags)

    def _follow(self, features: Features) -> None:
        for feature, box in features.boxes.items():
            self._combinations[feature].add(box)
