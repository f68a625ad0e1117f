"""YAML with the types of JSON: the core schema of YAML 1.2 (section 10.3), and merge keys within bounds.

Values are built from the events of the parser, and counted while they are read. The constructors of PyYAML are of YAML
1.1, in which ``1:30`` is a number and ``yes`` is true; merge keys and numbers cost them time without bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from yaml import Event, ScalarEvent

MAX_DEPTH = 200
"""Maximum depth of objects and arrays."""
_MAX_EVENTS = 2_000_000
_MAX_MERGED = 200_000
_MAX_DIGITS = 1_000
_PREFIX = "tag:yaml.org,2002:"
_MERGE = object()
"""Key whose value is merged."""


def _integer(text: str) -> int:
    """Convert digits in bases 10, 8 and 16; Python takes quadratic time in the number of digits."""
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)


def _finite(text: str) -> float:
    if text.lower().endswith(("inf", "nan")) or not isfinite(number := float(text)):
        raise ValueError(f"the number {text[:100]!r} is of no value of JSON")
    return number


_SCALARS: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"null|Null|NULL|~|"), lambda _: None),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    "int": (re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"), _integer),
    "float": (
        re.compile(
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
        _finite,
    ),
}
"""Form and conversion of each type of the core schema, in the order in which they are tried."""
_FIRST = frozenset("+-.0123456789nNtTfF~")
"""First characters of scalars that are no text, except the empty one."""


@dataclass(slots=True)
class _Collection:
    """An object or array that is being read."""

    value: dict[str, Any] | list[Any]
    key: Any = None
    """Key of the next value of an object; None where a key is next."""
    merged: list[Any] = field(default_factory=list)
    """Values of its merge keys."""


def read_yaml(text: bytes, source: str, *, extra: str = "openapi") -> Any:
    """Parse one document; values that it shares by aliases are the same objects.

    Args:
        text: The document.
        source: Its name, for messages.
        extra: The extra that has ``pyyaml``, for messages.

    Raises:
        DefinitionError: It is no YAML, is too large, or has values that are none of JSON.
        MissingExtraError: ``pyyaml`` is not installed.
    """
    yaml = _yaml(source, extra)
    reader = _Reader(source)
    try:
        for number, event in enumerate(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))):
            if number > _MAX_EVENTS:
                raise reader.too_large()
            reader.take(event, type(event).__name__)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        if "nesting depth" in reason:  # of newer versions of libyaml
            raise reader.too_large() from error
        form = "not YAML" if source.lower().endswith((".yaml", ".yml")) else "neither JSON nor YAML"
        raise DefinitionError(f"{source} is {form}: {reason}") from error
    return reader.document


def _yaml(source: str, extra: str) -> ModuleType:
    try:
        import yaml  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise MissingExtraError(f"{source} in YAML", "pyyaml", extra) from error
    return yaml


class _Reader:
    """Builds the value of a document from events."""

    def __init__(self, source: str) -> None:
        self.document: Any = None
        self._source = source
        self._documents = 0
        self._open: list[_Collection] = []
        self._anchors: dict[str, Any] = {}
        self._left_to_merge = _MAX_MERGED

    def too_large(self) -> DefinitionError:
        """Error of a document that exceeds a limit."""
        return DefinitionError(f"{self._source} is nested too deeply, or has too many values")

    def take(self, event: Any, kind: str) -> None:
        """Read one event of the parser."""
        match kind:
            case "ScalarEvent":
                self._scalar(event)
            case "MappingStartEvent":
                self._begin(event, {}, "map")
            case "SequenceStartEvent":
                self._begin(event, [], "seq")
            case "MappingEndEvent" | "SequenceEndEvent":
                self._end()
            case "AliasEvent":
                if event.anchor not in self._anchors:
                    raise ValueError(f"the alias {event.anchor[:100]!r} names nothing")
                self._alias(self._anchors[event.anchor])
            case "DocumentStartEvent":
                self._documents += 1
                if self._documents > 1:
                    raise ValueError("there are several documents")

    def _alias(self, value: Any) -> None:
        if self._awaits_key() and isinstance(value, str):
            self._open[-1].key = value
        else:
            self._add(value)

    def _scalar(self, event: ScalarEvent) -> None:
        text, is_plain = event.value, event.implicit[0] and event.tag is None
        if self._awaits_key():
            if event.tag not in {None, "!"} and not event.tag.startswith(_PREFIX):
                raise self._foreign(event)
            self._anchor(event, text)
            self._open[-1].key = _MERGE if is_plain and text == "<<" else text  # 200 is the text '200'
            return
        value = self._plain(text) if is_plain else self._tagged(event)
        self._anchor(event, value)
        self._add(value)

    def _plain(self, text: str) -> Any:
        if text and text[0] not in _FIRST:
            return text
        for form, convert in _SCALARS.values():
            if form.fullmatch(text):
                return convert(text)
        return text

    def _tagged(self, event: ScalarEvent) -> Any:
        """Value of a quoted scalar, or of one with a tag."""
        if event.tag in {None, "!", f"{_PREFIX}str"}:
            return event.value
        form, convert = _SCALARS.get(event.tag.removeprefix(_PREFIX), (None, str))
        if form is None or not event.tag.startswith(_PREFIX):
            raise self._foreign(event)
        if not form.fullmatch(event.value):
            raise ValueError(f"{event.value[:100]!r} does not have the tag {event.tag!r}")
        return convert(event.value)

    def _begin(self, event: Any, value: dict[str, Any] | list[Any], tag: str) -> None:
        if event.tag not in {None, "!", _PREFIX + tag}:
            raise self._foreign(event)
        self._anchor(event, value)
        self._add(value)
        self._open.append(_Collection(value))
        if len(self._open) > MAX_DEPTH:
            raise self.too_large()

    def _end(self) -> None:
        ended = self._open.pop()
        if ended.merged and isinstance(ended.value, dict):
            own = dict(ended.value)
            ended.value.clear()
            for each in reversed(list(self._counted(ended.merged))):  # the first one wins
                ended.value.update(each)
            ended.value.update(own)

    def _counted(self, merged: list[Any]) -> Iterator[dict[str, Any]]:
        """Objects that are merged, whose values count as often as they are merged."""
        for value in merged:
            for each in value if isinstance(value, list) else [value]:
                if not isinstance(each, dict):
                    raise TypeError("the value of a merge key (<<) is neither an object nor an array of objects")
                self._left_to_merge -= 1 + len(each)
                if self._left_to_merge < 0:
                    raise self.too_large()
                yield each

    def _add(self, value: Any) -> None:
        """Put a value into what is being read."""
        if not self._open:
            self.document = value
            return
        last = self._open[-1]
        if isinstance(last.value, list):
            last.value.append(value)
        elif last.key is None:
            raise ValueError("a key is not text")
        elif last.key is _MERGE:
            last.key = None
            last.merged.append(value)
        else:
            last.value[last.key] = value
            last.key = None

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _anchor(self, event: Any, value: Any) -> None:
        if event.anchor is not None:
            self._anchors[event.anchor] = value

    def _foreign(self, event: Event) -> ValueError:
        return ValueError(f"the tag {str(getattr(event, 'tag', None))[:100]!r} is of no value of JSON")
