"""The answer of an invocation: a reply in the method's return type, accepted by the output guardrails.

A reply that does not match the type is sent back to the model once. Neither this correction nor an answer that a
guardrail did not accept is stored in the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import ReplyError
from bridge.service.guardrails.messages import OutputGuardrailRequest
from bridge.service.guardrails.outcomes import Reprompt
from bridge.service.messages import AiMessage, UserMessage
from bridge.service.structured import ReplyMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.service.guardrails.messages import HeldAnswer
    from bridge.service.interface import ServiceMethod
    from bridge.service.loop import Invocation
    from bridge.tools.tool import ToolExecution

_SEPARATOR = "\n"


async def answer_of(invocation: Invocation, held: HeldAnswer | None) -> Any:
    """Return the method's result, once it has the return type and the output guardrails accept it.

    Args:
        invocation: An invocation that has run; it runs again if another answer is required.
        held: Holds back the answer of a stream.

    Raises:
        ReplyError: The reply does not match the method's return type.
        GuardrailError: A guardrail refused the answer.
        BaseException: See `Invocation.run`.
    """
    method = invocation.call.method
    guardrails, view = method.guardrails, invocation.view
    content = await _content(invocation, method)
    attempt = 1
    while guardrails.output:
        answer = AiMessage(_text_of(invocation.immediate)) if invocation.immediate else None
        request = OutputGuardrailRequest(
            message=answer or invocation.responses[-1].message,
            value=content,
            user_message=invocation.call.message,
            messages=view.messages()[: None if answer else -1],
            tool_executions=tuple(invocation.executions),
            attempt=attempt,
            context=invocation.call.context,
            method=method.source,
        )
        outcome = await guardrails.check_output(request, method.read)
        if isinstance(outcome, OutputGuardrailRequest):
            is_rewritten = outcome.message is not request.message
            if is_rewritten and answer is None:
                invocation.rewrite_answer(outcome.message)
            if held is not None:
                await held.release(outcome.message, is_rewritten=is_rewritten)
            return outcome.value
        if isinstance(outcome, Reprompt):
            view.correct(UserMessage.of(outcome.text), wrong=answer is None)
        elif answer is None:
            view.retract()
        if held is not None:
            held.discard()
        attempt += 1
        await invocation.run()
        content = await _content(invocation, method)
    return content


async def _content(invocation: Invocation, method: ServiceMethod) -> Any:
    """Return the method's result; a mismatching reply is sent back to the model once."""
    try:
        return _parsed(invocation, method)
    except ReplyMismatchError as mismatch:
        correction = UserMessage.of(
            f"Your reply is not what was asked for: {mismatch}. Reply again, with nothing but JSON by the schema."
        )
    invocation.view.correct(correction)
    await invocation.run()
    try:
        return _parsed(invocation, method)
    except ReplyMismatchError as error:
        second = error
    last, is_checked = invocation.responses[-1], bool(method.guardrails.output)
    problem = "it is not shown, since output guardrails cannot check it" if is_checked else second
    raise ReplyError(
        f"the model's reply is not what {method.source} returns, and it was asked twice: {problem} "
        f"(finish reason {last.finish_reason.value!r})",
        "" if is_checked else last.message.text or "",
    ) from (None if is_checked else second)


def _parsed(invocation: Invocation, method: ServiceMethod) -> Any:
    if invocation.immediate:
        return _immediate(invocation.immediate, method)
    return method.read(invocation.responses[-1].message.text or "")


def _immediate(executions: Sequence[ToolExecution], method: ServiceMethod) -> Any:
    """Return the results of tools as the answer: their text, or the last data that matches the return type."""
    if method.reader is None:
        return _text_of(executions)
    for execution in reversed(executions):
        structured = execution.result.structured_content
        for data in (structured, structured.get("result") if isinstance(structured, dict) else None):
            fits, value = method.reader.fits(data)
            if fits and data is not None:
                return value
    return None


def _text_of(executions: Sequence[ToolExecution]) -> str:
    return _SEPARATOR.join(execution.result.text for execution in executions)
