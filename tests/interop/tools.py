"""Tools of every kind, served to the official client: ``bridge serve tests/interop/tools.py:TOOLS``."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from pydantic import Field

from bridge import (
    Audio,
    Content,
    File,
    Image,
    InvocationContext,
    P,
    ResourceLink,
    Text,
    ToolAnnotations,
    ToolBox,
    ToolError,
    ToolExecutionResult,
    tool,
)
from bridge.tools import Elicitation, Roots, Sampling, SamplingMessage

# --- results ---------------------------------------------------------------------------------------------------------


@dataclass
class Point:
    """A place on a plane."""

    x: float
    y: float


@tool(
    "Echoes text.",
    title="Echo",
    metadata={"team": "interop"},
    annotations=ToolAnnotations(read_only=True, idempotent=True, open_world=False),
    icons=[{"src": "https://example.org/echo.png", "mimeType": "image/png"}],
)
def echo(text: Annotated[str, P("What to say.")]) -> str:
    return text


@tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
async def mirror(point: Point) -> Point:
    """Mirror a point at the origin."""
    return Point(-point.x, -point.y)


@tool
async def letters(word: str) -> list[str]:
    """Spell a word."""
    return list(word)


@tool
async def nothing() -> None:
    """Do nothing."""


@tool
async def every_kind() -> list[Content]:
    """Every kind of content."""
    return [
        Text("text", annotations={"audience": ["user"], "priority": 0.5}),
        Image(b"\x89PNG"),
        Audio(b"RIFF"),
        File("file:///a.txt", "inside", "text/plain"),
        File("file:///a.bin", b"\x00\xff", metadata={"kept": True}),
        ResourceLink("file:///b.txt", "b", description="elsewhere", size_bytes=3),
    ]


@tool
async def with_metadata() -> ToolExecutionResult:
    """A result made by hand."""
    return ToolExecutionResult((Text("by hand"),), metadata={"example.org/cost": 3})


@tool
async def fail() -> str:
    """Fail with words."""
    raise ToolError("no bananas today; ask for apples")


@tool
async def crash() -> str:
    """Fail without words."""
    raise RuntimeError("the password is hunter2")


@tool
async def located(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """An argument that travels in a header too."""
    return region


# --- while it runs ---------------------------------------------------------------------------------------------------


@tool
async def steps(context: InvocationContext) -> str:
    """Report progress."""
    await context.progress(1, 3, "one")
    await context.progress(2, 3)
    await context.progress(3)
    return "done"


@tool
def steps_in_a_thread(context: InvocationContext) -> str:
    """Report progress from a function that is not a coroutine."""
    context.blocking.progress(1, 1, "from a thread")
    return "done"


@tool
async def chatter(context: InvocationContext) -> str:
    """Log."""
    await context.log("debug", "too quiet to be heard")
    await context.log("warning", {"disk": "full"}, "storage")
    return "done"


# --- questions -------------------------------------------------------------------------------------------------------


@dataclass
class Order:
    """Thing to bring."""

    dish: str
    portions: int = 1


def prompt(text: str) -> list[SamplingMessage]:
    return [SamplingMessage("user", (Text(text),))]


@tool
async def order(context: InvocationContext) -> dict[str, Any]:
    """Ask the person."""
    answer = await context.elicit("What would you like?", Order)
    return {"action": answer.action, "content": answer.content}


@tool
async def think(question: str, context: InvocationContext) -> str:
    """Ask the client's model."""
    answer = await context.sample(prompt(question), max_tokens=50, system_prompt="Be brief.")
    return f"{answer.model}: {''.join(block.text for block in answer.content if isinstance(block, Text))}"


@tool
async def folders(context: InvocationContext) -> list[str]:
    """Ask which folders are open."""
    return [root.uri for root in await context.roots()]


@tool
async def interview(context: InvocationContext) -> dict[str, Any]:
    """Ask one thing, then two at once."""
    first = await context.elicit("What would you like?", Order, key="first")
    rest = await context.ask({"model": Sampling(prompt("Is that wise?"), 10), "roots": Roots()})
    return {"first": first.action, "rest": sorted(rest)}


@tool
async def ask_in_a_broad_try(context: InvocationContext) -> str:
    """A question gets through an ``except Exception``."""
    try:
        answers = await context.ask({"order": Elicitation("Go on?", {"type": "object", "properties": {}})})
    except Exception as error:  # noqa: BLE001 - the point of the tool
        return f"eaten: {error!r}"
    return ", ".join(answers)


# --- several at once -------------------------------------------------------------------------------------------------

ARRIVED: defaultdict[str, int] = defaultdict(int)
COMPLETE: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)
BARRIERS: defaultdict[str, threading.Barrier] = defaultdict(lambda: threading.Barrier(3, timeout=20))
ENDED: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)


@tool
async def meet(place: str, people: int) -> int:
    """Wait until so many are here."""
    ARRIVED[place] += 1
    if ARRIVED[place] == people:
        COMPLETE[place].set()
    await COMPLETE[place].wait()
    return ARRIVED[place]


@tool
def meet_in_threads(place: str) -> str:
    """Wait until three are here, each in a thread of its own."""
    BARRIERS[place].wait()
    return place


@tool
async def wait(name: str, context: InvocationContext) -> None:
    """Wait until cancelled."""
    try:
        await context.progress(1, 2, "waiting")
        await anyio.sleep_forever()
    finally:
        ENDED[name].set()


@tool
async def end_of_wait(name: str) -> str:
    """Wait until a call of ``wait`` has ended."""
    await ENDED[name].wait()
    return f"{name} has ended"


# --- a list that changes ---------------------------------------------------------------------------------------------


@tool
def guest() -> str:
    """Comes and goes."""
    return "here"


@tool
def change_the_list() -> bool:
    """Let the guest come, or go; says whether it is here now."""
    if "guest" in TOOLS:
        TOOLS.remove("guest")
    else:
        TOOLS.add(guest)
    return "guest" in TOOLS


TOOLS = ToolBox(
    [echo, add, mirror, letters, nothing, every_kind, with_metadata, fail, crash, located],
    [steps, steps_in_a_thread, chatter, order, think, folders, interview, ask_in_a_broad_try],
    [meet, meet_in_threads, wait, end_of_wait, change_the_list],
)
