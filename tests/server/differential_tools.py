"""Tools of every kind for the differential tests: those that talk to the client, and others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bridge.errors import ToolError
from bridge.prompts.function import prompt
from bridge.resources.function import resource
from bridge.server.features import Features
from bridge.tools.content import Image, Text
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the tools are made
from bridge.tools.function import tool
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from tests.server.tools import Running

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class Point:
    """A place."""

    x: int
    y: float = 0.5


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(title="Echo", annotations=ToolAnnotations(read_only=True, title="An echo"), metadata={"tests/kind": [1]})
async def echo(text: str) -> str:
    """Say the same."""
    return text


@tool
async def mirror(value: Any) -> Any:
    """Give any value back."""
    return value


@tool
async def move(point: Point, by: list[int]) -> Point:
    """Move a place."""
    return Point(point.x + sum(by), point.y)


@tool
async def picture() -> list[Any]:
    """Blocks of content."""
    return [Image(b"\x89PNG", "image/png"), "a picture", Text("noted", annotations={"priority": 0.5})]


@tool
async def refuse() -> str:
    """Fail with words for the model."""
    raise ToolError("no: é\u2028")


@tool
async def crash() -> str:
    """Fail without words for anybody."""
    raise ValueError("a secret")


@tool
def threaded(a: int) -> int:
    """Run in a thread."""
    return -a


@tool
async def talk(context: InvocationContext) -> str:
    """Talk back."""
    await context.progress(1, 2)
    await context.progress(1, 2, "not more")
    await context.progress(2, float("inf"), "half")
    headers = {name: context.headers[name] for name in ("accept", "Content-Type") if name in context.headers}
    identity = context.caller, context.round, context.resumption, context.has_listener, dict(context.meta)
    return f"{sorted(context.client_capabilities)} {headers} {identity}"


@tool
async def note(context: InvocationContext, text: str = "noted", level: str = "info") -> str:
    """Write to the client's log."""
    await context.log(level, {"text": text}, "tests")  # type: ignore[arg-type]  # a level that is none, too
    return text


@tool
async def ask(context: InvocationContext, fail: bool = False) -> str:
    """Ask the client."""
    if fail:
        raise ToolError("asked nothing")
    answer = await context.elicit("Which?", {"type": "object", "properties": {"which": {"type": "string"}}})
    return answer.action


@tool
def talk_in_thread(context: InvocationContext) -> int:
    """Talk back from a thread."""
    context.blocking.progress(0.5, message="in a thread")
    return context.round


async def _by_hand(arguments: Mapping[str, Any], _: InvocationContext) -> ToolExecutionResult:
    return ToolExecutionResult((Text("by hand"),), [sorted(arguments)], metadata={"tests/mark": {"deep": [None, 1.5]}})


BY_HAND = Tool(
    ToolSpecification(name="by-hand", description="Structured, but no object.", output_schema={"type": "array"}),
    Running(_by_hand),
    interactive=False,
)
MIRRORED = Tool(
    ToolSpecification(
        name="mirrored",
        description="One argument stands in a header, too.",
        parameters={"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
    ),
    Running(_by_hand),
    interactive=False,
)

PLAIN_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("add", {"a": 1, "b": 2}),
    ("add", {"a": 10**400, "b": -1}),
    ("add", {"a": "40", "b": 2.0, "unknown": None}),
    ("add", {"a": "forty"}),
    ("echo", {"text": "é\u0000\U0001f600\u2028"}),
    ("echo", {"text": 1e300}),
    ("mirror", {"value": {"a": [1, None, 1.5, {"b": "c"}], "": {}}}),
    ("mirror", {"value": 2**70}),
    ("mirror", {"value": None}),
    ("move", {"point": {"x": 1}, "by": [1, 2]}),
    ("move", {"point": '{"x": 1, "y": 2}', "by": "[]"}),
    ("picture", {}),
    ("refuse", {}),
    ("crash", {}),
    ("threaded", {"a": 1}),
    ("by-hand", {"b": 1, "a": 2}),
    ("talk", {}),
    ("talk", {"x": 1}),
    ("talk_in_thread", {}),
    ("note", {"text": "\u2028", "level": "unknown"}),
    ("ask", {"fail": True}),
)
"""Calls that are answered without a message before."""

TALKING_CALLS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("talk", {}, {"progressToken": 7}),
    ("talk", {}, {"progressToken": "p", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}),
    ("talk_in_thread", {}, {"progressToken": 8}),
    ("ask", {}, {}),
    ("ask", {}, {"progressToken": 9}),
)
"""Calls whose functions talk to the client, with their ``_meta``."""

OTHER_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mirrored", {"region": "here"}),
    ("unheard-of", {}),
)
"""Further calls."""


@resource("test://text")
async def text() -> str:
    """Text."""
    return "é"


@resource("test://bytes", mime_type="image/png")
async def some_bytes() -> bytes:
    """Bytes."""
    return b"\x89"


@resource("test://by/{name}")
async def by_name(name: str) -> dict[str, str]:
    """JSON."""
    if name == "broken":
        raise ValueError("a secret")
    return {"name": name}


@prompt
async def greeting(whom: str, tone: Literal["formal", "friendly"] = "formal") -> list[str | Image]:
    """Greet."""
    return [f"{tone} {whom}", Image(b"\x89")]


def features() -> Features:
    """All of them, with resources and a prompt."""
    return Features.of(toolbox(), text, some_bytes, by_name, greeting)


def toolbox() -> ToolBox:
    """All of them."""
    talking = talk, note, ask, talk_in_thread
    return ToolBox(add, echo, mirror, move, picture, refuse, crash, threaded, *talking, BY_HAND, MIRRORED)
