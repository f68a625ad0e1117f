"""Tools of the replicas, which write each run to a journal before anything else."""

from __future__ import annotations

import hashlib

import anyio

from bridge import InvocationContext, ToolBox, tool
from tests.faults.served import note

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
STEPS = 10
TASK_SECONDS = 0.3
BLOCK = bytes(2**20)


@tool
def work(journal: str, call: str) -> str:
    """Run, and return the call's ID."""
    note(journal, call)
    return call


@tool
async def work_long(journal: str, call: str, context: InvocationContext) -> str:
    """Run for a while with progress, and return the call's ID."""
    note(journal, call)
    for step in range(STEPS):
        hashlib.sha256(BLOCK)
        await context.progress(step, STEPS, call)
    return call


@tool
async def ask(journal: str, call: str, context: InvocationContext) -> str:
    """Run, ask for a name, and return the call's ID and the name."""
    note(journal, call)
    answer = await context.elicit(f"{call}?", FORM, key="name")
    return f"{call} {(answer.content or {})['name']}"


@tool(task=True)
async def work_once(journal: str, call: str) -> str:
    """Run as a task for a while, and return the call's ID."""
    note(journal, call)
    await anyio.sleep(TASK_SECONDS)
    note(journal, f"{call}.ended")
    return call


@tool(task=True, annotations={"idempotentHint": True})
async def work_again(journal: str, call: str) -> str:
    """Run as a task that may be repeated, for a while, and return the call's ID."""
    note(journal, call)
    await anyio.sleep(TASK_SECONDS)
    note(journal, f"{call}.ended")
    return call


TOOLS = ToolBox([work, work_long, ask, work_once, work_again])
