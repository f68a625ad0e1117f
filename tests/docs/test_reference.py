"""The generated pages equal the code, and every public name is on one of them."""

from __future__ import annotations

import jsonschema
import pytest

from bridge.client import config_json_schema
from tests.docs import reference

WRITTEN = reference.written()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_generated_page_is_as_the_code_says(name: str) -> None:
    path = reference.FOLDER / name
    assert path.is_file(), "run `make docs`"
    assert path.read_text(encoding="utf-8") == WRITTEN[name], "run `make docs`"


def test_no_page_of_the_api_is_left_over() -> None:
    pages = {f"api/{path.name}" for path in (reference.FOLDER / "api").glob("*.md")}
    assert pages == {name for name in WRITTEN if name.startswith("api/")}


def test_every_public_name_is_on_a_page() -> None:
    described = reference.described_names()
    for module in reference.api_modules():
        for name in reference.public_names(module):
            assert {f"{module}.{name}", f"bridge.{name}"} & described, f"{module}.{name}"


def test_the_published_schema_of_a_configuration_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(config_json_schema())
