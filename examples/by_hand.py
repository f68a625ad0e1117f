"""A tool by hand: a specification and an executor, for tools that are not known before the program runs.

Here they come from a table, as they could come from a database, a configuration file or another service:

    bridge serve examples/by_hand.py
    python examples/by_hand.py
"""

from collections.abc import Mapping
from typing import Any

import anyio

from bridge import (
    InvocationContext,
    Tool,
    ToolAnnotations,
    ToolBox,
    ToolExecutionRequest,
    ToolExecutionResult,
    ToolSpecification,
    execute,
)
from bridge.errors import ArgumentProblem, ArgumentsError
from bridge.tools import JsonObjectSchema

BOOKINGS = {"B-12345": {"guest": "Klaus Heisler", "nights": 3}, "B-67890": {"guest": "Zoë Jansen", "nights": 2}}


# What a model is told. JsonObjectSchema builds JSON Schema, and says what is required; a dict with a schema that
# already exists, from an OpenAPI description say, serves as well and is carried as it is.
SPECIFICATION = ToolSpecification(
    name="get_booking_details",
    description="Returns the details of a booking.",
    parameters=(
        JsonObjectSchema()
        .string("booking_number", "The booking's number, in the format B-12345", pattern=r"^B-\d{5}$")
        .enum("language", ["en", "de"], "In which language to answer; English by default")
        .required("booking_number")
        .build()
    ),
    annotations=ToolAnnotations(read_only=True),
    metadata={"team": "front desk"},
)


# What runs it: anything with this one method. A function's arguments are read and validated for it; an executor's are
# whatever was sent, since only it knows what it takes.
class BookingExecutor:
    """Looks bookings up."""

    def __init__(self, bookings: Mapping[str, Mapping[str, Any]]) -> None:
        self._bookings = bookings

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; the context says who asks, and is not needed here."""
        _ = context
        assert not isinstance(request.arguments, str)  # an executor always receives a mapping
        number = request.arguments.get("booking_number")
        if not isinstance(number, str):
            raise ArgumentsError(request.name, [ArgumentProblem("booking_number", "is required")])
        booking = self._bookings.get(number)
        if booking is None:
            return ToolExecutionResult.error(f"there is no booking {number}; known are {', '.join(self._bookings)}")
        words = "{guest}, {nights} Nächte" if request.arguments.get("language") == "de" else "{guest}, {nights} nights"
        return ToolExecutionResult.of_text(words.format(**booking))


# Both together are a tool like any other: in a ToolBox, beside functions and objects, served or called from here.
tools = ToolBox(Tool(SPECIFICATION, BookingExecutor(BOOKINGS)))


async def main() -> None:
    """Call the tool."""
    print(tools.get("get_booking_details").specification.parameters)

    async def ask(**arguments: Any) -> ToolExecutionResult:
        request = ToolExecutionRequest("get_booking_details", arguments)
        result = await execute(tools, request, InvocationContext())
        print(f"{arguments} → {'failed: ' if result.is_error else ''}{result.text}")
        return result

    assert (await ask(booking_number="B-12345")).text == "Klaus Heisler, 3 nights"
    assert (await ask(booking_number="B-67890", language="de")).text == "Zoë Jansen, 2 Nächte"
    assert (await ask(booking_number="B-00000")).is_error
    assert "booking_number: is required" in (await ask()).text


if __name__ == "__main__":
    anyio.run(main)
