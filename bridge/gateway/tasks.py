"""Tasks of servers, passed on to the callers of a gateway.

A caller gets an ID that leads back to the server: the names of the gateway, the server and the caller, and the ID
there, encrypted with the key of ``requestState``, without an expiry. The gateway keeps nothing, so every replica with
that name and key answers for the task, and so does the next process.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import from_json, to_json

from bridge.errors import ServerError, ServerRefusedError, WireError
from bridge.portal import start_detached
from bridge.protocol.messages import ProtocolError
from bridge.protocol.rounds import StateSeal, binding
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS
from bridge.server.tasks.answers import checked_answers
from bridge.server.tasks.stored_tasks import owner_of
from bridge.text import clip, short_repr
from bridge.tools.tool import ToolExecutionResult
from bridge.wire.tasks import created_task_to_wire, task_from_wire
from bridge.wire.tools import ReceivedResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bridge.client.provider import McpToolProvider
    from bridge.tools.context import InvocationContext
    from bridge.tools.task import Task
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Json

_PREFIX = "gateway."
_MAX_MESSAGE_CHARS = 1000
_MAX_MENTIONS = 3
_UNLIMITED_SECONDS = 1e12
_MAX_MISFITS = 1000
_BOUND = binding("task of a gateway")


class CreatedTask(ReceivedResult):
    """Task of a server, as the answer to a call."""

    __slots__ = ()

    def read(self) -> ToolExecutionResult:
        """Convert it to a result."""
        return ToolExecutionResult.of_text("the call goes on as a task of its server")

    def passed_on(self) -> ReceivedResult:
        """Return a copy for a client."""
        return ReceivedResult.of(dict(self))


class GatewayTasks:
    """The tasks of a gateway's servers; see `bridge.server.forwarded.ForwardedTasks`.

    Args:
        provider: The servers.
    """

    def __init__(self, provider: McpToolProvider) -> None:
        self._provider = provider
        self._misfits: dict[tuple[str, str], None] = {}
        """Tasks and keys of answers that did not fit."""
        self.bind("", None)

    def bind(self, audience: str, keys: Sequence[bytes] | None) -> None:
        """Take the gateway's name, and its keys, of which the first one encrypts; None for a random key."""
        self._audience = audience
        self._seal = StateSeal(keys, "", _UNLIMITED_SECONDS)  # an ID of another gateway is refused by its name

    def within(self, tools: ToolBox) -> GatewayTasks:
        """Return the tasks of these tools alone, now and after later changes."""
        return _TasksOfTools(self._provider, self, tools)

    def created(self, wire: Json, server: str, context: InvocationContext, tool: str = "") -> CreatedTask:
        """Return the answer to a call of which its server has made a task, given its server and the tool.

        Raises:
            WireError: It is no valid task.
        """
        task = task_from_wire(wire)
        owner = owner_of(context.caller)
        state = {"gateway": self._audience, "server": server, "tool": tool, "task": task.id, "owner": owner}
        sealed = self._seal.seal(state, _BOUND)
        created = CreatedTask(created_task_to_wire(replace(task, id=_PREFIX + sealed)))
        created.text = None
        return created

    def has(self, task_id: str) -> bool:
        """Return True if an ID may be one of `created`."""
        return task_id.startswith(_PREFIX)

    async def get(self, task_id: str, context: InvocationContext) -> Task:
        """Return a task, with the ID that its caller knows."""
        server, wire = await self._send("tasks/get", task_id, context)
        try:
            task = replace(task_from_wire(wire), id=task_id)
        except WireError as error:
            message = f"the response of the server {server!r} is not valid MCP: {error}"
            raise ProtocolError(INTERNAL_ERROR, message) from error
        return replace(task, outcome=self._localized(server, task.outcome)) if task.status == "completed" else task

    def tool_of(self, task_id: str, context: InvocationContext) -> str:
        """Return the name of the tool whose call is a task; empty for a task of an earlier version."""
        tool: str = self.opened(task_id, context).get("tool", "")
        return tool

    async def update(self, task_id: str, context: InvocationContext, answers: Mapping[str, Json]) -> None:
        """Pass answers on that fit the open questions of the task.

        One that does not is refused for the first time at this replica, and its question stays open; then it counts as
        declined.

        Raises:
            ProtocolError: An answer does not fit, or the server refuses.
        """
        questions = (await self.get(task_id, context)).questions

        async def is_first_misfit(key: str) -> bool:
            misfit = task_id, key
            is_first = misfit not in self._misfits
            self._misfits[misfit] = None
            if len(self._misfits) > _MAX_MISFITS:
                del self._misfits[next(iter(self._misfits))]
            return is_first

        checked = await checked_answers(questions, answers, is_first_misfit)
        await self._send("tasks/update", task_id, context, inputResponses={**answers, **checked})

    async def cancel(self, task_id: str, context: InvocationContext) -> None:
        """Cancel a task."""
        await self._send("tasks/cancel", task_id, context)

    def watch(
        self, task_ids: Iterable[str], context: InvocationContext, listener: Callable[[str], None]
    ) -> Callable[[], None]:
        """Call a function after each change, which is found by polling as often as the server suggests."""
        scope = anyio.CancelScope()

        async def follow(task_id: str) -> None:
            last: Task | None = None
            while last is None or not last.is_final:
                try:
                    task = await self.get(task_id, context)
                except ProtocolError as error:
                    if error.code == INVALID_PARAMS:
                        break
                else:
                    # The first state may be later than the one that the client knows.
                    if task != last and (last is not None or task.status != "working"):
                        listener(task_id)
                    last = task
                await anyio.sleep(1.0 if last is None else last.poll_interval_seconds)

        async def run() -> None:
            with scope:
                async with anyio.create_task_group() as tasks:
                    for task_id in task_ids:
                        tasks.start_soon(follow, task_id)

        start_detached(run, "subscription to tasks of servers")
        return scope.cancel

    async def _send(self, method: str, task_id: str, context: InvocationContext, **params: Any) -> tuple[str, Json]:
        """Send a request about a task; return the name of its server, and the response."""
        state = self.opened(task_id, context)
        name, upstream_id = state["server"], state["task"]
        server = self._provider.upstreams.get(name)
        if server is None:
            raise ProtocolError(INTERNAL_ERROR, f"the server {name!r} of the task is not configured any more")
        try:
            return name, await server.request(method, {"taskId": upstream_id, **params}, context)
        except ServerRefusedError as error:
            if error.code != INVALID_PARAMS:
                raise ProtocolError(error.code, error.brief, error.data) from error
            message = server.config.transport.scrub(clip(error.message, _MAX_MESSAGE_CHARS))
            raise ProtocolError(INVALID_PARAMS, _with_id(message, upstream_id, task_id)) from error
        except ServerError as error:
            raise ProtocolError(INTERNAL_ERROR, error.brief) from error

    def opened(self, task_id: str, context: InvocationContext) -> Json:
        """Return what an ID contains: the server, and the ID there.

        Raises:
            ProtocolError: The ID is not one of this gateway, or is that of another caller's task.
        """
        state = self._seal.opened(task_id.removeprefix(_PREFIX), _BOUND)
        if state is None or state["owner"] != owner_of(context.caller):
            raise _unknown(task_id)
        if (gateway := state["gateway"]) != self._audience:
            message = f"the task {short_repr(task_id)} is one of the gateway {gateway!r}, not of {self._audience!r}"
            raise ProtocolError(INVALID_PARAMS, message)
        return state

    def _localized(self, server: str, outcome: bytes) -> bytes:
        """Return a result with the local URIs of resources."""
        uris = self._provider.resources.uris
        if uris.are_unchanged or b'"resource' not in outcome:
            return outcome
        result: Json = from_json(outcome)
        if isinstance(content := result.get("content"), list):
            result["content"] = [uris.localized_json(server, block) for block in content]
        return to_json(result, inf_nan_mode="null")


class _TasksOfTools(GatewayTasks):
    """The tasks of a gateway whose tools are among some, with the IDs that they have there."""

    def __init__(self, provider: McpToolProvider, tasks: GatewayTasks, tools: ToolBox) -> None:
        self._tasks, self._tools = tasks, tools
        super().__init__(provider)

    def bind(self, audience: str, keys: Sequence[bytes] | None) -> None:
        """Do nothing, because the tasks are bound to their gateway."""

    def opened(self, task_id: str, context: InvocationContext) -> Json:
        """Return what an ID contains, if it is that of a task of these tools."""
        state = self._tasks.opened(task_id, context)
        tool = self._tools.find(state.get("tool", ""))
        if tool is None or tool.server != state["server"]:
            raise _unknown(task_id)
        return state


def _unknown(task_id: str) -> ProtocolError:
    message = f"there is no task {short_repr(task_id)}: the id is wrong, or that of another gateway or caller"
    return ProtocolError(INVALID_PARAMS, message)


def _with_id(message: str, upstream_id: str, task_id: str) -> str:
    """Replace the first mentions of a task's ID on its server, where it is no part of a word, by the caller's ID."""
    mention = rf"(?<![\w-]){re.escape(upstream_id)}(?![\w-])"
    return re.sub(mention, lambda _: task_id, message, count=_MAX_MENTIONS)
