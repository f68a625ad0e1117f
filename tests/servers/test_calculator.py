from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ToolError
from bridge.testing import connected
from bridge.tools.content import Text
from servers import calculator as functions

if TYPE_CHECKING:
    from tests.servers.conftest import Load, Loaded, Serve

pytestmark = pytest.mark.anyio

ENORMOUS = 10**3_000


@pytest.fixture
def calculator(load: Load) -> Loaded:
    return load("calculator")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("add", {"a": 2, "b": 3}, 5),
        ("add", {"a": 0.1, "b": 0.2}, 0.1 + 0.2),
        ("add", {"a": "2", "b": "3.5"}, 5.5),
        ("add", {"a": 10**100, "b": 1}, 10**100 + 1),
        ("sum_numbers", {"numbers": [1, 2, 3]}, 6),
        ("sum_numbers", {"numbers": []}, 0),
        ("sum_numbers", {"numbers": [0.1] * 10}, 1.0),
        ("sum_numbers", {"numbers": [10**100, 1]}, 10**100 + 1),
        ("subtract", {"a": 2, "b": 3.5}, -1.5),
        ("multiply", {"a": 123456789, "b": 987654321}, 121932631112635269),
        ("divide", {"a": 6, "b": 3}, 2),
        ("divide", {"a": 1, "b": 3}, 1 / 3),
        ("divide", {"a": 10**400, "b": 10**399}, 10),
        ("power", {"base": 2, "exponent": 100}, 2**100),
        ("power", {"base": 2, "exponent": -1}, 0.5),
        ("power", {"base": -2.5, "exponent": 3}, -15.625),
        ("power", {"base": -1, "exponent": ENORMOUS}, 1),
        ("power", {"base": 0, "exponent": 0}, 1),
        ("square_root", {"x": 2}, math.sqrt(2)),
        ("square_root", {"x": 0}, 0.0),
    ],
)
async def test_it_calculates_as_python_does(
    calculator: Loaded, name: str, arguments: dict[str, Any], expected: float
) -> None:
    result = await calculator.call(name, **arguments)
    assert (result.structured_content, result.is_error) == ({"result": expected}, False)


async def test_the_square_root_that_models_get_wrong_is_exact(calculator: Loaded) -> None:
    result = await calculator.call("square_root", x=475695037565)
    assert result.text == repr(math.sqrt(475695037565)) == "689706.4865324959"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("divide", {"a": 5, "b": 0}, "5 cannot be divided by zero; check where the divisor b comes from"),
        ("divide", {"a": 5, "b": -0.0}, "5 cannot be divided by zero; check where the divisor b comes from"),
        ("power", {"base": 0, "exponent": -2}, "zero cannot be raised to a negative power"),
        ("power", {"base": -8, "exponent": 0.5}, "-8 has no real power 0.5: a negative base needs a whole exponent"),
        ("power", {"base": 9, "exponent": 9**9}, "the power is out of range"),
        ("power", {"base": 9, "exponent": ENORMOUS}, "the power is out of range"),
        ("power", {"base": 9.5, "exponent": 9**9}, "the power is out of range"),
        ("square_root", {"x": -4}, "-4 is negative and has no real square root"),
        ("square_root", {"x": ENORMOUS}, "the square root is out of range"),
        ("multiply", {"a": ENORMOUS, "b": ENORMOUS}, "the product is out of range"),
        ("multiply", {"a": 1e300, "b": -1e300}, "the product is out of range"),
        ("add", {"a": ENORMOUS, "b": 0.5}, "the sum is out of range"),
        ("sum_numbers", {"numbers": [1e308, 1e308]}, "the sum is out of range"),
        ("divide", {"a": ENORMOUS, "b": 3}, "the quotient is out of range"),
        ("divide", {"a": -ENORMOUS, "b": 0}, "-1000000000000000000… (3002 digits) cannot be divided by zero"),
        ("add", {"a": True, "b": 1}, "invalid arguments for 'add': a: should be"),
        ("add", {"a": "one", "b": 1}, "invalid arguments for 'add': a: should be"),
        ("add", {"a": 1}, "invalid arguments for 'add': b: is required"),
        ("sum_numbers", {"numbers": [1, None]}, "invalid arguments for 'sum_numbers': numbers[1]: should be"),
    ],
)
async def test_what_cannot_be_calculated_is_explained_to_the_model(
    calculator: Loaded, name: str, arguments: dict[str, Any], expected: str
) -> None:
    result = await calculator.call(name, **arguments)
    assert result.is_error
    assert result.text.startswith(expected)


async def test_every_tool_says_that_it_changes_nothing_and_describes_every_parameter(calculator: Loaded) -> None:
    for tool in calculator.tools:
        assert tool.specification.annotations is not None
        assert tool.specification.annotations.read_only
        assert tool.specification.description
        assert all(schema["description"] for schema in tool.specification.parameters["properties"].values())


NUMBERS = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)


@given(a=NUMBERS, b=NUMBERS)
def test_no_two_numbers_raise_anything_but_a_tool_error(a: float, b: float) -> None:
    for calculate in (functions.add, functions.subtract, functions.multiply, functions.divide, functions.power):
        try:
            result = calculate(a, b)
        except ToolError:
            continue
        assert isinstance(result, int) or math.isfinite(result)


async def test_a_real_client_calls_it(serve: Serve) -> None:
    async with serve("calculator") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["add", "sum_numbers", "subtract", "multiply", "divide", "power", "square_root"]
        root = await client.call_tool("square_root", {"x": 475695037565})
        assert root.structured_content == {"result": math.sqrt(475695037565)}
        assert (await client.call_tool("add", {"a": 10**100, "b": 1})).structured_content == {"result": 10**100 + 1}
        refused = await client.call_tool("divide", {"a": 1, "b": 0})
        assert refused.is_error


async def test_the_prompt_lets_a_model_calculate(load: Load) -> None:
    async with connected(load("calculator").module) as provider:
        (message,) = await provider.prompts.render("calculate", {"problem": "What is 17 % of 2,340?"})
        assert isinstance(message.content, Text)
        assert message.content.text.endswith("\n\nWhat is 17 % of 2,340?")
