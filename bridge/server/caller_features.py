"""Features that differ by caller: the tools, resources and prompts that each caller sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.prompts.box import PromptBox
    from bridge.resources.box import ResourceBox
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Feature


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class CallerView:
    """The tools, resources and prompts that some callers see."""

    tools: ToolBox
    resources: ResourceBox | None
    prompts: PromptBox | None


class CallerFeatures(Protocol):
    """Tools, resources and prompts that differ by caller."""

    @property
    def may_be_more(self) -> bool:
        """True if callers may see more than all callers do."""
        ...

    def of(self, caller: Caller | None, *, current: bool = False) -> CallerView | None:
        """Return what a caller sees, the same object for callers who see the same.

        Args:
            caller: The caller; None without authentication.
            current: Return it only if it may be listed without being loaded again.

        Returns:
            The view, of the boxes of `Features` for a caller who sees these; None if it has to be loaded.
        """
        ...

    async def load(self, context: InvocationContext) -> CallerView:
        """Load what the caller of a request sees, and return it as `of`."""
        ...

    def on_change(self, listener: Callable[[Feature, str | None, tuple[str, str]], None]) -> Callable[[], None]:
        """Call a listener after a change that one caller alone is notified of; return a function that ends that.

        The listener gets the feature, the URI of a resource with new content, or None for the list, and
        `Caller.identity`.
        """
        ...
