"""What the replicas serve: each run is written into a journal before anything else is done."""

from __future__ import annotations

import hashlib

from bridge import InvocationContext, ToolBox, tool
from tests.faults.served import note

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
STEPS = 10
BLOCK = bytes(2**20)


@tool
def work(journal: str, call: str) -> str:
    """Run, and answer with the call's id."""
    note(journal, call)
    return call


@tool
async def work_long(journal: str, call: str, context: InvocationContext) -> str:
    """Run for a while, telling how far that is, and answer with the call's id."""
    note(journal, call)
    for step in range(STEPS):
        hashlib.sha256(BLOCK)
        await context.progress(step, STEPS, call)
    return call


@tool
async def ask(journal: str, call: str, context: InvocationContext) -> str:
    """Run, ask who it is, and answer with the call's id and the name."""
    note(journal, call)
    answer = await context.elicit(f"{call}?", FORM, key="name")
    return f"{call} {(answer.content or {})['name']}"


TOOLS = ToolBox([work, work_long, ask])
