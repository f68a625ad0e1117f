"""Annotations with names that are defined later, or only for type checkers, in modules that do not evaluate them.

Since Python 3.14 no module does; before, one with ``from __future__ import annotations`` does not.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from bridge import DefinitionError, ToolBox

LATER = """
from dataclasses import dataclass
from bridge import tool

@tool
def move(to: Point, mark: "Mark | None" = None) -> int:
    return to.x

@dataclass
class Point:
    x: int

@dataclass
class Mark:
    y: int
"""
NESTED = """
from dataclasses import dataclass
from bridge import tool

def make():
    @dataclass
    class Mark:
        y: int

    @tool
    def move(to: Point, mark: "Mark | None" = None) -> int:
        return to.x

    @dataclass
    class Point:
        x: int

    return move

move = make()
"""
NEVER = """
from typing import TYPE_CHECKING
from bridge import tool
if TYPE_CHECKING:
    from decimal import Decimal

@tool
def move(to: Decimal) -> int:
    return 1
"""
FUTURE = "from __future__ import annotations"
since_314 = pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated with the definition")


def defined(code: str) -> Any:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, "later.py", "exec", dont_inherit=True), names)
    return names["move"]


def properties(code: str) -> list[str]:
    (tool,) = ToolBox(defined(code))
    return list(tool.specification.parameters["properties"])


@pytest.mark.parametrize("beginning", [FUTURE, pytest.param("", marks=since_314)])
def test_a_name_may_be_defined_after_the_function(beginning: str) -> None:
    assert properties(beginning + LATER) == ["to", "mark"]


@since_314
def test_a_name_of_an_enclosing_function_may_be_defined_after_the_function() -> None:
    assert properties(NESTED) == ["to", "mark"]


@pytest.mark.parametrize("beginning", [FUTURE, pytest.param("", marks=since_314)])
def test_a_name_that_is_never_defined_is_refused_with_the_remedy(beginning: str) -> None:
    with pytest.raises(DefinitionError, match=r"'to' of function 'move' .* must be importable at run time"):
        ToolBox(defined(beginning + NEVER))
