"""Tools as functions of a script: their names in Python, their signatures, and how arguments and results are passed."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from bridge.errors import ToolError, WireError
from bridge.tools.content import block_from_json, describe_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.tools.specification import ToolSpecification
    from bridge.types import Json

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_RESERVED = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | {"asyncio", "json"}
_MAX_DEPTH = 8
_MAX_CHOICES = 20
_MAX_DEFAULT_CHARS = 40
_IDENTIFIERS = re.compile(r"[^\W\d]\w*")
_WRAPPER = "result"
_HEADER = "from typing import Any, Literal\n"


class ToolFunctions:
    """Functions of a script by name.

    A tool whose name is no free identifier gets another one, which does not depend on the other tools.

    Args:
        tools: The tools.
    """

    def __init__(self, tools: Iterable[ToolSpecification]) -> None:
        self._tools: dict[str, ToolSpecification] = {}
        self._names: dict[str, str] = {}
        for tool in tools:
            name = _identifier(tool.name)
            self._tools[name] = tool
            self._names[tool.name] = name

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> ToolSpecification:
        return self._tools[name]

    def name_of(self, tool: str) -> str:
        """Return the name of the function of a tool."""
        return self._names[tool]

    def used_in(self, code: str) -> list[str]:
        """Return the functions that a script may call, by the identifiers in it."""
        return [name for name in dict.fromkeys(_IDENTIFIERS.findall(code)) if name in self._tools]

    def stubs(self, names: Iterable[str]) -> str:
        """Return declarations of functions, for the check of types."""
        return _HEADER + "".join(f"{self._head(name)} ...\n" for name in names)

    def described(self, tool: str) -> str:
        """Return the signature of a tool's function with its documentation."""
        name = self._names[tool]
        specification = self._tools[name]
        lines = [specification.description or specification.title or specification.name]
        definitions = _definitions(specification.parameters)
        for parameter, schema in _properties(specification.parameters).items():
            text = schema.get("description", "")
            note = _details(schema, definitions)
            if text or note:
                lines.append(f"{parameter}: {' '.join(filter(None, (text, note)))}")
        if (output := _output(specification)) is not None and (note := _details(output[0], output[1])):
            lines.append(f"Returns: {note}")
        indented = "\n\n".join((lines[0], "\n".join(lines[1:]))) if lines[1:] else lines[0]
        body = indented.replace('"""', "'''").replace("\n", "\n    ").replace("\n    \n", "\n\n")
        return f'{self._head(name)}\n    """{body}"""'

    def _head(self, name: str) -> str:
        specification = self._tools[name]
        schema = specification.parameters
        definitions = _definitions(schema)
        parts, needs_more = [], False
        for parameter, each in _ordered(schema):
            if not parameter.isidentifier() or keyword.iskeyword(parameter):
                needs_more = True
                continue
            default = "" if parameter in schema.get("required", ()) else f" = {_default(each)}"
            parts.append(f"{parameter}: {_annotation(each, definitions)}{default}")
        if needs_more or schema.get("additionalProperties", not _properties(schema)) is not False:
            parts.append("**more: Any")
        output = _output(specification)
        returned = "str" if output is None else _annotation(*output)
        return f"async def {name}({', '.join(parts)}) -> {returned}:"


def arguments_of(tool: ToolSpecification, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Json:
    """Return the arguments of a call by name.

    Raises:
        TypeError: There are too many, or one is given twice.
    """
    names = [name for name, _ in _ordered(tool.parameters)]
    if len(args) > len(names):
        raise TypeError(f"{tool.name} takes {len(names)} positional arguments, and {len(args)} were given")
    positional = dict(zip(names, args, strict=False))
    if twice := positional.keys() & kwargs.keys():
        raise TypeError(f"{tool.name} got the argument {min(twice)!r} twice")
    return {**positional, **kwargs}


def value_of(tool: ToolSpecification, result: Json) -> Any:
    """Return the value of a call, given its result in MCP's JSON: structured if the tool declares that, else text.

    Raises:
        ToolError: The tool has failed.
    """
    try:
        blocks = [block_from_json(block) for block in result.get("content", ())]
    except WireError as error:
        raise ToolError(f"the server returned a malformed result: {error}") from None
    text = "\n".join(describe_block(block) for block in blocks)
    if result.get("isError"):
        raise ToolError(text or f"the tool {tool.name!r} failed")
    if tool.output_schema is None:
        return text
    value = result.get("structuredContent")
    if value is None:
        try:
            return from_json(text)
        except ValueError:
            return text
    return value[_WRAPPER] if _is_wrapped(tool.output_schema) and _WRAPPER in value else value


def _identifier(name: str) -> str:
    """Return a tool's name as an identifier that is no other tool's and no builtin."""
    if name.isidentifier() and name not in _RESERVED:
        return name
    digest = sha256(name.encode()).hexdigest()[:4]
    return f"{'' if name[:1].isalpha() else 't_'}{re.sub(r'[^0-9A-Za-z_]', '_', name)}_{digest}"


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    found = schema.get("properties")
    if not isinstance(found, Mapping):
        return {}
    return {name: each if isinstance(each, Mapping) else {} for name, each in found.items()}


def _definitions(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        f"#/{key}/{name}": each for key in ("$defs", "definitions") for name, each in (schema.get(key) or {}).items()
    }


def _ordered(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the parameters in the order of the signature: those that are required first."""
    required = schema.get("required", ())
    return sorted(_properties(schema).items(), key=lambda item: item[0] not in required)


def _default(schema: Mapping[str, Any]) -> str:
    """Return a default of a scalar type; an ellipsis for any other."""
    default = schema.get("default")
    shown = repr(default) if isinstance(default, str | int | float) else ""
    return shown if 0 < len(shown) <= _MAX_DEFAULT_CHARS else "..."


def _is_wrapped(schema: Mapping[str, Any]) -> bool:
    return list(_properties(schema)) == [_WRAPPER] and _WRAPPER in schema.get("required", ())


def _output(tool: ToolSpecification) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return the schema of a function's value, with its definitions; None for text."""
    schema = tool.output_schema
    if schema is None:
        return None
    return (_properties(schema)[_WRAPPER] if _is_wrapped(schema) else schema), _definitions(schema)


def _annotation(schema: Any, definitions: Mapping[str, Any], depth: int = 0) -> str:
    """Return a schema as a type; ``Any`` where Python has no short one."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return "Any"
    if isinstance(reference := schema.get("$ref"), str):
        return _annotation(definitions.get(reference), definitions, depth + 1)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list) and 0 < len(choices) <= _MAX_CHOICES:
        simple = all(each is None or isinstance(each, str | bool | int) for each in choices)
        return f"Literal[{', '.join(map(repr, choices))}]" if simple else "Any"
    kind = schema.get("type")
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(kind, list):
        alternatives = [{**schema, "type": each} for each in kind]
    if isinstance(alternatives, list):
        return _union(_annotation(each, definitions, depth + 1) for each in alternatives)
    return _annotation_of_type(kind, schema, definitions, depth + 1)


def _annotation_of_type(kind: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    if kind == "array":
        return f"list[{_annotation(schema.get('items'), definitions, depth)}]"
    if kind == "object":
        extra = None if schema.get("properties") else schema.get("additionalProperties")
        return f"dict[str, {_annotation(extra, definitions, depth)}]"
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _union(types: Iterable[str]) -> str:
    found = list(dict.fromkeys(types))
    return "Any" if "Any" in found else " | ".join(found)


def _details(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return the JSON Schema of a value whose type does not say all; empty for any other."""
    if not _has_members(schema, definitions, 0):
        return ""
    shown = {key: each for key, each in schema.items() if key not in ("description", "title", "default")}
    text = to_json(shown).decode()
    if "$ref" in text:
        text = to_json({**shown, "$defs": dict(islice(_by_name(definitions).items(), _MAX_CHOICES))}).decode()
    return f"JSON Schema {text}"


def _by_name(definitions: Mapping[str, Any]) -> Json:
    return {path.rpartition("/")[2]: each for path, each in definitions.items()}


def _has_members(schema: Any, definitions: Mapping[str, Any], depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return False
    if schema.get("properties") or len(schema.get("enum", ())) > _MAX_CHOICES:
        return True
    parts = [schema.get("items"), schema.get("additionalProperties"), definitions.get(schema.get("$ref", ""))]
    parts += [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return any(_has_members(each, definitions, depth + 1) for each in parts)
