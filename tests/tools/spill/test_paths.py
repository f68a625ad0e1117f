"""JSON paths: each form, what selects nothing, and what is refused."""

from typing import Any

import pytest

from bridge.tools.spill.paths import values_at

DATA = {
    "items": [{"id": 1, "tags": ["a", "b"]}, {"id": 2, "tags": []}, {"id": 3}],
    "count": 3,
    "with space": {"it's": True},
    "null": None,
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", [DATA]),
        ("", [DATA]),
        ("$.count", [3]),
        ("count", [3]),
        ("$.null", [None]),
        ("$['with space']", [{"it's": True}]),
        ("$[\"with space\"]['it\\'s']", [True]),
        ("$.items[0].id", [1]),
        ("items[-1].id", [3]),
        ("$.items[*].id", [1, 2, 3]),
        ("$.items.*.id", [1, 2, 3]),
        ("$.items[0:2].id", [1, 2]),
        ("$.items[1:].id", [2, 3]),
        ("$.items[:-1].id", [1, 2]),
        ("$.items[*].tags[*]", ["a", "b"]),
        ("$[*]", list(DATA.values())),
        ("$.items[9]", []),
        ("$.items[-9]", []),
        ("$.absent.id", []),
        ("$.count[0]", []),
        ("$.count[*]", []),
        ("$.items.id", []),
    ],
)
def test_a_path_selects(path: str, found: list[Any]) -> None:
    assert values_at(DATA, path) == found


@pytest.mark.parametrize(
    "path", ["$..id", "$.items[?@.id > 1]", "$.items[", "$.items[0", "$.a b", "$.items[1:2:3]", "$."]
)
def test_another_form_is_refused_with_its_place(path: str) -> None:
    with pytest.raises(ValueError, match=r"is not a part of a path: write \.name"):
        values_at(DATA, path)
