"""Restarts: what a process needs to run the task of an earlier one again."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json, to_json

from bridge.tools.caller import Caller
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.tasks.store import TaskRecord
    from bridge.tools.tool import Tool

_logger = logging.getLogger("bridge.server")

_NOTHING: Mapping[str, str] = {}
MAX_RUNS = 3
"""Maximum number of times that a task is started; its tool may be what ends the process."""


_SECRET = re.compile(r"auth|cookie|credential|key|password|secret|session|signature|token")


class Rerun(NamedTuple):
    """A call to run again."""

    arguments: Mapping[str, Any]
    context: InvocationContext
    """Its context, with the headers that `rerun_request` was given."""
    trace: Mapping[str, str]
    """Trace context of the request that created the task; empty without one."""


def may_run_again(tool: Tool, runs: int = 0) -> bool:
    """Return True if a further run of a tool is harmless, and it was started less than `MAX_RUNS` times."""
    hints = tool.trusted_annotations
    return runs < MAX_RUNS and bool(hints.idempotent or hints.read_only)


def headers_to_keep(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request whose names do not tell of credentials."""
    return {name: value for name, value in headers.items() if _SECRET.search(name.lower()) is None}


def rerun_request(
    arguments: Mapping[str, Any],
    context: InvocationContext,
    headers: Mapping[str, str] = _NOTHING,
    trace: Mapping[str, str] = _NOTHING,
) -> bytes:
    """Return a call as JSON; empty if JSON cannot express it.

    Args:
        arguments: Its arguments.
        context: Its context.
        headers: Headers of the request to keep, which should contain no credentials.
        trace: Trace context of the request.
    """
    request = {
        "arguments": arguments,
        "capabilities": dict(context.client_capabilities),
        "meta": dict(context.meta),
        "request_id": context.request_id,
        "headers": dict(headers),
        "trace": dict(trace),
        "parameters": dict(context.parameters),
        "caller": None if context.caller is None else _written(context.caller),
    }
    try:
        return to_json(request)
    except ValueError:
        return b""


def _written(caller: Caller) -> dict[str, Any]:
    return {
        "name": caller.name,
        "scopes": sorted(caller.scopes),
        "claims": dict(caller.claims),
        "issuer": caller.issuer,
        "subject": caller.subject,
        "team": caller.team,
    }


def read_rerun(record: TaskRecord) -> Rerun | None:
    """Return the call of a stored task; None if it must not be run again."""
    if not record.request:
        return None
    try:
        request = from_json(record.request)
        given = request["caller"]
        caller = None if given is None else Caller(**given | {"scopes": frozenset(given["scopes"])})
        context = InvocationContext(
            memory_id=None if caller is None else caller.name,
            caller=caller,
            client_capabilities=request["capabilities"],
            meta=request["meta"],
            request_id=request.get("request_id"),
            headers=request.get("headers", {}),
            parameters=request.get("parameters", {}),
            account=record.account,
        )
        return Rerun(request["arguments"], context, request.get("trace", {}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # written by another version
        _logger.error("a stored task of %r cannot be run: %r", record.tool, error)  # noqa: TRY400 - it says why
        return None
