"""Offers: the tools of a request as a provider is told of them, and the way back from what the model calls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bridge.models.sendable import json_object, sendable
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.models.profiles.profile import Profile
    from bridge.models.profiles.rewriting import Rewriting
    from bridge.service.chat_model import ChatRequest
    from bridge.tools.specification import ToolSpecification

_MAX_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool as the provider is told of it."""

    name: str
    description: str
    rewriting: Rewriting
    metadata: Mapping[str, Any]
    """What of the specification's metadata the provider is to have."""


@dataclass(frozen=True, slots=True)
class Offers:
    """The tools of one request, by the names that the provider knows."""

    offers: Mapping[str, Offer]
    originals: Mapping[str, str]
    """Each name that the provider knows with the tool's own."""

    def request(self, name: str, arguments: Mapping[str, Any] | str, call_id: str) -> ToolExecutionRequest:
        """What the model wants run, in the tools' own words."""
        offer = self.offers.get(name)
        if offer is not None and offer.rewriting.restore is not None:
            said = json_object(arguments) if isinstance(arguments, str) else arguments
            arguments = arguments if said is None else offer.rewriting.restore(said)
        return ToolExecutionRequest(self.originals.get(name, name), arguments, call_id)


class OfferWriter:
    """Writes offers for one provider; what it wrote for a specification once it does not write again.

    Args:
        profile: What the provider takes of JSON Schema.
        strict: Tools whose specification does not say are held to their schemas where that can be.
        metadata_keys: What of a specification's metadata the provider is to have.
    """

    def __init__(self, profile: Profile, *, strict: bool = False, metadata_keys: tuple[str, ...] = ()) -> None:
        self._profile = profile
        self._strict = strict
        self._metadata_keys = metadata_keys
        self._remembered = lru_cache(_MAX_REMEMBERED)(self._rewrite)

    def offers(self, request: ChatRequest, names: Mapping[str, str]) -> Offers:
        """The tools of a request under the names that the provider is to know."""
        return Offers(
            {names[each.name]: self._offer(names[each.name], each) for each in request.tool_specifications},
            {safe: name for name, safe in names.items()},
        )

    def _offer(self, name: str, specification: ToolSpecification) -> Offer:
        metadata = {key: specification.metadata[key] for key in self._metadata_keys if key in specification.metadata}
        return Offer(name, sendable(specification.description or ""), self._remembered(specification), metadata)

    def _rewrite(self, specification: ToolSpecification) -> Rewriting:
        strict = self._strict if specification.strict is None else specification.strict
        return self._profile.told(specification.parameters, strict=strict, owner=f"the tool {specification.name!r}")
