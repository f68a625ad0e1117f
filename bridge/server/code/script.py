"""Script: one run of a script, its calls of tools, and their questions.

The script goes on while calls run, and waits only for values that it needs. In the modern era, a call may end with
questions. Once all calls that the script waits for have asked, its state is saved, the client carries it, encrypted,
and the next request continues the script after the call. So nothing in it runs twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from pydantic_core import to_json

from bridge.errors import ToolError, WireError
from bridge.protocol.messages import ProtocolError
from bridge.server.code.functions import arguments_of, value_of
from bridge.server.code.sandbox import SandboxError, folders_of_packages, sandbox
from bridge.text import with_count
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.content import Text
from bridge.tools.questions import InputRequired
from bridge.wire.questions import question_from_wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from bridge.server.code.functions import ToolFunctions
    from bridge.server.code.limits import CodeLimits
    from bridge.server.code.sandbox import Sandbox
    from bridge.tools.questions import Question, Resumption
    from bridge.types import Json

MAX_STATE_CHARS = 1_000_000
"""Maximum length of the state of a script whose tools ask, which its client carries."""
_MAX_CONCURRENT_CALLS = 16


class ScriptCalls(Protocol):
    """Makes the calls of one script."""

    def place(self) -> AbstractContextManager[None]:
        """Context in which the script runs.

        Raises:
            ToolError: Too many scripts run.
        """
        ...

    async def call(self, number: int, tool: str, arguments: Mapping[str, Any], answers: Json) -> Json:
        """Call a tool; return its result, which may ask its client in the modern era.

        Args:
            number: Number of the call in the script.
            tool: The tool's name.
            arguments: Its arguments, not validated.
            answers: Parameters that continue a call that has asked; empty for a new call.

        Raises:
            ToolError: The call was refused.
        """
        ...

    def ended(self, returned_chars: int) -> None:
        """Count the characters of results that the model does not read, given those that it reads."""
        ...


@dataclass(slots=True)
class _Call:
    """One call of a tool."""

    tool: str
    arguments: Json
    outcome: Json | None = None
    """Value or error for the interpreter; None while it runs or asks."""
    asked: Json | None = None
    """The result that asks the client."""
    answers: Json = field(default_factory=dict)
    """Parameters that continue it."""

    @property
    def is_running(self) -> bool:
        return self.outcome is None and self.asked is None


class Script:
    """One run of a script.

    Args:
        code: The script.
        functions: The tools that it may call.
        calls: Makes the calls.
        limits: Its limits.
    """

    def __init__(self, code: str, functions: ToolFunctions, calls: ScriptCalls, limits: CodeLimits) -> None:
        self._code = code
        self._functions = functions
        self._tool_calls = calls
        self._limits = limits
        self._calls: dict[int, _Call] = {}
        self._made = 0
        self._changed = anyio.Event()
        self._places = anyio.Semaphore(_MAX_CONCURRENT_CALLS)

    async def run(self, resumption: Resumption | None) -> ToolExecutionResult:
        """Run the script, or continue it.

        Raises:
            InputRequired: Tools ask the client, in the modern era.
            ToolError: The sandbox has failed.
        """
        used = self._functions.used_in(self._code)
        limits = self._limits
        start: Json = {
            "code": self._code,
            "functions": used,
            "stubs": self._functions.stubs(used),
            "printed": "",
            "path": folders_of_packages(),
            "maxSeconds": limits.max_seconds,
            "maxMemoryBytes": limits.max_memory_bytes,
            "maxCalls": limits.max_calls,
            "maxOutputChars": limits.max_output_chars,
        }
        if resumption is not None:
            start |= self._restored(resumption)
        try:
            with self._tool_calls.place():
                async with sandbox(limits) as process:
                    end = await self._serve(process, start)
        except SandboxError as error:
            end = {"crash": str(error)}
        if "crash" in end:
            raise ToolError(f"the sandbox of the script {end['crash']}{self._effects()}")
        if "snapshot" in end:
            raise self._suspended(end)
        result = self._result(end)
        self._tool_calls.ended(len(result.text))
        return result

    async def _serve(self, process: Sandbox, start: Json) -> Json:
        """Answer the messages of the process until its last one."""
        async with anyio.create_task_group() as self._tasks:
            for number, call in self._calls.items():
                if call.outcome is None:
                    self._tasks.start_soon(self._run, number, call)
            try:
                await process.send(start)
                while True:
                    message = await process.receive()
                    if "call" in message:
                        self._begin(message)
                    elif "wait" in message:
                        await process.send(await self._settled(message["wait"]))
                    else:
                        break
            except SandboxError as error:  # not out of the group, which would raise a group
                message = {"crash": str(error)}
            self._tasks.cancel_scope.cancel()
        return message

    def _effects(self) -> str:
        """Return a note on what remains of a script that did not end."""
        return f"; its {with_count(self._made, 'call')} of tools may have had effects" if self._made else ""

    def _begin(self, message: Json) -> None:
        """Begin a call."""
        number, tool = message["call"], self._functions[message["name"]]
        call = self._calls[number] = _Call(tool.name, {})
        self._made += 1
        if self._made > self._limits.max_calls:
            call.outcome = _error(f"a script may make {self._limits.max_calls} calls of tools")
            return
        try:
            call.arguments = arguments_of(tool, message["args"], message["kwargs"])
        except TypeError as error:
            call.outcome = _error(str(error), "TypeError")
            return
        self._tasks.start_soon(self._run, number, call)

    async def _run(self, number: int, call: _Call) -> None:
        """Make a call, or continue it with the client's answers."""
        try:
            specification = self._functions[self._functions.name_of(call.tool)]
        except KeyError:  # it was removed while its client was asked
            call.outcome = _error(f"there is no tool {call.tool!r} any more")
            self._changed.set()
            return
        try:
            async with self._places:
                result = await self._tool_calls.call(number, call.tool, call.arguments, call.answers)
            if result.get("resultType") == "input_required":
                call.asked = result
            else:
                call.outcome = {"return_value": value_of(specification, result)}
        except (ToolError, ProtocolError) as error:
            call.outcome = _error(str(error))
        self._changed.set()

    async def _settled(self, numbers: list[int]) -> Json:
        """Return the next message for a script that waits for calls."""
        while True:
            ended = [number for number in numbers if self._calls[number].outcome is not None]
            if ended:
                return {"settle": [{"id": number, "outcome": self._calls.pop(number).outcome} for number in ended]}
            if not any(call.is_running for call in self._calls.values()):
                return {"suspend": True}
            self._changed = anyio.Event()
            await self._changed.wait()

    # --- questions of the modern era ----------------------------------------------------------------------------------

    def _suspended(self, end: Json) -> InputRequired | ToolError:
        """Return the questions of the calls, with the state that continues the script."""
        questions: dict[str, Question] = {}
        calls: Json = {}
        for number, call in self._calls.items():
            asked = call.asked
            kept: Json = {"tool": call.tool, "arguments": call.arguments, "outcome": call.outcome}
            calls[str(number)] = kept
            if asked is None:
                continue
            kept["state"], kept["keys"] = asked.get("requestState"), list(asked.get("inputRequests", {}))
            try:
                for key, wire in asked.get("inputRequests", {}).items():
                    questions[f"{number}.{key}"] = question_from_wire(wire)
            except WireError as error:
                return ToolError(f"the tool {call.tool!r} asks what cannot be passed on: {error}")
        state = {"snapshot": end["snapshot"], "printed": end["printed"], "made": self._made, "calls": calls}
        if (length := len(to_json(state))) > MAX_STATE_CHARS:
            return ToolError(
                "the script was ended: a tool asks the user, and it holds too much data to wait for the answer, "
                f"{length} characters of at most {MAX_STATE_CHARS}{self._effects()}"
            )
        return InputRequired(questions, state)

    def _restored(self, resumption: Resumption) -> Json:
        """Restore the calls of an earlier round; return what continues the interpreter."""
        state = resumption.state
        self._made = state["made"]
        for number, kept in state["calls"].items():
            call = self._calls[int(number)] = _Call(kept["tool"], kept["arguments"], kept["outcome"])
            if call.outcome is None:
                given = {key: resumption.answers.get(f"{number}.{key}") for key in kept["keys"]}
                call.answers["inputResponses"] = {key: answer for key, answer in given.items() if answer is not None}
                if kept["state"] is not None:
                    call.answers["requestState"] = kept["state"]
        return {"snapshot": state["snapshot"], "printed": state["printed"]}

    # --- the result ---------------------------------------------------------------------------------------------------

    def _result(self, end: Json) -> ToolExecutionResult:
        """Return the result for the model."""
        printed = end["printed"]
        texts = [f"printed:\n{printed}"] if printed else []
        if "error" in end:
            headline = f"the script failed{self._effects()}:" if end.get("began", True) else "the script was not run:"
            return ToolExecutionResult.error("\n\n".join([f"{headline}\n{end['error']}", *texts]))
        value = end["value"]
        if value is not None or not texts:
            texts.insert(0, value if isinstance(value, str) else to_json(value).decode())
        if unfinished := [call.tool for call in self._calls.values() if call.outcome is None]:
            texts.append(f"cancelled, since the script ended without awaiting them: {', '.join(unfinished)}")
        return ToolExecutionResult(tuple(map(Text, texts)))


def _error(message: str, kind: str = "RuntimeError") -> Json:
    return {"exc_type": kind, "message": message}
