"""Requests that are sent from the page: their progress, outcome and history."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Literal

import anyio
from pydantic_core import to_json

from bridge.client.connection.running_call import CallOptions
from bridge.client.connection.tasks import CANCEL_SECONDS
from bridge.client.output_schema import OutputSchema
from bridge.errors import ArgumentsError, ServerError, ServerRefusedError
from bridge.inspector.page_json import page_json
from bridge.inspector.questions import REQUEST_PARAMETER
from bridge.inspector.servers import estimated_tokens
from bridge.text import clip
from bridge.tools.channel import LocalChannel
from bridge.tools.context import InvocationContext
from bridge.wire.tasks import is_created_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from bridge.inspector.servers import InspectedServer
    from bridge.tools.channel import LogLevel
    from bridge.types import Json

METHODS = ("tools/call", "resources/read", "prompts/get", "events/poll")
"""Methods that the page may send."""
MAX_REQUESTS = 200
"""Maximum finished requests that are kept."""
MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of all parameters, answers and log messages that are kept."""
MAX_LOGS = 1_000
"""Maximum log messages of a request that are kept."""
MAX_LOG_BYTES = 4 * 1024 * 1024
"""Maximum bytes of these log messages."""
MAX_PROGRESS_CHARS = 1_000
"""Maximum characters of a progress message that are shown."""

_logger = logging.getLogger("bridge.inspector")

State = Literal["running", "done", "failed", "cancelled"]


@dataclass(slots=True, kw_only=True, eq=False)
class PageRequest:
    """One request."""

    number: int
    server: str
    method: str
    params: Json
    started_at: float
    """Time in seconds since 1970."""
    state: State = "running"
    """``failed`` also for a tool's result with ``isError``."""
    duration_ms: float | None = None
    progress: Json | None = None
    task: str | None = None
    """ID of the task that the server has made of the call."""
    logs: list[Json] = field(default_factory=list)
    answer: Json | None = None
    """``{"result": …}``, or ``{"error": …}`` with a message, and code and data of a JSON-RPC error."""
    warning: str | None = None
    """Violation of the tool's output schema; None for none."""
    size_bytes: int = 0
    """Bytes of the result as JSON."""
    tokens: int = 0
    """Estimated tokens of the result."""
    kept_bytes: int = 0
    """Bytes of the parameters, the log messages and the answer as JSON in ASCII."""
    log_bytes: int = 0
    """Those of the log messages."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def summary(self) -> Json:
        """The request without its answer, as JSON for the page."""
        return {
            "number": self.number,
            "server": self.server,
            "method": self.method,
            "params": self.params,
            "at": self.started_at,
            "state": self.state,
            "ms": self.duration_ms,
            "progress": self.progress,
            "task": None if self.task is None else clip(self.task, MAX_PROGRESS_CHARS),
            "logs": len(self.logs),
            "bytes": self.size_bytes,
            "tokens": self.tokens,
        }

    def whole(self) -> Json:
        """The request with its answer and log messages."""
        return {**self.summary(), "answer": self.answer, "logs": self.logs, "warning": self.warning}


class Requests:
    """Running requests, and the last finished ones.

    Args:
        tasks: Runs the requests.
        publish: Called with the summary of a request that has changed.
    """

    def __init__(self, tasks: TaskGroup, publish: Callable[[Json], None]) -> None:
        self._tasks = tasks
        self._publish = publish
        self._requests: deque[PageRequest] = deque()
        self._count = 0

    def start(self, server: InspectedServer, method: str, params: Json) -> PageRequest:
        """Send a request in the background."""
        self._count += 1
        request = PageRequest(number=self._count, server=server.name, method=method, params=params, started_at=time())
        self._requests.append(request)
        self._publish(request.summary())
        self._tasks.start_soon(self._run, server, request)
        return request

    def get(self, number: int) -> PageRequest | None:
        """Return a request by its number; None if it is forgotten."""
        return next((request for request in self._requests if request.number == number), None)

    def summaries(self) -> list[Json]:
        """All requests without their answers, the oldest first."""
        return [request.summary() for request in self._requests]

    def clear(self) -> None:
        """Forget all finished requests."""
        self._requests = deque(request for request in self._requests if request.state == "running")

    async def _run(self, server: InspectedServer, request: PageRequest) -> None:
        channel = _PageChannel(request, self._publish, peer=self)
        context = InvocationContext(channel=channel, parameters={REQUEST_PARAMETER: request.number})
        begun = perf_counter()
        state: State = "cancelled"
        with request.scope:
            state = await self._send(server, request, context)
        request.duration_ms = (perf_counter() - begun) * 1000
        request.kept_bytes = len(page_json(request.params)) + len(page_json(request.answer)) + request.log_bytes
        request.state = state  # last, since the page then fetches the answer
        self._forget()
        self._publish(request.summary())

    async def _send(self, server: InspectedServer, request: PageRequest, context: InvocationContext) -> State:
        """Send a request and store its answer; returns its final state."""
        params = request.params
        try:
            if request.method == "tools/call":
                result = await server.connection.call_tool(
                    params["name"], params["arguments"], context=context, options=CallOptions(hands_on_tasks=True)
                )
                if is_created_task(result):
                    result = await self._finished(server, request, result["taskId"], context)
            else:
                result = await server.connection.request(request.method, params, context=context)
        except ServerRefusedError as error:
            request.answer = {"error": {"code": error.code, "message": error.message, "data": error.data}}
            return "failed"
        except (ServerError, ArgumentsError) as error:
            request.answer = {"error": {"message": str(error)}}
            return "failed"
        except Exception as error:
            _logger.exception("internal error: a request of the page failed")
            request.answer = {"error": {"message": f"an error in bridge: {error!r}"}}
            return "failed"
        request.answer = {"result": result}
        request.size_bytes, request.tokens = len(to_json(result)), estimated_tokens(_for_model(result))
        request.warning = await _violation(server, request, result)
        return "failed" if result.get("isError") is True else "done"

    async def _finished(
        self, server: InspectedServer, request: PageRequest, task_id: str, context: InvocationContext
    ) -> Json:
        """Wait for the result of a task, which is cancelled with the request."""
        request.task = task_id
        self._publish(request.summary())
        try:
            return await server.connection.task_result(task_id, context=context)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(ServerError):
                await server.connection.request("tasks/cancel", {"taskId": task_id})
            raise

    def _forget(self) -> None:
        finished = [request for request in self._requests if request.state != "running"]
        size_bytes = sum(request.kept_bytes for request in finished)
        for request in finished[:-1]:  # the last one stays, whatever its size
            if len(self._requests) <= MAX_REQUESTS and size_bytes <= MAX_BYTES:
                return
            size_bytes -= request.kept_bytes
            self._requests.remove(request)


class _PageChannel(LocalChannel):
    """Receives the progress and log messages of a request.

    Args:
        request: The request.
        publish: Called with the summary of the request when it has changed.
        peer: Identifies the page as the one client, whose abandoned requests do not prevent further questions.
    """

    has_listener = True

    def __init__(self, request: PageRequest, publish: Callable[[Json], None], peer: object) -> None:
        self._request = request
        self._publish = publish
        self._peer = peer

    @property
    def peer(self) -> object:
        return self._peer

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Show the progress."""
        shown = message if message is None else clip(message, MAX_PROGRESS_CHARS)
        self._request.progress = {"progress": progress, "total": total, "message": shown}
        self._publish(self._request.summary())

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Keep the message; further ones are dropped."""
        request, message = self._request, {"level": level, "data": data, "logger": logger}
        if len(request.logs) >= MAX_LOGS:
            return
        size_bytes = len(page_json(message))
        if request.log_bytes + size_bytes <= MAX_LOG_BYTES:
            request.logs.append(message)
            request.log_bytes += size_bytes
            self._publish(request.summary())


def _for_model(result: Json) -> Any:
    """Part of a result that a model reads: its content, or else its structured content."""
    return result.get("content") or result.get("structuredContent") or result


async def _violation(server: InspectedServer, request: PageRequest, result: Json) -> str | None:
    """Describe how structured content violates its output schema."""
    tool = server.tool(request.params["name"]) if request.method == "tools/call" else None
    schema = None if tool is None else tool.get("outputSchema")
    if not isinstance(schema, dict) or result.get("isError") is True:
        return None
    if "structuredContent" not in result:
        return "there is no structured content, which the output schema requires"
    problem = await OutputSchema(schema, f"the tool {request.params['name']!r}").problem(result["structuredContent"])
    return None if problem is None else f"the structured content does not match the output schema: {problem}"
