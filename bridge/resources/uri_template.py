"""URI templates (RFC 6570): which URIs belong to a template, and the values of its variables.

RFC 6570 defines how a template and values become a URI. A server also needs the inverse. It has one answer here, found
in time proportional to the URI: each variable ends at the first occurrence of the text that follows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_URI_CHARS = 8192
"""Maximum length of a URI that is matched."""

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_PREFIXES = {"": "", "+": "", "#": "#", ".": ".", "/": "/", ";": ";", "?": "?", "&": "&"}
_SEPARATORS = {"": ",", "+": ",", "#": ",", ".": ".", "/": "/", ";": ";"}
_ENDS = {"": "/?#&,", "+": "", "#": "", ".": "/?#", "/": "/?#", ";": ";/?#"}
"""Characters that a value of an operator's variable cannot contain, because its expansion encodes them.

Reserved and fragment expansion encode none of them (RFC 6570 3.2.3).
"""
_QUERY = "?&"
_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
_RESERVED = ":/?#[]@!$&'()*+,;="


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    ends: str
    """Characters that end its value."""
    is_list: bool = False
    """True for an exploded variable of path segments, whose value is a list."""
    label: str = ""
    """Name before its value, of a path parameter; ``=`` follows unless the value is empty (RFC 6570 3.2.7)."""

    def value(self, raw: str) -> str | list[str] | None:
        """Return the decoded value of a part of a URI; None if it is not a value."""
        if not (raw or self.label) or any(each in raw for each in self.ends):
            return None
        if self.label:
            if raw and raw[0] != "=":
                return None
            raw = raw[1:]
        if not self.is_list:
            return _decoded(raw)
        segments = [_decoded(each) for each in raw.split("/")]
        return None if None in segments else [each for each in segments if each is not None]


class UriTemplate:
    """A parsed URI template.

    It may use the expressions of levels 1 to 3: ``{name}``, ``{+name}``, ``{#name}``, ``{.name}``, ``{/name}``,
    ``{;name}``, and a query at its end, ``{?name,other}`` or ``{&name}``. A list of path segments is ``{/name*}``. The
    value of ``{+path}`` may contain ``?`` and ``#``, unless the template has variables of the query: then it ends at
    ``?``.

    Args:
        text: The template: ``notes://{user}/{name}{?language}``.

    Attributes:
        variables: Names of the variables, in order.
        optional: Variables of the query, which a URI may leave out.
        literal_chars: Length of the text outside of the expressions: the longer, the more specific is the template.

    Raises:
        DefinitionError: The text is not a template, uses another expression, repeats a variable, or has two variables
            without text between them, which no URI would separate; or its query does not begin with one ``?``.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[_Literal | _Variable] = []
        self._fixed_query = ""
        query: list[str] = []
        position = 0
        for expression in _EXPRESSION.finditer(text):
            self._add_text(text[position : expression.start()])
            position = expression.end()
            operator, names = self._names_in(expression[1])
            if operator in _QUERY and operator:
                if not query:
                    self._begin_query(operator)
                elif operator == "?":
                    raise self._refused(f"begins its query twice; write {{&{expression[1][1:]}}}")
                query += [name.removesuffix("*") for name in names]
            elif query:
                raise self._refused("has an expression after its query; move the query to the end")
            else:
                self._add_variables(operator, names)
        rest = text[position:]
        if rest and query:
            raise self._refused("has text after its query; move the query to the end")
        self._add_text(rest)
        self.optional = frozenset(query)
        self.variables = tuple(part.name for part in self._parts if isinstance(part, _Variable)) + tuple(query)
        self._check()
        literals = [part.text for part in self._parts if isinstance(part, _Literal)]
        self.literal_chars = len(self._fixed_query) + sum(map(len, literals))
        self._has_encoded_text = any("%" in text for text in literals)
        self._has_encoded_text |= "%" in self._fixed_query

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """Return the decoded values of the variables; None if the URI does not belong to the template.

        Variables of the query that the URI leaves out have no value; unknown parameters of the query are ignored, as in
        any URI.
        """
        if len(uri) > MAX_URI_CHARS:
            return None
        if self._has_encoded_text:
            uri = _encoded(uri)
        path, _, query = uri.partition("?") if self.optional else (uri, "", "")
        query = query.partition("#")[0]
        if self._fixed_query and not f"{query}&".startswith(f"{self._fixed_query}&"):
            return None
        values = self._values_of_query(query)
        return None if values is None or not self._read_path(path, values) else values

    def _values_of_query(self, query: str) -> dict[str, str | list[str]] | None:
        values: dict[str, str | list[str]] = {}
        for pair in filter(None, query.split("&")):
            name, _, text = pair.partition("=")
            if (known := _decoded(name)) is None or known not in self.optional:
                continue
            value = _decoded(text)
            if value is None or known in values:
                return None
            values[known] = value
        return values

    def _read_path(self, path: str, values: dict[str, str | list[str]]) -> bool:
        """Add the values of the variables before the query; return False if the path does not fit."""
        position = 0
        for index, part in enumerate(self._parts):
            text = part.text if isinstance(part, _Literal) else part.label
            if not path.startswith(text, position):
                return False
            position += len(text)
            if isinstance(part, _Literal):
                continue
            end = self._end_of(index, path, position)
            value = part.value(path[position:end]) if end >= position else None
            if value is None:
                return False
            values[part.name] = value
            position = end
        return position == len(path)

    def _end_of(self, index: int, path: str, position: int) -> int:
        """Return the end of a variable's value: before the text that follows it, or the end; -1 without that text."""
        if index + 1 == len(self._parts):
            return len(path)
        following = self._parts[index + 1]
        assert isinstance(following, _Literal)
        if index + 2 == len(self._parts):
            return len(path) - len(following.text) if path.endswith(following.text) else -1
        return path.find(following.text, position)

    def _names_in(self, expression: str) -> tuple[str, list[str]]:
        operator = expression[0] if expression and expression[0] in _PREFIXES else ""
        names = expression[len(operator) :].split(",")
        for name in names:
            is_exploded = name.endswith("*") and operator in {"/", *_QUERY} and operator
            if not _VARIABLE.fullmatch(name.removesuffix("*") if is_exploded else name):
                raise self._refused(f"has the expression {{{expression}}}, which is not supported")
        return operator, names

    def _add_variables(self, operator: str, names: Iterable[str]) -> None:
        before = _PREFIXES[operator]
        for name in names:
            self._add_text(before)
            before = _SEPARATORS[operator]
            variable = name.removesuffix("*")
            if self._parts and isinstance(self._parts[-1], _Variable):
                raise self._refused(f"has {variable!r} right after another variable; put text between them")
            is_list = variable != name
            ends = _ENDS[operator].replace("/", "") if is_list else _ENDS[operator]
            self._parts.append(_Variable(variable, ends, is_list, variable if operator == ";" else ""))

    def _begin_query(self, operator: str) -> None:
        """Move the text of the query that precedes its first variable out of the path."""
        last = self._parts[-1] if self._parts else None
        path, mark, fixed = last.text.partition("?") if isinstance(last, _Literal) else ("", "", "")
        if any("?" in part.text for part in self._parts[:-1] if isinstance(part, _Literal)):
            raise self._refused("has a variable in the text of its query; write it as {?name}")
        if operator == "?" and mark:
            raise self._refused("begins its query twice; write {&name} after the text of a query")
        if operator == "&" and not mark:
            raise self._refused("has {&name} without a query before it; write {?name}")
        if mark:
            self._parts[-1] = _Literal(path)
            self._fixed_query = fixed

    def _add_text(self, text: str) -> None:
        if "{" in text or "}" in text:
            raise self._refused("has a brace without its pair")
        text = _encoded(text)
        if not text:
            return
        if self._parts and isinstance(self._parts[-1], _Literal):
            text = self._parts.pop().text + text  # type: ignore[union-attr]  # checked above
        self._parts.append(_Literal(text))

    def _check(self) -> None:
        if not self.variables:
            raise self._refused("has no variable")
        if len(set(self.variables)) != len(self.variables):
            raise self._refused("repeats a variable")
        first = self._parts[0] if self._parts else None
        if not isinstance(first, _Literal) or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", first.text):
            raise self._refused("does not begin with a scheme, such as 'notes:'")

    def _refused(self, problem: str) -> DefinitionError:
        return DefinitionError(f"the URI template {self._text!r} {problem}")

    def __str__(self) -> str:
        return self._text


def _encoded(text: str) -> str:
    """Encode the characters that no URI contains, as expansion does with literals (RFC 6570 3.1)."""
    text = quote(text, safe=f"{_RESERVED}%", errors="surrogatepass")
    return _ENCODED.sub(lambda each: each[0].upper(), text)


def _decoded(text: str) -> str | None:
    """Decode percent-encoding; None if the bytes are not UTF-8."""
    try:
        return unquote_to_bytes(text).decode() if "%" in text else text
    except UnicodeDecodeError:
        return None
