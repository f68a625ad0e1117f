"""Features: the tools, resources and prompts of one server (MCP, "Server Features")."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from bridge.errors import DefinitionError, NameClashError
from bridge.text import short_repr
from bridge.tools.box import Box
from bridge.tools.decoration import nothing_in
from bridge.tools.function import found_in
from bridge.tools.tool import Tool
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.prompts.box import PromptBox
    from bridge.resources.box import ResourceBox
    from bridge.server.tasks.forwarded import ForwardedTasks
    from bridge.tools.lifespan import Lifespan
    from bridge.types import Feature, Json

_logger = logging.getLogger("bridge.server")
B = TypeVar("B", bound=Box[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The tools, resources and prompts of one server. Later changes of the boxes apply."""

    tools: ToolBox = field(default_factory=ToolBox)
    resources: ResourceBox | None = None
    """None if the server has no resources, and will not have any."""
    prompts: PromptBox | None = None
    """None if the server has no prompts, and will not have any."""
    tasks: ForwardedTasks | None = None
    """Tasks of other servers, as which calls of these tools may be answered; None if there are none."""
    extensions: Mapping[str, Json] = field(default_factory=dict)
    """Extensions of the protocol that the server announces, with their settings, by identifier; without tasks."""
    lifespans: tuple[Lifespan[Any], ...] = ()
    """Lifespans that are open while they are served, besides those of the modules of their functions."""
    notice: Callable[[], str | None] = field(default=lambda: None, compare=False)
    """Returns what a client is told now, beside the server's instructions, such as what is missing; None for nothing.
    """

    def __post_init__(self) -> None:
        for noun, box in (("tools", self.tools), ("resources", self.resources), ("prompts", self.prompts)):
            if not (isinstance(box, Box) and box.noun == noun) and (box is not None or noun == "tools"):
                kind = {"tools": "ToolBox", "resources": "ResourceBox", "prompts": "PromptBox"}[noun]
                raise DefinitionError(
                    f"{noun} of Features must be a {kind}, not {short_repr(box)}; write {kind}(…), or Features.of(…), "
                    "which takes functions"
                )

    @property
    def names(self) -> list[str]:
        """The names of all tools, resources and prompts, which access and limits go by."""
        return [item.name for box in self.boxes.values() for item in box]

    @property
    def lifespan(self) -> Lifespan[Any] | None:
        """The lifespan whose value functions of modules without one get; None if there is none, or several."""
        return self.lifespans[0] if len(self.lifespans) == 1 else None

    @property
    def boxes(self) -> dict[Feature, Box[Any]]:
        """The boxes that the server has, by feature."""
        boxes: dict[Feature, Box[Any] | None] = {
            "tools": self.tools,
            "resources": self.resources,
            "prompts": self.prompts,
        }
        return {name: box for name, box in boxes.items() if box is not None}

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every change of a list, in the thread that made it."""
        for box in self.boxes.values():
            box.on_change(listener)

    @classmethod
    def of(cls, *sources: object) -> Features:
        """Collect the features of sources: what a `bridge.ToolBox` takes, with resources and prompts.

        Features are used themselves. So is a ToolBox, ResourceBox or PromptBox that is the only source of its kind. A
        box of several sources follows the boxes among them: their later changes apply, and so do updates of resources.
        A change that makes two names clash is logged, and the previous items stay in use.

        Raises:
            DefinitionError: A source has nothing to offer, or something invalid.
            NameClashError: Two tools, resources or prompts have the same name.
        """
        if len(sources) == 1 and isinstance(only := sources[0], Features):
            return only
        if any(isinstance(each, Features) for each in sources):
            raise DefinitionError(
                "Features cannot be combined with other sources; give all sources to one Features.of(…), or their "
                "boxes, such as features.tools"
            )
        flat = [each for source in sources for each in (source if _has_boxes(source) else (source,))]
        boxes = [source for source in flat if isinstance(source, Box)]
        found = [item for source in flat if not isinstance(source, Box) for item in found_in(source)]
        if not (found or boxes) and sources:
            raise nothing_in(sources[0] if len(sources) == 1 else sources, "tools", "resources", "prompts")
        tools = _one_box(ToolBox, boxes, [item for item in found if isinstance(item, Tool)]) or ToolBox()
        if all(isinstance(each, Tool | ToolBox) for each in (*boxes, *found)):
            return cls(tools=tools)
        # Only now, because programs without them start faster.
        from bridge.prompts.box import PromptBox  # noqa: PLC0415
        from bridge.prompts.prompt import Prompt  # noqa: PLC0415
        from bridge.resources.box import ResourceBox  # noqa: PLC0415

        return cls(
            tools=tools,
            resources=_one_box(ResourceBox, boxes, [each for each in found if not isinstance(each, Tool | Prompt)]),
            prompts=_one_box(PromptBox, boxes, [each for each in found if isinstance(each, Prompt)]),
        )


def _has_boxes(source: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(source, list | tuple) and any(isinstance(each, Box) for each in source)


def _one_box(kind: type[B], boxes: Iterable[Box[Any]], items: list[Any]) -> B | None:
    """Return the only box of a kind, or a new one that follows the boxes and has the items; None if there are none."""
    given = [box for box in boxes if isinstance(box, kind)]
    if len(given) == 1 and not items:
        return given[0]
    return _combined(kind, given, items) if given or items else None


def _combined(kind: type[B], boxes: list[B], items: list[Any]) -> B:
    """Return a box with the items of others, also after their changes, followed by its own."""
    followed = [item for box in boxes for item in box]
    combined = kind()
    combined.replace([*followed, *items])
    lock = RLock()  # boxes may be changed in several threads

    def follow() -> None:
        with lock:
            of_boxes, known = [item for box in boxes for item in box], set(map(id, followed))
            try:
                combined.replace([*of_boxes, *(item for item in combined if id(item) not in known)])
            except NameClashError:
                _logger.exception("the changed items of %r cannot be combined; the previous ones stay in use", combined)
            else:
                followed[:] = of_boxes

    for box in boxes:
        box.on_change(follow)
        if (include := getattr(combined, "include", None)) is not None:
            include(box)  # both are ResourceBoxes
    return combined
