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
        (["*Pet", "!getPet"], ["createPet", "renamePet", "deletePet"]),
        (["! delete*", "*Pet", "!* /pets/{id}"], ["createPet"]),
        (["tag:p*", "!tag:pets", "deletePet"], ["deletePet"]),
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


def test_exclusions_alone_choose_nothing_and_those_that_match_nothing_are_errors() -> None:
    with pytest.raises(DefinitionError, match="none is published unless it is named"):
        chosen("!getPet")
    with pytest.raises(DefinitionError, match="matches '!getPett'; did you mean 'getPet'"):
        chosen("*", "!getPett")
    with pytest.raises(DefinitionError, match="are left out by patterns after '!'"):
        chosen("*Pet", "!*")


UPLOAD: Json = {"operationId": "upload", "servers": [{"url": "https://uploads.example.com"}], "responses": {}}
XML: Json = {
    "operationId": "store",
    "requestBody": {"required": True, "content": {"application/xml": {}}},
    "responses": {},
}
MIXED = document(paths={"/x": {"get": {"operationId": "x", "responses": {}}, "post": UPLOAD, "put": XML}})


@pytest.mark.parametrize("patterns", [["*"], ["* /x"], ["???*", "x"]])
def test_operations_that_are_not_supported_are_left_out_of_wildcards(
    patterns: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert [tool.name for tool in from_openapi(MIXED, patterns)] == ["x"]
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2
    assert "PUT /x" in warnings[0]
    assert "POST /x has a server of its own on another host, https://uploads.example.com" in warnings[1]


def test_operations_that_are_left_out_by_hand_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert [tool.name for tool in from_openapi(MIXED, ["*", "!POST /x", "!store"])] == ["x"]
    assert caplog.records == []


@pytest.mark.parametrize("pattern", ["upload", "POST /x", "store"])
def test_an_operation_that_is_named_and_not_supported_is_an_error(pattern: str) -> None:
    with pytest.raises(DefinitionError, match=r"POST /x|PUT /x"):
        from_openapi(MIXED, ["*", pattern])


def test_operations_of_which_none_is_supported_are_an_error() -> None:
    with pytest.raises(DefinitionError, match="PUT /x"):
        from_openapi(MIXED, ["upl*", "sto*"])


def test_many_operations_that_are_left_out_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    paths: Json = {f"/{number}": {"post": UPLOAD} for number in range(50)}
    from_openapi(document(paths={**paths, "/x": {"get": {"operationId": "x", "responses": {}}}}), ["*"])
    assert len(caplog.records) == 21
    assert caplog.records[-1].getMessage().startswith("30 further operations of")


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
