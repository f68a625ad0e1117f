"""PromptBox: the prompts of a program by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.prompts.prompt import Prompt
from bridge.tools.box import Box, TransformedBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class PromptBox(Box[Prompt]):
    """Prompts by name, in insertion order.

    Args:
        sources: Prompts, decorated functions, objects, modules, or iterables of these.

    Raises:
        DefinitionError: A source has no prompts, or an invalid one.
        NameClashError: Two prompts have the same name.
    """

    noun = "prompts"
    kinds = (Prompt,)

    def key_of(self, item: Prompt) -> str:
        """Return the name of a prompt."""
        return item.name

    def transformed(self, transform: Callable[[tuple[Prompt, ...]], Iterable[Prompt]]) -> PromptBox:
        """Return a box with the changed prompts of this one; it follows later changes.

        Args:
            transform: Receives the current prompts and returns those of the new box; called after each change.

        Raises:
            DefinitionError: See the constructor.
            NameClashError: See the constructor.
        """
        return _TransformedPromptBox(self, transform)

    def find(self, name: str) -> Prompt | None:
        """Return the prompt with this name, or None."""
        return self._items.get(name)


class _TransformedPromptBox(TransformedBox[Prompt], PromptBox):
    """A box that follows another one while it is referenced itself; made by `PromptBox.transformed`."""
