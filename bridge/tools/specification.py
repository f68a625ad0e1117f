"""Tool specifications: the name, schema, hints and metadata of a tool, validated on construction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from bridge.errors import DefinitionError
from bridge.text import estimated_tokens, short_repr
from bridge.tools.checks import require_type
from bridge.tools.schema.json_schema import JsonObjectSchema

_MAX_DEPTH = 20
_HALF = "surrogates not allowed"
_FRAME_TOKENS = 4
"""Tokens around a definition in a provider's format."""
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_EMPTY: Mapping[str, Any] = {}

HINTS: Mapping[str, str] = {
    "title": "title",
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""MCP's name for each attribute of `ToolAnnotations`."""


def require_json(what: str, *, allows_halves: bool = False, **parts: object) -> None:
    """Check that declared values can be serialized as JSON.

    Args:
        what: The object that the values belong to, for the error message: ``the tool 'add'``.
        allows_halves: Accept lone surrogates in strings. JSON can express them, UTF-8 cannot; remote servers send them,
            and they are replaced before they are sent on.
        parts: The declared values by name.

    Raises:
        DefinitionError: A value cannot be serialized; the message gives its path.
    """
    if _problem(tuple(parts.values())) is None:
        return
    for name, part in parts.items():
        if (problem := _problem(part)) is not None and not (allows_halves and _HALF in problem):
            path, value = _culprit(part)
            raise DefinitionError(
                f"{name}{path} of {what} cannot be written as JSON: {short_repr(value)} ({problem}); "
                "give text, numbers, booleans, None, and lists and dicts of these"
            )


def checked_icons(value: object, what: str) -> tuple[Mapping[str, Any], ...]:
    """Return the icons of a list in MCP's format; raises `DefinitionError` for other values."""
    icons = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else None
    if icons is None or not all(map(is_icon, icons)):
        raise DefinitionError(
            f"{what} must be a list of icons as MCP writes them, [{{'src': 'https://…'}}], not {short_repr(value)}"
        )
    return icons


def is_icon(value: object) -> bool:
    """Return True for an icon in MCP's format: a mapping with a string ``src``."""
    return isinstance(value, Mapping) and isinstance(value.get("src"), str)


def _problem(value: object) -> str | None:
    try:
        to_json(value)
    except Exception as error:  # noqa: BLE001 - serializing a foreign object may raise anything
        return str(error).removeprefix("Error serializing to JSON: ") or type(error).__name__
    return None


def _culprit(value: object) -> tuple[str, object]:
    """Return the path and the value of the first item that cannot be serialized as JSON."""
    path = ""
    for _ in range(_MAX_DEPTH):  # a container may contain itself
        inner: Iterable[tuple[object, object]] = ()
        if isinstance(value, Mapping):
            inner = value.items()
        elif isinstance(value, list | tuple):
            inner = enumerate(value)
        unserializable = next(((key, item) for key, item in inner if _problem(item) is not None), None)
        if unserializable is None:
            break
        path, value = f"{path}[{unserializable[0]!r}]", unserializable[1]
    return path, value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """Hints about a tool's behaviour (MCP's ToolAnnotations). None means not specified.

    Hints of a remote server are untrusted.
    """

    title: str | None = None
    """Display name; a specification's own title takes precedence."""
    read_only: bool | None = None
    """The tool changes nothing."""
    destructive: bool | None = None
    """The tool may delete or overwrite, not only add."""
    idempotent: bool | None = None
    """Calling again with the same arguments changes nothing more."""
    open_world: bool | None = None
    """The tool reaches beyond a closed domain, such as the web."""
    other: Mapping[str, Any] = field(default_factory=lambda: _EMPTY, hash=False)
    """Further members that a remote server lists; a gateway passes them on."""

    def __post_init__(self) -> None:
        require_type(self.title, str | None, "the annotation title", "text")
        for name in HINTS.keys() - {"title"}:
            require_type(getattr(self, name), bool | None, f"the annotation {name}", "True, False or None")

    @classmethod
    def of(cls, hints: object) -> ToolAnnotations:
        """Convert hints from any accepted form.

        Args:
            hints: ToolAnnotations; a mapping with MCP's names, ``{"readOnlyHint": True}``; or a pydantic model such as
                the SDK's.

        Raises:
            DefinitionError: The value has another form, or MCP has no such hint.
        """
        if isinstance(hints, cls):
            return hints
        values = hints.model_dump(by_alias=True, exclude_none=True) if hasattr(hints, "model_dump") else hints
        if not isinstance(values, Mapping):
            raise DefinitionError(
                f"annotations must be ToolAnnotations(…) or a mapping such as {{'readOnlyHint': True}}, "
                f"not {short_repr(hints)}"
            )
        names = {key: name for name, key in HINTS.items()}
        if unknown := [key for key in values if key not in names]:
            raise DefinitionError(f"annotations have no {unknown[0]!r}; MCP knows {', '.join(names)}")
        return cls(**{names[key]: value for key, value in values.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpecification:
    """Everything that a model or remote client receives about a tool. Compared by value; must not be mutated."""

    name: str
    """Name under which the tool is called."""
    title: str | None = None
    """Display name."""
    description: str | None = None
    """Text for the model: the tool's purpose and when to use it."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: _NO_PARAMETERS)
    """JSON Schema (2020-12) of type ``object``, kept as given; a `JsonObjectSchema` is built."""
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of ``structured_content``; None if there is none."""
    annotations: ToolAnnotations | None = None
    """Hints about the tool's behaviour."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Arbitrary data; sent over MCP in ``_meta``."""
    icons: tuple[Mapping[str, Any], ...] = ()
    """Icons as MCP writes them: ``{"src": …, "mimeType": …, "sizes": […]}``."""
    strict: bool | None = None
    """Request strict schema adherence from model providers that support it; None leaves it to the provider's adapter.
    """
    other: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Further members of MCP's ``Tool`` that a remote server lists, such as ``execution``; a gateway passes them on."""

    @property
    def estimated_tokens(self) -> int:
        """Estimated tokens of the name, description and parameters in each request of a model."""
        definition = {
            "name": self.name,
            "description": self.description or "",
            "parameters": dict(self.parameters),
        }
        return _FRAME_TOKENS + estimated_tokens(json.dumps(definition, ensure_ascii=False, default=repr))

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        name: Any = self.name  # remote servers and untyped programs may pass any type
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"a tool's name must be text, not {self.name!r}")
        of = f"of the tool {name!r}"
        require_type(self.title, str | None, f"the title {of}", "text")
        require_type(self.description, str | None, f"the description {of}", "text")
        require_type(self.strict, bool | None, f"strict {of}", "True, False or None")
        require_type(self.metadata, Mapping, f"the metadata {of}", "a mapping")
        require_type(self.output_schema, Mapping | None, f"the output schema {of}", "a JSON Schema as a mapping")
        if isinstance(self.parameters, JsonObjectSchema):
            _set(self, "parameters", self.parameters.build())
        require_type(self.parameters, Mapping, f"the parameters {of}", "a JSON Schema as a mapping")
        _set(self, "icons", checked_icons(self.icons, f"the icons {of}"))
        if self.annotations is not None:
            _set(self, "annotations", ToolAnnotations.of(self.annotations))
        if self.parameters.get("type", "object") != "object":
            raise DefinitionError(f"the parameters of {self.name!r} must be a JSON Schema of type 'object'")
        require_json(
            f"the tool {name!r}",
            allows_halves=True,
            name=name,
            title=self.title,
            description=self.description,
            parameters=self.parameters,
            output_schema=self.output_schema,
            annotations=self.annotations,
            metadata=self.metadata,
            icons=self.icons,
            other=self.other,
        )


_set = object.__setattr__  # bypass frozen during construction
