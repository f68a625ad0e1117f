from __future__ import annotations

from typing import Any

import pytest

from bridge import DefinitionError, InvocationContext
from bridge.wire.extension import APPS, TASKS, Extension, extensions_of


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"id": "colours"}, "not 'colours'"),
        ({"id": 1}, "must be text, not 1"),
        ({"id": "com.example/x", "settings": []}, "settings of the extension 'com.example/x' must be a dict"),
        ({"id": "com.example/x", "settings": {"a": object()}}, "cannot be written as JSON"),
        ({"id": "com.example/x", "client_settings": {"a": {2, object()}}}, "cannot be written as JSON"),
        ({"id": "com.example/x", "methods": {"x/get": "no"}}, "'x/get': 'no' is not a function"),
        ({"id": "com.example/x", "methods": {"notifications/x": print}}, "names of notifications begin with"),
        ({"id": "com.example/x", "notifications": {"x/changed": print}}, "names of notifications begin with"),
    ],
)
def test_a_malformed_extension_is_refused_with_its_name_and_the_remedy(arguments: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Extension(**arguments)


def test_settings_by_identifier_are_announced_and_declared() -> None:
    (found,) = extensions_of({"com.example/x": {"a": 1}})
    assert found == Extension(id="com.example/x", settings={"a": 1}, client_settings={"a": 1})
    with pytest.raises(DefinitionError, match="an item of extensions must be an Extension"):
        extensions_of(["com.example/x"])  # type: ignore[list-item]  # refused


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"extensions": {APPS.id: {"mimeTypes": []}}}, {"mimeTypes": []}),
        ({"extensions": {APPS.id: None}}, None),
        ({"extensions": [APPS.id]}, None),
        ({"extensions": {TASKS.id: {}}}, None),
        ({}, None),
        (None, None),
    ],
)
def test_malformed_capabilities_declare_no_extension(capabilities: Any, expected: Any) -> None:
    assert APPS.declared_in(capabilities) == expected


@pytest.mark.anyio
async def test_a_handler_gets_no_meta_and_returns_a_mapping() -> None:
    async def echo(params: dict[str, Any], context: InvocationContext) -> dict[str, Any]:
        return params

    extension = Extension(id="com.example/x", methods={"x/echo": echo, "x/text": lambda *_: "text"})  # type: ignore[dict-item]  # refused when it is called
    assert await extension.answer("x/echo", {"a": 1, "_meta": {}}, InvocationContext()) == {"a": 1}
    with pytest.raises(TypeError, match="returns the result as a mapping, not 'text'"):
        await extension.answer("x/text", {}, InvocationContext())
