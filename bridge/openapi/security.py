"""Credentials of an API: configured values for the security schemes of its document.

They come from the configuration only, never from arguments of a call, and are added to a request when it is sent.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bridge.errors import DefinitionError
from bridge.openapi.document import models
from bridge.openapi.serialization import UnsendableError, encoded, in_header, is_header_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.openapi.document import OpenApiDocument, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A credential as it is sent."""

    place: Literal["header", "query", "cookie"]
    """Part of the request."""
    name: str
    """Name of the header, of the query's member, or of the cookie."""
    value: str = ""
    """Value as it is written in the request; empty if it is not configured."""

    def __repr__(self) -> str:
        return f"Credential({self.place} {self.name!r})"


class Security:
    """Security schemes of a document, with configured credentials.

    Args:
        document: The document.
        values: Secret for the name of a scheme: a key or token, or for HTTP basic ``user:password``.

    Raises:
        DefinitionError: The document has no such scheme, or a value cannot be sent.
    """

    def __init__(self, document: OpenApiDocument, values: Mapping[str, str]) -> None:
        self._document = document
        components = document.content.get("components")
        raw = components.get("securitySchemes") if isinstance(components, dict) else None
        schemes = raw if isinstance(raw, dict) else {}
        if unknown := [name for name in values if name not in schemes]:
            known = ", ".join(map(repr, schemes)) or "none"
            raise DefinitionError(f"{document.source} has no security scheme {unknown[0]!r}; it has {known}")
        self.credentials = {
            name: _credential(document, name, document.resolved(scheme, f"the security scheme {name!r}"), values)
            for name, scheme in schemes.items()
        }
        """Place of each scheme's credential, and its value if it is configured."""
        self._given = frozenset(values)
        self.secrets = tuple(filter(None, (*values.values(), *(each.value for each in self.credentials.values()))))
        """Texts that must not be shown."""

    @property
    def names(self) -> set[tuple[str, str]]:
        """Place and name of each credential."""
        return {(each.place, each.name) for each in self.credentials.values()}

    def of(self, operation: Operation) -> tuple[tuple[Credential, ...], str | None]:
        """Return the credentials of an operation, and the names of missing ones; None if none is missing."""
        required = operation.content.get("security", self._document.content.get("security"))
        alternatives = [each for each in required if isinstance(each, dict)] if isinstance(required, list) else []
        for alternative in alternatives:
            if alternative and alternative.keys() <= self._given:
                return tuple(self.credentials[name] for name in alternative), None
        if not alternatives or {} in alternatives:
            return (), None
        return (), " or ".join(" with ".join(map(repr, alternative)) for alternative in alternatives)


def _credential(document: OpenApiDocument, name: str, raw: Mapping[str, Any], values: Mapping[str, str]) -> Credential:
    fields = {key: raw[key] for key in ("type", "name", "in", "scheme") if key in raw}
    scheme = document.parsed(models().SecurityScheme, fields, f"the security scheme {name!r}")
    value = values.get(name, "")
    kind = (scheme.scheme or "").lower()
    place, header = "header", "Authorization"
    if scheme.type == "apiKey":
        place, header = scheme.security_scheme_in or "", scheme.name or ""
        if place not in {"header", "query", "cookie"} or not header:
            raise DefinitionError(f"{document.source}: the security scheme {name!r} does not say where its key goes")
        if place == "header" and not is_header_name(header):
            raise DefinitionError(f"{document.source}: the security scheme {name!r} has the invalid header {header!r}")
    elif scheme.type in {"oauth2", "openIdConnect"} or (scheme.type == "http" and kind == "bearer"):
        value = value and f"Bearer {value}"
    elif scheme.type == "http" and kind == "basic":
        value = value and f"Basic {b64encode(value.encode()).decode()}"
    elif value:
        raise DefinitionError(f"{document.source}: the security scheme {name!r} is not supported: {scheme.type} {kind}")
    try:
        value = in_header(value, explode=False) if place == "header" else encoded(value)
    except UnsendableError as error:
        raise DefinitionError(f"the credential of the security scheme {name!r} {error}") from None
    return Credential(place=place, name=header, value=value)  # type: ignore[arg-type]  # checked above


def checked_headers(headers: Mapping[str, str]) -> tuple[Credential, ...]:
    """Return configured headers, which are treated as credentials.

    Raises:
        DefinitionError: A name or a value cannot be sent.
    """
    if invalid := [name for name in headers if not is_header_name(name)]:
        raise DefinitionError(f"{invalid[0]!r} is not a header name; use letters, digits and hyphens")
    try:
        return tuple(
            Credential(place="header", name=name, value=in_header(value, explode=False))
            for name, value in headers.items()
        )
    except UnsendableError as error:
        raise DefinitionError(f"the value of a configured header {error}") from None


def secret_names(credentials: Iterable[Credential]) -> set[tuple[str, str]]:
    """Place and name of credentials."""
    return {(each.place, each.name) for each in credentials}
