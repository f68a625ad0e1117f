from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge import DefinitionError, from_openapi
from bridge.openapi.selection import select
from tests.openapi.documents import document, parsed
from tests.openapi.pets import pets_app

if TYPE_CHECKING:
    from bridge.types import Json

PETS = parsed(pets_app().openapi())


def chosen(*patterns: str) -> list[str]:
    return [operation.name for operation in select(PETS, patterns)]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["getPet"], ["getPet"]),
        (["GET /pets"], ["listPets"]),
        (["get   /pets"], ["listPets"]),
        (["GET /pets*"], ["listPets", "getPet", "secret"]),
        (["* /pets/{id}"], ["getPet", "renamePet", "deletePet"]),
        (["tag:pets"], ["listPets", "createPet", "getPet"]),
        (["tag:p*", "deletePet", "getPet"], ["listPets", "createPet", "getPet", "deletePet"]),
        (["*Pet"], ["createPet", "getPet", "renamePet", "deletePet"]),
        (["???Pet"], ["getPet"]),
    ],
)
def test_operations_are_chosen_by_name_path_and_tag(patterns: list[str], names: list[str]) -> None:
    assert sorted(chosen(*patterns)) == sorted(names)


def test_nothing_is_published_unless_it_is_named_and_the_error_lists_what_there_is() -> None:
    with pytest.raises(DefinitionError, match="none is published unless it is named") as caught:
        from_openapi(pets_app())
    assert "  GET /pets  listPets  tags: pets\n" in str(caught.value)
    assert "  DELETE /pets/{id}  deletePet" in str(caught.value)


def test_a_pattern_that_matches_nothing_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(DefinitionError, match="matches 'getPett'; did you mean 'getPet'"):
        chosen("listPets", "getPett")


def test_the_list_of_a_large_document_is_cut_and_its_control_characters_are_escaped() -> None:
    paths: Json = {f"/{number}\x1b[2J": {"get": {"responses": {}}} for number in range(300)}
    with pytest.raises(DefinitionError) as caught:
        select(parsed(document(paths=paths)), [])
    assert "… and 200 more" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_pattern_with_many_stars_is_matched_fast() -> None:
    paths: Json = {"/" + "a" * 2000: {"get": {"responses": {}}}}
    with pytest.raises(DefinitionError, match="no operation"):
        select(parsed(document(paths=paths)), ["GET /" + "*" * 50 + "b"])


def test_a_pattern_that_resembles_nothing_is_an_error_that_lists_all() -> None:
    with pytest.raises(DefinitionError, match=r"matches 'tag:'\. It has "):
        chosen("tag:")
