"""The caller of a tool, and what the invoking program tells about an invocation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class InvocationParameters(dict[str, Any]):
    """Arbitrary data of one invocation, set by the invoking program and hidden from the model."""

    @cached_property
    def session_values(self) -> dict[str, bytes]:
        """Values of `InvocationContext.session` without a server, which are those of the invocation."""
        return {}


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller of a tool; never taken from the content of the call."""

    name: str
    """Unique identifier of the caller in memories, logs and limits.

    The name of a key, or the subject of a token; ``client:ID`` for a token issued to a client itself; followed by ``@``
    and the issuer if several issuers are configured.
    """
    scopes: frozenset[str] = frozenset()
    """Granted scopes."""
    claims: Mapping[str, Any] = field(default_factory=lambda: _EMPTY, repr=False)
    """Further claims of the credential."""
    issuer: str = ""
    """Issuer of the credential; ``key`` for a key of this server, empty if it is unknown."""
    subject: str = ""
    """Identifier of the caller at its issuer, the `name` without the issuer; empty for the `name`."""
    team: str = ""
    """Team of the caller, whose members share limits; empty for none."""

    @property
    def identity(self) -> tuple[str, str]:
        """Issuer and identifier at the issuer, which together are of this caller alone."""
        return self.issuer, self.subject or self.name
