"""Restarts: what a process needs to run the task of an earlier one again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json, to_json

from bridge.tools.context import Caller, InvocationContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.tasks.store import TaskRecord
    from bridge.tools.tool import Tool

MAX_RUNS = 3
"""Maximum number of times that a task is started; its tool may be what ends the process."""


class Rerun(NamedTuple):
    """A call to run again."""

    arguments: Mapping[str, Any]
    context: InvocationContext
    """Its context, without the headers of the request, which may contain credentials."""


def may_run_again(tool: Tool, runs: int = 0) -> bool:
    """Return True if a further run of a tool is harmless, and it was started less than `MAX_RUNS` times."""
    hints = tool.trusted_annotations
    return runs < MAX_RUNS and bool(hints.idempotent or hints.read_only)


def rerun_request(arguments: Mapping[str, Any], context: InvocationContext) -> bytes:
    """Return a call as JSON; empty if JSON cannot express it."""
    caller = context.caller
    request = {
        "arguments": arguments,
        "capabilities": dict(context.client_capabilities),
        "meta": dict(context.meta),
        "caller": None
        if caller is None
        else {"name": caller.name, "scopes": sorted(caller.scopes), "claims": dict(caller.claims)},
    }
    try:
        return to_json(request)
    except ValueError:
        return b""


def read_rerun(record: TaskRecord) -> Rerun | None:
    """Return the call of a stored task; None if it must not be run again."""
    if not record.request:
        return None
    request = from_json(record.request)
    given = request["caller"]
    caller = None if given is None else Caller(given["name"], frozenset(given["scopes"]), given["claims"])
    context = InvocationContext(
        memory_id=None if caller is None else caller.name,
        caller=caller,
        client_capabilities=request["capabilities"],
        meta=request["meta"],
        account=record.account,
    )
    return Rerun(request["arguments"], context)
