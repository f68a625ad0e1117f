"""The generated pages equal the code, and every public name is on one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsonschema
import pytest

from bridge.client import config_json_schema
from bridge.exports import ROOMS, modules_of
from tests.docs import reference

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN = reference.written()
STUBS = reference.stubs()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_generated_page_is_as_the_code_says(name: str) -> None:
    path = reference.FOLDER / name
    assert path.is_file(), "run `make docs`"
    assert path.read_text(encoding="utf-8") == WRITTEN[name], "run `make docs`"


def test_no_page_of_the_api_is_left_over() -> None:
    pages = {f"api/{path.name}" for path in (reference.FOLDER / "api").glob("*.md")}
    assert pages == {name for name in WRITTEN if name.startswith("api/")}


def test_each_documented_module_is_on_a_page() -> None:
    assert sorted(ROOMS) == sorted(module for _, modules in reference.MODULES.values() for module in modules)


def test_every_public_name_is_on_a_page() -> None:
    described = reference.described_names()
    for module in reference.api_modules():
        for name in modules_of(module):
            assert {f"{module}.{name}", f"bridge.{name}"} & described, f"{module}.{name}"


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.parent.name)
def test_a_type_stub_is_as_the_list_of_names_says(path: Path) -> None:
    assert path.is_file(), "run `make reference`"
    assert path.read_text(encoding="utf-8") == STUBS[path], "run `make reference`"


def test_the_published_schema_of_a_configuration_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(config_json_schema())
