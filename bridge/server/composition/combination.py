"""Combination: one box of what several boxes have, also after they have changed."""

from __future__ import annotations

import logging
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bridge.errors import NameClashError
from bridge.tools.box import Box

if TYPE_CHECKING:
    from collections.abc import Iterable

_logger = logging.getLogger("bridge.server")
B = TypeVar("B", bound=Box[Any])


def one_box(kind: type[B], boxes: Iterable[Box[Any]], items: list[Any]) -> B | None:
    """Return the only box of a kind, or a new one that follows the boxes and has the items; None if there are none."""
    given = [box for box in boxes if isinstance(box, kind)]
    if len(given) == 1 and not items:
        return given[0]
    return combined(kind, given, items) if given or items else None


def combined(kind: type[B], boxes: list[B], items: list[Any]) -> B:
    """Return a box with the items of others, also after their changes, followed by its own."""
    combination = Combination(kind(), boxes)
    combination.box.replace([*combination.box.kept, *items])
    return combination.box


class Combination(Generic[B]):
    """A box with the items of others, also after their changes, followed by its own.

    Attributes:
        box: The box.
    """

    def __init__(self, box: B, boxes: Iterable[B] = ()) -> None:
        self.box = box
        box.feeder = self
        self._followed: list[Any] = []
        self._lock = RLock()  # boxes may be changed in several threads
        self.add(*boxes)

    def add(self, *boxes: B) -> None:
        """Follow further boxes.

        Raises:
            NameClashError: One has an item of a key that is taken; none is followed.
        """
        self._take([*self.box.sources, *boxes])
        for box in boxes:
            self.box.sources += (box,)
            box.on_change(self._follow)
            if (include := getattr(self.box, "include", None)) is not None:
                include(box)  # both are ResourceBoxes

    def check(self, box: Box[Any]) -> None:
        """Check that a box could be followed; the errors are those of `add`."""
        kind = next(each for each in type(self.box).__mro__ if "kinds" in vars(each))
        kind().replace([*self.box.kept, *box.feed])

    def _take(self, boxes: Iterable[Box[Any]]) -> None:
        with self._lock:
            of_boxes, known = [item for box in boxes for item in box.feed], set(map(id, self._followed))
            self.box.replace([*of_boxes, *(item for item in self.box.kept if id(item) not in known)])
            self._followed = of_boxes

    def _follow(self) -> None:
        try:
            self._take(self.box.sources)
        except NameClashError:
            _logger.exception("the changed items of %r cannot be combined; the previous ones stay in use", self.box)
