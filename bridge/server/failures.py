"""Failures outside of the code of a tool, resource or prompt: logged here, and answered without their text."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import anyio

from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from bridge.server.running_calls import RunningCalls

_logger = logging.getLogger("bridge.server")
_Raised = TypeVar("_Raised", bound=BaseException)


def failed(name: str, error: BaseException, request_id: str | None = None) -> ProtocolError:
    """Log the error of a request, whose records have an id or None, and return the one for the client."""
    message = "the request for %r failed outside of its code"
    _logger.error(message, name, exc_info=error, extra={"request_id": request_id})
    return ProtocolError(INTERNAL_ERROR, f"the request for {name!r} failed; the server's log says why")


def reported(name: str, error: BaseException, running: RunningCalls, request_id: str | None) -> BaseException:
    """Log an error from outside of the code, and return the one to raise: questions and cancellations as they are.

    Args:
        name: Name of the target of the request.
        error: The error.
        running: The running calls.
        request_id: Id of the request in records; None for none.
    """
    if isinstance(error, InputRequired):
        return error
    if isinstance(error, CallRefused):
        return error.error
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, Exception):
        # A tool asked from inside a task group, which wraps its questions.
        return _unwrapped(name, error, request_id)
    if isinstance(error, anyio.get_cancelled_exc_class()):
        reason = running.reason_of_end()
        return error if reason is None else ProtocolError(INTERNAL_ERROR, reason.format(name=name))
    return failed(name, error, request_id)  # a library's panic must not end the session, either


def _unwrapped(name: str, group: BaseExceptionGroup[BaseException], request_id: str | None) -> BaseException:
    refused, _ = group.split(CallRefused)
    if refused is not None:
        return _leaves(refused)[0].error
    asked, others = group.split(InputRequired)
    if asked is None:
        return failed(name, group, request_id)
    if others is not None:
        return failed(name, others, request_id)
    questions = {key: question for error in _leaves(asked) for key, question in error.questions.items()}
    return InputRequired(questions)


def _leaves(group: BaseExceptionGroup[_Raised]) -> list[_Raised]:
    return [
        leaf
        for error in group.exceptions
        for leaf in (_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]
