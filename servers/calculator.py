"""An MCP server for arithmetic, because models guess where they should calculate.

Run it:

    bridge serve servers/calculator.py                     # over stdio, as a desktop assistant starts it
    bridge serve servers/calculator.py --transport http    # over HTTP

Whole numbers stay whole and exact, however large (up to 4,000 digits); everything else is a 64-bit floating-point
number, as Python computes it. There is nothing to configure. The prompt `calculate` solves a problem in words.
"""

import math
from collections.abc import Callable
from typing import Annotated

from bridge import P, ToolAnnotations, ToolError, prompt, tool

Number = int | float

MAX_DIGITS = 4_000
MAX_BITS = math.floor(MAX_DIGITS * math.log2(10))

# Nothing here changes anything, asks anyone or takes long enough to be worth a thread.
calculation = tool(
    annotations=ToolAnnotations(read_only=True, idempotent=True, destructive=False, open_world=False),
    run_in_thread=False,
)


@calculation
def add(a: Annotated[Number, P("The first number")], b: Annotated[Number, P("The second number")]) -> Number:
    """Adds two numbers."""
    return _bounded("the sum", lambda: a + b)


@calculation
def sum_numbers(
    numbers: Annotated[list[Number], P("The numbers to sum, such as [1, 2.5, 3]; none at all sum to 0")],
) -> Number:
    """Sums any number of given numbers. With fractions among them the sum is rounded once, not at every step."""
    whole = all(isinstance(number, int) for number in numbers)
    return _bounded("the sum", lambda: sum(numbers) if whole else math.fsum(numbers))


@calculation
def subtract(a: Annotated[Number, P("What to subtract from")], b: Annotated[Number, P("What to subtract")]) -> Number:
    """Subtracts the second number from the first."""
    return _bounded("the difference", lambda: a - b)


@calculation
def multiply(a: Annotated[Number, P("The first number")], b: Annotated[Number, P("The second number")]) -> Number:
    """Multiplies two numbers."""
    return _bounded("the product", lambda: a * b)


@calculation
def divide(a: Annotated[Number, P("What to divide")], b: Annotated[Number, P("What to divide by; not zero")]) -> Number:
    """Divides the first number by the second. Whole numbers that divide evenly give a whole number."""
    if b == 0:
        raise ToolError(f"{_shown(a)} cannot be divided by zero; check where the divisor b comes from")
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return a // b
    return _bounded("the quotient", lambda: a / b)


@calculation
def power(
    base: Annotated[Number, P("The number to raise")], exponent: Annotated[Number, P("The power to raise it to")]
) -> Number:
    """Raises a number to a power. An exponent of one third, 0.3333333333333333, gives about the cube root."""
    if base == 0 and exponent < 0:
        raise ToolError("zero cannot be raised to a negative power: that would divide by zero")
    if base < 0 and isinstance(exponent, float) and not exponent.is_integer():
        raise ToolError(f"{_shown(base)} has no real power {exponent!r}: a negative base needs a whole exponent")
    if isinstance(base, int) and isinstance(exponent, int) and (base.bit_length() - 1) * exponent > MAX_BITS:
        raise _out_of_range("the power")  # said before computing: 9 ** 9 ** 9 would keep the machine busy for hours
    return _bounded("the power", lambda: base**exponent)


@calculation
def square_root(x: Annotated[Number, P("The number whose square root is wanted; not negative")]) -> float:
    """Returns the square root of a given number."""
    if x < 0:
        raise ToolError(f"{_shown(x)} is negative and has no real square root")
    return float(_bounded("the square root", lambda: math.sqrt(x)))


@prompt(title="Work it out")
def calculate(problem: Annotated[str, P("The problem, in words: 'What is 17 % of 2,340, plus 12?'")]) -> str:
    """Solves a problem in words with the calculator, and shows the steps."""
    return (
        "Solve the following problem. Use the calculator's tools for every calculation, also for small ones; never "
        f"calculate yourself. Then show the steps and the result.\n\n{problem}"
    )


def _bounded(what: str, compute: Callable[[], Number]) -> Number:
    """Result of a computation, if it is a finite number."""
    try:
        result = compute()
    except OverflowError as error:
        raise _out_of_range(what) from error
    if isinstance(result, int) and result.bit_length() > MAX_BITS:
        raise _out_of_range(what)
    if isinstance(result, float) and not math.isfinite(result):
        raise _out_of_range(what)
    return result


def _out_of_range(what: str) -> ToolError:
    return ToolError(
        f"{what} is out of range: whole numbers may have {MAX_DIGITS:,} digits here, others reach about 1.8e308"
    )


def _shown(number: Number) -> str:
    """A number fit for a message."""
    text = repr(number)
    return text if len(text) <= 40 else f"{text[:20]}… ({len(text)} digits)"  # noqa: PLR2004 - what reads well
