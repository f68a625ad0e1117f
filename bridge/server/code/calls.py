"""Calls of tools by a script: each is dispatched as a request of the script's caller, under the tool's own name.

So validation, scopes, limits, middleware, approval, audit and traces are those of a direct call.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.errors import ToolError
from bridge.server.channel import context_of
from bridge.server.code.tool import CALLS_PARAMETER, RUN_TOOL
from bridge.server.exchange import ServedExchange
from bridge.server.limits.shares import Shares
from bridge.telemetry import current
from bridge.tools.spill.usage import tokens_of_chars
from bridge.wire.received import write_result
from bridge.wire.tasks import without_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bridge.tools.spill.usage import Savings
    from bridge.types import Json

    Plan = Callable[[ServedExchange], bytes | ServedExchange]


class Scripts:
    """The requests of one server that run scripts.

    Args:
        plan: Plans requests of ``tools/call``; see `bridge.server.dispatch.Planner`.
        max_scripts: Maximum scripts that run at the same time.
        savings: Counts the tokens that models do not have to read.
    """

    def __init__(self, plan: Plan, max_scripts: int, savings: Savings) -> None:
        self.plan = plan
        self.places = Shares(max_scripts)
        self.savings = savings

    def planned(self, exchange: ServedExchange) -> bytes | ServedExchange:
        """Plan a request that calls the code tool, which can make calls then; the request becomes no task."""
        exchange.capabilities = without_tasks(exchange.capabilities)
        planned = self.plan(exchange)
        if planned is exchange:  # its round is known
            context_of(exchange).parameters[CALLS_PARAMETER] = ToolCalls(exchange, self)
        return planned


class ToolCalls:
    """Calls of tools during one request (`bridge.server.code.script.ScriptCalls`).

    Args:
        exchange: The request, which runs a script.
        scripts: The scripts of the server.
    """

    def __init__(self, exchange: ServedExchange, scripts: Scripts) -> None:
        self._exchange = exchange
        self._scripts = scripts
        self._reports = 0
        self._read_chars = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Context in which the script runs, among the other scripts of its caller."""
        places, account = self._scripts.places, self._exchange.origin.account
        if not places.has_room(account):
            raise ToolError(
                f"too many scripts run: a caller may use the places that are left of {places.places}; try again later"
            )
        with places.taking(account):
            yield

    def ended(self, returned_chars: int) -> None:
        """Count the characters of results that the model does not read, given those that it reads."""
        self._scripts.savings.add("code", RUN_TOOL, tokens_of_chars(max(0, self._read_chars - returned_chars)))

    async def call(self, number: int, tool: str, arguments: Mapping[str, Any], answers: Json) -> Json:
        """Call a tool; see `bridge.server.code.script.ScriptCalls`."""
        outer = self._exchange
        params: Json = {"name": tool, "arguments": arguments, **answers}
        if meta := dict(outer.meta):
            params["_meta"] = meta
        if (observer := current.observer()) is not None and observer.tracer is not None:
            observer.tracer.carry(params.setdefault("_meta", {}))
        call = _ScriptCall(outer, f"{outer.id}/{number}", params, lambda text: self._report(tool, text))
        try:
            message = self._scripts.plan(call)
            if isinstance(message, ServedExchange):
                with outer.running.entered(outer.origin.account):
                    message, _ = await call.responder.run(call)
        finally:
            call.end()
        self._read_chars += len(message)
        answer: Json = from_json(message)
        if "error" in answer:
            raise ToolError(answer["error"]["message"])
        result: Json = answer["result"]
        return result

    def _report(self, tool: str, text: str) -> bytes | None:
        self._reports += 1
        return self._exchange.progress(self._reports, None, f"{tool}: {text}")


class _ScriptCall(ServedExchange):
    """A call of a tool by a script; what it sends belongs to the request that runs the script."""

    is_of_script = True

    def __init__(
        self, outer: ServedExchange, call_id: str, params: Json, report: Callable[[str], bytes | None]
    ) -> None:
        super().__init__(
            call_id,
            outer.method,
            params,
            outer.version,
            outer.modern,
            without_tasks(outer.capabilities),
            outer.session,
            outer.origin,
            outer.running,
            write_result,
        )
        self.is_resolved = True
        self.connection = outer.connection
        self.open_outlet = outer.opened_outlet
        self._report = report

    def progress(self, progress: float, total: float | None, message: str | None) -> bytes | None:
        """Write progress of the request: the number of reports of all calls."""
        if self.is_over:
            return None
        of_total = "" if total is None else f" of {total:g}"
        return self._report(message or f"{progress:g}{of_total}")
