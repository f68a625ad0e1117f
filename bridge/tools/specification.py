"""What an author declares of a tool, checked where it is declared: of its type, and that JSON can carry it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic_core import to_json

from bridge.errors import DefinitionError
from bridge.text import short_repr

if TYPE_CHECKING:
    from types import UnionType

_MAX_DEPTH = 20

_HALF = "surrogates not allowed"

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}

_EMPTY: Mapping[str, Any] = {}

HINTS: Mapping[str, str] = {
    "title": "title",
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""What MCP calls each of `ToolAnnotations`."""


def require_type(value: object, kinds: type | UnionType, what: str, taken: str) -> None:
    """Refuse a value of another type.

    Args:
        value: What was declared.
        kinds: What it may be.
        what: What it is, for the message: ``title``.
        taken: What it may be, in words: ``text``.

    Raises:
        DefinitionError: It is something else.
    """
    if not isinstance(value, kinds):
        raise DefinitionError(f"{what} must be {taken}, not {short_repr(value)}")


def require_json(what: str, *, allows_halves: bool = False, **parts: object) -> None:
    """Refuse what cannot be written as JSON: nobody could be told of a tool that says it.

    Args:
        what: Whose parts they are, for the message: ``the tool 'add'``.
        allows_halves: Whether texts may hold halves of characters, which JSON can say and UTF-8 cannot: texts of others
            do, and whoever sends them on replaces them.
        parts: What was declared.

    Raises:
        DefinitionError: One of the parts holds something that JSON cannot carry; the message says where.
    """
    if _problem(tuple(parts.values())) is None:
        return
    for name, part in parts.items():
        if (problem := _problem(part)) is not None and not (allows_halves and _HALF in problem):
            where, culprit = _culprit(part)
            raise DefinitionError(
                f"{name}{where} of {what} cannot be written as JSON: {short_repr(culprit)} ({problem}); "
                "give text, numbers, booleans, None, and lists and dicts of these"
            )


def checked_icons(value: object, what: str) -> tuple[Mapping[str, Any], ...]:
    """Icons as MCP writes them.

    Raises:
        DefinitionError: They are none.
    """
    icons = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else None
    if icons is None or not all(map(is_icon, icons)):
        raise DefinitionError(
            f"{what} must be a list of icons as MCP writes them, [{{'src': 'https://…'}}], not {short_repr(value)}"
        )
    return icons


def is_icon(value: object) -> bool:
    """Whether something is an icon as MCP writes it."""
    return isinstance(value, Mapping) and isinstance(value.get("src"), str)


def _problem(value: object) -> str | None:
    try:
        to_json(value)
    except Exception as error:  # noqa: BLE001 - whatever a foreign object raises when it is looked at
        return str(error).removeprefix("Error serializing to JSON: ") or type(error).__name__
    return None


def _culprit(value: object) -> tuple[str, object]:
    """Where the first thing is that JSON cannot carry, and what it is."""
    where = ""
    for _ in range(_MAX_DEPTH):  # what contains itself has no end
        inner: Iterable[tuple[object, object]] = ()
        if isinstance(value, Mapping):
            inner = value.items()
        elif isinstance(value, list | tuple):
            inner = enumerate(value)
        found = next(((key, item) for key, item in inner if _problem(item) is not None), None)
        if found is None:
            break
        where, value = f"{where}[{found[0]!r}]", found[1]
    return where, value


class AnnotationsModel(Protocol):
    """Hints as a pydantic model with MCP's names has them, such as the SDK's ``ToolAnnotations``."""

    def model_dump(self, *, by_alias: bool | None = None, exclude_none: bool = False) -> dict[str, Any]:
        """The hints under MCP's names."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """Hints about a tool's behaviour (MCP's ToolAnnotations). None means unsaid. From a remote server: untrusted."""

    title: str | None = None
    """A name for people; a specification's own title comes before it."""
    read_only: bool | None = None
    """The tool changes nothing."""
    destructive: bool | None = None
    """The tool may delete or overwrite, not only add."""
    idempotent: bool | None = None
    """Calling again with the same arguments changes nothing more."""
    open_world: bool | None = None
    """The tool reaches beyond a closed domain, such as the web."""

    def __post_init__(self) -> None:
        require_type(self.title, str | None, "the annotation title", "text")
        for name in HINTS.keys() - {"title"}:
            require_type(getattr(self, name), bool | None, f"the annotation {name}", "True, False or None")

    @classmethod
    def of(cls, hints: object) -> ToolAnnotations:
        """Hints however they were written.

        Args:
            hints: ToolAnnotations; a mapping with MCP's names, ``{"readOnlyHint": True}``; or a pydantic model of them,
                such as the SDK's.

        Raises:
            DefinitionError: They are something else, or a name or value in them is none of MCP's.
        """
        if isinstance(hints, cls):
            return hints
        said = hints.model_dump(by_alias=True, exclude_none=True) if hasattr(hints, "model_dump") else hints
        if not isinstance(said, Mapping):
            raise DefinitionError(
                f"annotations must be ToolAnnotations(…) or a mapping such as {{'readOnlyHint': True}}, "
                f"not {short_repr(hints)}"
            )
        names = {key: name for name, key in HINTS.items()}
        if unknown := [key for key in said if key not in names]:
            raise DefinitionError(f"annotations have no {unknown[0]!r}; MCP knows {', '.join(names)}")
        return cls(**{names[key]: value for key, value in said.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpecification:
    """All that a model, or a remote client, is told about a tool. Compared by value; not to be changed once made."""

    name: str
    """What a caller calls the tool."""
    title: str | None = None
    """A name for people."""
    description: str | None = None
    """What the tool does and when to use it."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: _NO_PARAMETERS)
    """A JSON Schema (2020-12) of type ``object``, carried as it was given."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema of ``structured_content``; None where there is none."""
    annotations: ToolAnnotations | None = None
    """Hints about the tool's behaviour."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Free data; travels over MCP in ``_meta``."""
    icons: tuple[Mapping[str, Any], ...] = ()
    """Icons as MCP writes them: ``{"src": …, "mimeType": …, "sizes": […]}``."""
    strict: bool | None = None
    """Ask a model provider that can to hold the model to the schema; None leaves it to the provider's adapter."""

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        name: Any = self.name  # a remote server, or a program without types, gives anything
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"a tool's name must be text, not {self.name!r}")
        of = f"of the tool {name!r}"
        require_type(self.title, str | None, f"the title {of}", "text")
        require_type(self.description, str | None, f"the description {of}", "text")
        require_type(self.strict, bool | None, f"strict {of}", "True, False or None")
        require_type(self.metadata, Mapping, f"the metadata {of}", "a mapping")
        require_type(self.output_schema, Mapping | None, f"the output schema {of}", "a JSON Schema as a mapping")
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
        )


_set = object.__setattr__  # frozen for everyone but the constructor
