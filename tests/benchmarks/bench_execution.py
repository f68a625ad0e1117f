"""One call within the process: from a request to a result, without a transport

What the execution path costs is what a call takes beside the bare function. A round is a thousand calls in one event
loop; what the loop itself takes is in both.
"""

from __future__ import annotations

import functools
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import anyio.to_thread
import pytest
from pydantic import BaseModel, Field, TypeAdapter
from pydantic_core import to_json

from bridge import InvocationContext, ToolBox, ToolExecutionRequest, execute, tool
from bridge.wire.tools import result_to_wire

if TYPE_CHECKING:
    from tests.benchmarks.meter import Meter

BARE = "bare coroutine function"
BARE_IN_THREAD = "bare function in a thread of anyio's"
PYDANTIC = "pydantic alone: nested models from JSON text"
PYDANTIC_DATED = "pydantic alone: nested models with dates and decimals"
THREAD_CALLS = 200
NESTED_CALLS = 100


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(timeout_seconds=60)
async def add_in_time(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def add_in_thread(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(run_in_thread=False)
def add_in_place(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Kind(Enum):
    """A product."""

    BOOK = "book"
    MAP = "map"


class Item(BaseModel):
    """A line of an order."""

    title: str = Field(min_length=1)
    kind: Kind
    quantity: int = Field(ge=1)
    price: float = Field(gt=0)
    tags: list[str] = []


class Address(BaseModel):
    """An address."""

    street: str
    city: str
    postcode: Annotated[str, Field(pattern=r"\d{5}")]


class Order(BaseModel):
    """An order."""

    number: int
    address: Address
    items: list[Item]
    notes: dict[str, str] = {}


class Payment(BaseModel):
    """A part of the price."""

    day: date
    amount: Decimal


class PaidOrder(Order):
    """An order that was paid."""

    payments: list[Payment]


@tool
async def accept(order: Order) -> None:
    """Accept an order."""


@tool
async def ship(order: PaidOrder) -> None:
    """Ship an order."""


TOOLS = ToolBox([add, add_in_time, add_in_thread, add_in_place, accept, ship])
CONTEXT = InvocationContext()
NUMBERS = {"a": 1, "b": 2}
ITEM = {"title": "The Bridge", "kind": "book", "quantity": 2, "price": 12.5, "tags": ["new", "signed"]}
ADDRESS = {"street": "1 Long Street", "city": "Springfield", "postcode": "12345"}
ORDER = {"number": 7, "address": ADDRESS, "items": [ITEM] * 10, "notes": {"door": "left"}}
PAID_ORDER = ORDER | {"payments": [{"day": "2026-08-01", "amount": "62.50"}] * 2}


def bench_bare_function(meter: Meter) -> None:
    meter.measure_calls(BARE, lambda: add(a=1, b=2))


def bench_async_tool(meter: Meter) -> None:
    request = ToolExecutionRequest("add", NUMBERS)
    meter.measure_calls("async tool", lambda: execute(TOOLS, request, CONTEXT), beside=BARE)


def bench_async_tool_with_all_that_a_call_brings(meter: Meter) -> None:
    async def call() -> bytes:
        context = InvocationContext()
        result = await execute(TOOLS, ToolExecutionRequest("add", NUMBERS), context)
        return to_json(result_to_wire(result))

    meter.measure_calls("async tool, its request and context made, its result as JSON", call, beside=BARE)


def bench_async_tool_by_text_of_a_model(meter: Meter) -> None:
    request = ToolExecutionRequest("add", '{"a": 1, "b": 2}')
    meter.measure_calls(
        "async tool, its arguments as a model writes them", lambda: execute(TOOLS, request, CONTEXT), beside=BARE
    )


def bench_arguments_that_are_repaired(meter: Meter) -> None:
    request = ToolExecutionRequest("add", {"a": "1", "b": 2.0})
    meter.measure_calls("async tool, its arguments repaired", lambda: execute(TOOLS, request, CONTEXT), beside=BARE)


def bench_async_tool_with_a_timeout(meter: Meter) -> None:
    request = ToolExecutionRequest("add_in_time", NUMBERS)
    meter.measure_calls("async tool with a timeout", lambda: execute(TOOLS, request, CONTEXT), beside=BARE)


def bench_sync_tool_in_place(meter: Meter) -> None:
    request = ToolExecutionRequest("add_in_place", NUMBERS)
    meter.measure_calls("sync tool, run_in_thread=False", lambda: execute(TOOLS, request, CONTEXT), beside=BARE)


def bench_bare_function_in_a_thread(meter: Meter) -> None:
    call = functools.partial(add_in_thread, a=1, b=2)
    meter.measure_calls(BARE_IN_THREAD, lambda: anyio.to_thread.run_sync(call), calls=THREAD_CALLS)


def bench_sync_tool_in_a_thread(meter: Meter) -> None:
    request = ToolExecutionRequest("add_in_thread", NUMBERS)
    meter.measure_calls(
        "sync tool in a thread", lambda: execute(TOOLS, request, CONTEXT), calls=THREAD_CALLS, beside=BARE_IN_THREAD
    )


@pytest.mark.parametrize(
    ("name", "model", "value"), [(PYDANTIC, Order, ORDER), (PYDANTIC_DATED, PaidOrder, PAID_ORDER)]
)
def bench_pydantic_alone(meter: Meter, name: str, model: type[Order], value: dict[str, Any]) -> None:
    validate, text = TypeAdapter(model).validate_json, to_json(value)

    async def call() -> Order:
        return validate(text, strict=True)

    meter.measure_calls(name, call, calls=NESTED_CALLS)


def bench_nested_models(meter: Meter) -> None:
    request = ToolExecutionRequest("accept", {"order": ORDER})
    meter.measure_calls(
        "async tool of nested models", lambda: execute(TOOLS, request, CONTEXT), calls=NESTED_CALLS, beside=PYDANTIC
    )


def bench_nested_models_with_dates_and_decimals(meter: Meter) -> None:
    request = ToolExecutionRequest("ship", {"order": PAID_ORDER})
    meter.measure_calls(
        "async tool of nested models with dates and decimals",
        lambda: execute(TOOLS, request, CONTEXT),
        calls=NESTED_CALLS,
        beside=PYDANTIC_DATED,
    )
