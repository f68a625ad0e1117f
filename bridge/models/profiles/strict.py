"""Strict schemas, which a provider enforces, created only if every reply keeps its meaning.

Bounds that a provider does not support are moved to the description, since the tool checks them. Other unsupported
keywords, such as free keys of an object, make the schema unfit for strict mode; it is sent as non-strict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.models.profiles.keywords import ANNOTATIONS, SCHEMA, annotations_of, fits, kinds_of
from bridge.models.profiles.normalization import reference_in, with_definitions
from bridge.models.profiles.rewriting import NotStrictableError, NullRemoval, RewrittenSchema, with_notes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.models.profiles.normalization import NormalSchema
    from bridge.types import Json

_MAX_NODES = 5_000
_MAX_OBJECT_LEVELS = 10
_MAX_CHOICES = 1_000
_UNFIT = SCHEMA | {
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "prefixItems",
    "unevaluatedItems",
    "unevaluatedProperties",
}
_BOUNDS: Mapping[str, tuple[str, ...]] = {
    "string": ("pattern", "format", "minLength", "maxLength", "contentEncoding", "contentMediaType"),
    "number": ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "integer": ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "array": ("minItems", "maxItems", "uniqueItems"),
    "object": ("minProperties", "maxProperties"),
}
_ADVANCED_PATTERN = re.compile(r"\(\?|\\[1-9bBkpPAZ]|[*+?}][?+]")
"""Lookarounds, back references, boundaries, classes and modifiers that providers' grammars do not support."""

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictRules:
    """Restrictions of one provider's strict mode."""

    bounds: frozenset[str]
    """Keywords of `_BOUNDS` that are supported."""
    formats: frozenset[str] = _FORMATS
    all_required: bool
    """All properties are required; null stands for an absent one."""
    recursive: bool
    """Recursive definitions are supported, and references are described through ``anyOf``."""
    max_item_bound: int | None = None
    """Maximum supported ``minItems``; None for any."""
    max_optional: int | None = None
    """Maximum optional properties of a schema."""
    max_unions: int | None = None
    """Maximum unions of a schema."""
    property_name: re.Pattern[str] | None = None
    """Pattern of property names; None for any."""


OPENAI = StrictRules(
    bounds=frozenset({"pattern", "format", "minItems", "maxItems", *_BOUNDS["number"]}),
    all_required=True,
    recursive=True,
    max_unions=500,
)
"""OpenAI, "Structured Outputs", Supported schemas."""

ANTHROPIC = StrictRules(
    bounds=frozenset({"format", "minItems"}),
    formats=_FORMATS | {"uri"},
    all_required=False,
    recursive=False,
    max_item_bound=1,
    max_optional=24,
    max_unions=16,
    property_name=re.compile(r"[A-Za-z0-9_.-]{1,64}"),
)
"""Anthropic, "Structured outputs", JSON Schema limitations; Bedrock's models use the same grammar."""


def strict(normal: NormalSchema, rules: StrictRules) -> RewrittenSchema:
    """Create the strict copy of a schema; raises `NotStrictableError` if there is none with the same meaning."""
    if normal.losses:
        raise NotStrictableError(normal.losses[0])
    if normal.is_circular():
        raise NotStrictableError("it has a definition that consists only of itself")
    if not rules.recursive and normal.is_recursive():
        raise NotStrictableError("it is recursive")
    try:
        return _Writer(normal, rules).rewriting()
    except RecursionError:  # a long chain of nested definitions
        raise NotStrictableError("it is nested too deeply") from None


class _Writer:
    def __init__(self, normal: NormalSchema, rules: StrictRules) -> None:
        self._normal = normal
        self._rules = rules
        self._nulls = NullRemoval(normal)
        self._nodes = self._choices = self._optional = self._unions = 0

    def rewriting(self) -> RewrittenSchema:
        normal = self._normal
        root = normal.resolved(normal.root)
        if kinds_of(root) not in ((), ("object",)) or {"allOf", "anyOf", "oneOf", "enum", "const"} & root.keys():
            raise NotStrictableError("its root is not a plain object")
        schema = self._written({"properties": {}, "additionalProperties": False, **root, "type": "object"}, 0)
        if self._rules.recursive:
            schema = with_definitions(
                schema, {name: self._written(node, 0) for name, node in normal.definitions.items()}
            )
        removes = self._rules.all_required and self._nulls.is_needed(normal.root)
        return RewrittenSchema(schema=schema, is_strict=True, restore=self._nulls.restored if removes else None)

    def _written(self, node: Json, level: int) -> Json:
        self._nodes += 1
        if self._nodes > _MAX_NODES or level > _MAX_OBJECT_LEVELS:
            raise NotStrictableError("it is too large")
        if reference_in(node) is not None:
            return self._reference(node, level)
        if "allOf" in node:
            return self._written(_single(node), level)
        if unfit := _UNFIT & node.keys():
            raise NotStrictableError(f"it uses {min(unfit)!r}")
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                return self._union(node, keyword, level)
        return self._plain(node, level)

    def _reference(self, node: Json, level: int) -> Json:
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        if not self._rules.recursive:
            return self._written(self._normal.resolved(node), level)
        if siblings.keys() - {*ANNOTATIONS, "default", "examples", "deprecated", "readOnly", "writeOnly"}:
            raise NotStrictableError("it combines '$ref' with other keywords")
        reference: Json = {"$ref": node["$ref"]}
        described = with_notes(annotations_of(siblings), _said(siblings, "default"))
        return {"anyOf": [reference], **described} if described else reference

    def _union(self, node: Json, keyword: str, level: int) -> Json:
        if node.keys() - {*ANNOTATIONS, keyword, "default", "examples", "deprecated", "discriminator"}:
            raise NotStrictableError(f"it combines {keyword!r} with other keywords")
        self._unions += 1
        if self._rules.max_unions is not None and self._unions > self._rules.max_unions:
            raise NotStrictableError("it has too many alternatives")
        if self._rules.all_required:
            self._nulls.check_union(node[keyword])
        variants = [self._written(variant, level) for variant in node[keyword]]
        return with_notes({"anyOf": variants, **annotations_of(node)}, _said(node, "default"))

    def _plain(self, node: Json, level: int) -> Json:
        kinds = kinds_of(node)
        if not kinds:
            raise NotStrictableError("it has a schema without a type")
        if not self._rules.recursive and len(kinds) > 1 and "enum" not in node:
            alternatives = [{**node, "type": kind} for kind in kinds]
            bare = [{key: value for key, value in each.items() if key not in ANNOTATIONS} for each in alternatives]
            return self._union({"anyOf": bare, **annotations_of(node)}, "anyOf", level)
        written: Json = {"type": kinds[0] if len(kinds) == 1 else list(kinds), **annotations_of(node)}
        written |= self._choices_of(node, kinds)
        kept, left_out = self._bounds(node, kinds)
        written |= kept
        if "object" in kinds:
            written |= self._object(node, level)
        if "array" in kinds:
            if not isinstance(items := node.get("items"), dict):
                raise NotStrictableError("it has an array of any values")
            written["items"] = self._written(items, level)
        return with_notes(written, {**left_out, **_said(node, "default")})

    def _choices_of(self, node: Json, kinds: tuple[str, ...]) -> Json:
        if "enum" not in node and "const" not in node:
            return {}
        choices = node.get("enum", [node.get("const")])
        possible = [each for each in choices if fits(each, kinds) and each == node.get("const", each)]
        self._choices += len(possible)
        if not possible or self._choices > _MAX_CHOICES or any(isinstance(each, dict | list) for each in possible):
            raise NotStrictableError("it has enumerated values that are not supported")
        return {"enum": possible}

    def _bounds(self, node: Json, kinds: tuple[str, ...]) -> tuple[Json, Json]:
        """Split the bounds into supported and removed ones."""
        bounds = {keyword: node[keyword] for kind in kinds for keyword in _BOUNDS.get(kind, ()) if keyword in node}
        kept = {keyword: value for keyword, value in bounds.items() if self._keeps(keyword, value)}
        return kept, {keyword: value for keyword, value in bounds.items() if keyword not in kept and value is not False}

    def _keeps(self, keyword: str, value: Any) -> bool:
        if keyword not in self._rules.bounds:
            return False
        if keyword == "pattern":
            return not _ADVANCED_PATTERN.search(value)
        if keyword == "format":
            return value in self._rules.formats
        largest = self._rules.max_item_bound
        return keyword != "minItems" or largest is None or value <= largest

    def _object(self, node: Json, level: int) -> Json:
        properties: Json = node.get("properties", {})
        is_closed = node.get("additionalProperties") is False
        if node.get("additionalProperties", False) is not False or not (properties or is_closed):
            raise NotStrictableError("it has an object with free keys")
        required = node.get("required", [])
        if missing := set(required) - properties.keys():
            raise NotStrictableError(f"it requires {min(missing)!r}, which it does not describe")
        written = {key: self._property(key, node, level + 1) for key in properties}
        if self._rules.all_required:
            required = list(properties)
        else:
            self._optional += len(properties) - len(required)
            if self._rules.max_optional is not None and self._optional > self._rules.max_optional:
                raise NotStrictableError("it has too many optional properties")
        return {"properties": written, "required": required, "additionalProperties": False}

    def _property(self, key: str, node: Json, level: int) -> Json:
        schema = node["properties"][key]
        if self._rules.property_name is not None and not self._rules.property_name.fullmatch(key):
            raise NotStrictableError(f"the provider does not support the property name {key!r}")
        written = self._written(schema, level)
        if not self._rules.all_required or key in node.get("required", ()):
            return written
        if not self._nulls.accepts_null(schema):
            return _nullable(written)
        if self._normal.resolved(schema).get("default", key) is None:
            return written
        raise NotStrictableError(f"null for {key!r} differs in meaning from its absence")


def _single(node: Json) -> Json:
    """Merge an ``allOf`` with a single part."""
    (part, *others), rest = node["allOf"], {key: value for key, value in node.items() if key != "allOf"}
    if others or (part.keys() & rest.keys()) - {*ANNOTATIONS, "default"}:
        raise NotStrictableError("it uses 'allOf'")
    return {**part, **rest}


def _said(node: Json, keyword: str) -> Json:
    return {keyword: node[keyword]} if node.get(keyword) is not None else {}


def _nullable(schema: Json) -> Json:
    """Extend a schema to accept null."""
    annotations = annotations_of(schema)
    bare = {key: value for key, value in schema.items() if key not in annotations}
    variants = bare["anyOf"] if bare.keys() == {"anyOf"} else [bare]
    return {"anyOf": [*variants, {"type": "null"}], **annotations}
