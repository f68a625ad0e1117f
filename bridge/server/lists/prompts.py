"""The prompts of one server: found by access, and rendered like tools are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS
from bridge.server.auth.access import EVERYTHING
from bridge.server.lists.feature import ServedFeature, check_scopes, in_version
from bridge.server.lists.listing import ListKind
from bridge.text import clip
from bridge.wire.prompts import prompt_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.prompts.box import PromptBox
    from bridge.prompts.prompt import Prompt
    from bridge.server.auth.access import Access
    from bridge.types import Feature

_PROMPTS: ListKind[Prompt] = ListKind(
    "prompts", iter, lambda prompt: prompt.name, lambda prompt, _: prompt_to_wire(prompt)
)


class ServedPrompts(ServedFeature["PromptBox", "Prompt"]):
    """The prompts of a server."""

    feature: ClassVar[Feature] = "prompts"

    def __init__(self, box: PromptBox, page_size: int | None) -> None:
        super().__init__(box, page_size, _PROMPTS)

    def find(self, key: str, access: Access = EVERYTHING) -> Prompt | None:
        """Return a prompt; see `ServedFeature.find`."""
        return self.views.of(access).box.find(key)

    def required(self, key: str, access: Access, *, modern: bool, meta: Mapping[str, Any] | None = None) -> Prompt:  # noqa: ARG002 - the base's
        """Return a prompt; see `ServedFeature.required`."""
        prompt = self.find(key, access)
        if prompt is None:
            raise ProtocolError(INVALID_PARAMS, f"there is no prompt {clip(key)!r}")
        check_scopes(key, access)
        if meta and prompt.metadata:
            return in_version(prompt, self.views.of(access).box.versions_of(key), meta, f"the prompt {clip(key)!r}")
        return prompt

    def item_of(self, found: Prompt) -> Prompt:
        """Return the prompt."""
        return found

    def completed(self, key: str, access: Access) -> Prompt:
        """Return a prompt; see `ServedFeature.completed`."""
        return self.required(key, access, modern=True)
