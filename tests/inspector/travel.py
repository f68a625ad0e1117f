"""A travel agency: a server whose tools use all that the inspector's page can show."""

from __future__ import annotations

import zlib
from datetime import date  # noqa: TC003 - read for the schema
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
from pydantic import BaseModel, Field

from bridge import (
    Audio,
    Content,
    Image,
    InvocationContext,
    P,
    ResourceLink,
    Text,
    ToolAnnotations,
    ToolError,
    prompt,
    resource,
    tool,
)
from bridge.tools import SamplingMessage, UrlElicitation

if TYPE_CHECKING:
    from collections.abc import Mapping


class Passenger(BaseModel):
    """A traveller."""

    name: str = Field(description="As in the passport.")
    age: int = Field(ge=0, le=130)
    meal: Literal["meat", "fish", "vegan"] = "vegan"


class Card(BaseModel):
    """Payment by card."""

    kind: Literal["card"] = "card"
    number: str = Field(pattern=r"\d{16}")


class Invoice(BaseModel):
    """Payment on account."""

    kind: Literal["invoice"] = "invoice"
    email: str = Field(json_schema_extra={"format": "email"})


class Journey(BaseModel):
    """A booked journey."""

    reference: str
    destination: str
    passengers: int
    paid_by: str


@tool(annotations=ToolAnnotations(read_only=True))
async def distance(start: str, end: str = "Rome") -> int:
    """Distance between two cities, in kilometres."""
    return 100 * (len(start) + len(end))


@tool(title="Book a journey")
async def book(
    destination: Annotated[str, P("City to travel to.")],
    departure: Annotated[date, P("Day of departure.")],
    passengers: list[Passenger],
    payment: Card | Invoice,
    extras: list[Literal["bicycle", "dog", "seat"]] | None = None,
    notes: str | None = None,
) -> Journey:
    """Book seats for one or more passengers, and pay for them."""
    reference = f"J-{departure:%m%d}{len(passengers)}{len(extras or [])}{len(notes or '')}"
    return Journey(reference=reference, destination=destination, passengers=len(passengers), paid_by=payment.kind)


@tool
async def search(context: InvocationContext, destination: str, until: int = 5) -> str:
    """Search for journeys, one timetable after the other.

    Args:
        until: Timetables to read; from the tenth on the search never ends.
    """
    for number in range(1, min(until, 9) + 1):
        await context.progress(number, until, f"timetable {number}")
        await context.log("info", f"read timetable {number} for {destination}")
    if until > 9:
        await anyio.sleep_forever()
    return f"Journeys to {destination}: **3**"


@tool
async def cancel_journey(context: InvocationContext, reference: str) -> str:
    """Cancel a journey, after a question."""
    schema = {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "title": "Reason", "enum": ["illness", "other plans"]},
            "refund": {"type": "boolean", "title": "Refund to the card", "default": True},
        },
        "required": ["reason", "refund"],
    }
    answer = await context.elicit(f"Cancel the journey {reference}?", schema)
    if not answer.accepted or answer.content is None:
        return f"The journey stays booked ({answer.action})."
    return f"Cancelled because of {answer.content['reason']}, refund: {answer.content['refund']}."


@tool
async def pay(context: InvocationContext) -> str:
    """Pay on a page of the bank."""
    answers = await context.ask({"pay": UrlElicitation("Please pay at your bank.", "https://bank.example/pay?id=7")})
    return f"payment: {answers['pay'].action}"  # type: ignore[union-attr]  # the answer to that question


@tool
async def recommend(context: InvocationContext) -> str:
    """Ask the model of the caller for a city."""
    answer = await context.sample([SamplingMessage("user", (Text("Name a city."),))], max_tokens=20)
    return f"The model says: {answer.content[0].text}"  # type: ignore[union-attr]  # it is a text


@tool
async def folders(context: InvocationContext) -> list[str]:
    """Ask for the folders of the caller."""
    return [root.uri for root in await context.roots()]


@tool
async def ticket(reference: str) -> list[Content]:
    """Ticket of a journey: text, picture, announcement, link."""
    return [
        Text(f"Ticket {reference}"),
        Image(_png(), "image/png"),
        Audio(b"RIFF$\0\0\0WAVEfmt ", "audio/wav"),
        ResourceLink("travel://timetable/rome", name="timetable"),
    ]


@tool
async def guide(city: str) -> str:
    """Guide to a city, in Markdown."""
    return f"""\
# {city}

Stay **two days**, and see:

1. the *old* town
2. `the river`, by [boat](https://boats.example/tour)

| month | days of rain |
|---|---|
| May | 6 |

```
08:00  breakfast
```
![a map](https://maps.example/{city}.png)
"""


@tool
async def delay(train: str) -> str:
    """Delay of a train, which nobody knows."""
    raise ToolError(f"there is no train {train!r}; name one of the timetable")


@resource("travel://cities", mime_type="application/json")
async def cities() -> dict[str, Any]:
    """All cities."""
    return {"cities": ["Rome", "Vienna"]}


async def _cities(text: str, others: Mapping[str, str], context: InvocationContext) -> list[str]:
    return [city for city in ("Rome", "Rovaniemi", "Vienna") if city.lower().startswith(text.lower())]


async def _days(text: str, others: Mapping[str, str], context: InvocationContext) -> list[str]:
    return [f"{days} days in {others.get('city', 'a city')}" for days in (2, 3)]


@resource("travel://timetable/{city}", completions={"city": _cities})
async def timetable(city: str) -> str:
    """Timetable of a city."""
    return f"Trains to {city}: 8:00, 12:00"


@prompt(completions={"city": _cities, "days": _days})
async def plan(city: str, days: str = "3") -> str:
    """Plan a journey."""
    return f"Plan {days} days in {city}."


def _png() -> bytes:
    """A blue square of 48 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    rows = (b"\0" + bytes((52, 81, 178)) * 48) * 48
    header = (48).to_bytes(4) * 2 + bytes((8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
