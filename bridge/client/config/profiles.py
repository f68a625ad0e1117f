"""Profiles of a gateway in a configuration: what it serves at URLs of their own; `bridge.gateway.profiles` reads them.

"profiles": {"data-team": {"servers": ["warehouse", "files"], "exclude": ["*_delete"], "scopes": ["data"]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from bridge.client.config.document import json_type_name, repeated_keys

if TYPE_CHECKING:
    from bridge.client.config.document import Diagnostics

_Patterns = Annotated[list[str], Field(min_length=1)]
_SELECTION = "* and ? match as in file names"


class ProfileEntry(BaseModel):
    """Selection that a gateway serves at a URL of its own, and its callers."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True
    )

    servers: _Patterns | None = Field(
        default=None, description=f"Servers whose tools, resources and prompts it has; all by default. {_SELECTION}."
    )
    include: _Patterns | None = Field(
        default=None, description=f"The only tools, resources and prompts, by name, or URI; {_SELECTION}."
    )
    exclude: list[str] = Field(default=[], description="Tools, resources and prompts to leave out, likewise.")
    tags: _Patterns | None = Field(default=None, description="Tags, of which everything in the profile has one.")
    rename: dict[str, str] = Field(default={}, description="Names of tools and prompts in the profile, by their names.")
    approval: list[str] = Field(
        default=[], description=f"Tools, by name in the profile, that ask the user before they run; {_SELECTION}."
    )
    spill_chars: int | None = Field(
        default=None, gt=0, description="Characters up to which results stay whole; larger ones are kept aside."
    )
    tools: Literal["all", "search", "auto", "code"] | None = Field(
        default=None, description="Tools that clients list, as for all of the gateway."
    )
    instructions: str | None = Field(default=None, description="Instructions for the model.")
    scopes: list[str] = Field(default=[], description="Scopes that callers need, all of them.")
    claims: dict[str, str] = Field(
        default={}, description="Values that the claims of callers have, or contain; all of them."
    )


def read_profiles(raw: Any, diagnostics: Diagnostics) -> dict[str, ProfileEntry]:
    """Read the profiles of a configuration, given as written; problems are those of the whole file."""
    found: dict[str, ProfileEntry] = {}
    if raw is not None and not isinstance(raw, Mapping):
        diagnostics.problem(f"must be an object of profiles by name, not {json_type_name(raw)}", key="profiles")
        raw = None
    for name in repeated_keys(raw):
        diagnostics.problem("is given twice: rename one", key=f"profiles.{name}")
    for name, entry in (raw or {}).items():
        try:
            found[name] = ProfileEntry.model_validate(entry)
        except ValidationError as error:
            diagnostics.invalid(error, within=f"profiles.{name}", written={})
    return found
