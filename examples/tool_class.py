"""A class of tools: methods that share an object, and take structured data.

bridge serve examples/tool_class.py        # serves the instance at the end of the class's definition
python examples/tool_class.py              # shows what a model can do with it
"""

from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Annotated

import anyio

from bridge import InvocationContext, P, ToolBox, ToolError, ToolExecutionRequest, execute, tool


# Enums become choices in the schema. A model may answer with a value, or with a member's name in any case.
class Size(Enum):
    """Size of a pizza."""

    SMALL = "small"
    LARGE = "large"


# Dataclasses, pydantic models and TypedDicts become nested objects. The text below a field is its description.
@dataclass
class Pizza:
    """One pizza."""

    size: Size
    toppings: list[str] = field(default_factory=list)
    """Toppings, such as ``olives``; nothing means tomato and cheese."""


@dataclass
class Address:
    """Address for the delivery."""

    street: str
    city: str


@dataclass
class Order:
    """Items that were ordered."""

    number: int
    pizzas: list[Pizza]
    address: Address
    day: date


# The methods of an object are tools that share its state. Inherited methods are tools as well.
class Pizzeria:
    """Takes orders."""

    def __init__(self, city: str) -> None:
        self.city = city
        self._orders: list[Order] = []

    @tool
    def order(
        self,
        pizzas: Annotated[list[Pizza], P("Every pizza of the order")],
        address: Annotated[Address, P("Where to deliver the pizzas")],
        day: Annotated[date, P("When to deliver")],
    ) -> Order:
        """Orders pizzas."""
        if address.city != self.city:
            raise ToolError(f"only {self.city} is delivered to, not {address.city}")
        self._orders.append(Order(len(self._orders) + 1, pizzas, address, day))
        return self._orders[-1]

    @tool
    def count(self, size: Annotated[Size | None, P("Only pizzas of this size")] = None) -> int:
        """Counts the pizzas that were ordered."""
        pizzas = [pizza for order in self._orders for pizza in order.pizzas]
        return sum(size in {None, pizza.size} for pizza in pizzas)


pizzeria = Pizzeria("Naples")


async def main() -> None:
    """Call the tools as a model does, in this process: what a server, or an AI service, would do with them."""
    tools = ToolBox(pizzeria)

    async def ask(name: str, arguments: str) -> str:
        result = await execute(tools, ToolExecutionRequest(name, arguments), InvocationContext())
        print(f"{name}({arguments})\n    {'failed: ' if result.is_error else ''}{result.text}")
        return result.text

    print("order takes", tools.get("order").specification.parameters, "\n")

    # Arguments are the JSON text that a model wrote, or a mapping. The function gets real objects.
    placed = await ask(
        "order",
        """{"pizzas": [{"size": "large", "toppings": ["olives"]}, {"size": "SMALL"}],
            "address": {"street": "Via Toledo 1", "city": "Naples"}, "day": "2031-05-04"}""",
    )
    assert placed.startswith('{"number":1,"pizzas":[{"size":"large","toppings":["olives"]},{"size":"small"')
    assert await ask("count", '{"size": "large"}') == "1"

    # Everything that is wrong with the arguments is said at once, with its place, so that one more try is enough.
    wrong = await ask("order", '{"pizzas": [{"size": "huge"}], "address": {"street": "Via Toledo 1"}, "day": "soon"}')
    assert "pizzas[0].size: should be 'small' or 'large'" in wrong
    assert "address.city: is required" in wrong

    # What is right in form can be wrong for the author of the tool, who says why.
    refused = await ask(
        "order", '{"pizzas": [], "address": {"street": "Corso 1", "city": "Rome"}, "day": "2031-05-04"}'
    )
    assert refused == "only Naples is delivered to, not Rome"


if __name__ == "__main__":
    anyio.run(main)
