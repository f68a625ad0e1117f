"""Guardrails of tools: arguments and results, of functions and of tools of remote servers alike.

    def no_secrets(request: ToolOutputGuardrailRequest) -> Rewrite | None:
        return Rewrite(KEY.sub("***", request.text)) if KEY.search(request.text) else None

    tools = [guarded(read_file, output_guardrails=no_secrets)]

The model reads a refusal as the tool's error, and can call the tool again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError
from bridge.service.guardrails.outcomes import checked_guardrails, name_of, ruling
from bridge.text import short_repr
from bridge.tools.function import one_tool
from bridge.tools.tool import ToolExecutionResult

if TYPE_CHECKING:
    from bridge.service.guardrails.outcomes import InputOutcome
    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutor


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInputGuardrailRequest:
    """A call before the tool runs."""

    request: ToolExecutionRequest
    """The call, with its arguments as a mapping; they are not yet validated."""
    specification: ToolSpecification
    context: InvocationContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutputGuardrailRequest:
    """A result before the caller receives it."""

    request: ToolExecutionRequest
    """The call, with its arguments as a mapping."""
    result: ToolExecutionResult
    specification: ToolSpecification
    context: InvocationContext

    @property
    def text(self) -> str:
        """Text of the result."""
        return self.result.text


ToolInputGuardrail = Callable[[ToolInputGuardrailRequest], "InputOutcome | Awaitable[InputOutcome]"]
"""Checks a call; see `guarded`."""
ToolOutputGuardrail = Callable[[ToolOutputGuardrailRequest], "InputOutcome | Awaitable[InputOutcome]"]
"""Checks a result; see `guarded`."""


def guarded(
    source: object,
    *,
    input_guardrails: ToolInputGuardrail | tuple[ToolInputGuardrail, ...] | list[ToolInputGuardrail] = (),
    output_guardrails: ToolOutputGuardrail | tuple[ToolOutputGuardrail, ...] | list[ToolOutputGuardrail] = (),
) -> Tool:
    """Check the arguments and results of a tool.

    A guardrail returns None to accept, ``Rewrite(value)`` with other arguments or another result, or
    ``Refuse(reason)``. Exceptions of the tool are not checked; see `ExecutionPolicy.reveal_errors`.

    Args:
        source: A Tool or a function.
        input_guardrails: Check each call before the tool runs, in order.
        output_guardrails: Check each result, in order. The tool then publishes no output schema, since a guardrail may
            replace structured content by text.

    Raises:
        DefinitionError: The source is not one tool, or a guardrail is not a function of the request.
    """
    tool = one_tool(source)
    before = checked_guardrails(input_guardrails, "input_guardrails")
    after = checked_guardrails(output_guardrails, "output_guardrails")
    specification = replace(tool.specification, output_schema=None) if after else tool.specification
    return replace(
        tool, specification=specification, executor=_Guarded(tool.executor, tool.specification, before, after)
    )


@dataclass(frozen=True, slots=True)
class _Guarded:
    executor: ToolExecutor
    specification: ToolSpecification
    before: tuple[ToolInputGuardrail, ...]
    after: tuple[ToolOutputGuardrail, ...]

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        if self.before and isinstance(request.arguments, str):
            request = request.parsed()
        for check_input in self.before:
            call = ToolInputGuardrailRequest(request=request, specification=self.specification, context=context)
            rewrite = await ruling(check_input, call, f"the call of {request.name!r}")
            if rewrite is not None:
                request = replace(request, arguments=_arguments(check_input, rewrite.value))
        result = await self.executor.execute(request, context)
        for check_output in self.after:
            outcome = ToolOutputGuardrailRequest(
                request=request, result=result, specification=self.specification, context=context
            )
            rewrite = await ruling(check_output, outcome, f"the result of {request.name!r}")
            if rewrite is not None:
                result = _result(check_output, rewrite.value)
        return result


def _arguments(guardrail: object, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DefinitionError(
            f"the guardrail {name_of(guardrail)!r} rewrote the arguments to {short_repr(value)}; give a mapping"
        )
    return value


def _result(guardrail: object, value: Any) -> ToolExecutionResult:
    if isinstance(value, ToolExecutionResult):
        return value
    if not isinstance(value, str):
        raise DefinitionError(
            f"the guardrail {name_of(guardrail)!r} rewrote the result to {short_repr(value)}; give text or a "
            "ToolExecutionResult"
        )
    return ToolExecutionResult.of_text(value)
