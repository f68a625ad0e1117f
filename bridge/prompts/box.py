"""PromptBox: the prompts of a program by name."""

from __future__ import annotations

from bridge.prompts.prompt import Prompt
from bridge.tools.box import Box


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

    def find(self, name: str) -> Prompt | None:
        """Return the prompt with this name, or None."""
        return self._items.get(name)
