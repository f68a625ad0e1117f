"""Blocking versions of a context's methods, for functions that run in a worker thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from bridge.portal import run_in_loop
from bridge.tools.session import BlockingSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.tools.channel import LogLevel
    from bridge.tools.questions import (
        Answer,
        ElicitationAnswer,
        Question,
        Root,
        SamplingAnswer,
        SamplingMessage,
        SamplingOptions,
    )

_T = TypeVar("_T")


class BlockingContext:
    """Blocking versions of `InvocationContext`'s methods for functions in a worker thread."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:  # an `InvocationContext`, whose module imports this one
        self._context = context

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """See `InvocationContext.progress`."""
        run_in_loop(self._context.progress, progress, total, message)

    def start_task(self) -> None:
        """See `InvocationContext.start_task`."""
        run_in_loop(self._context.start_task)

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """See `InvocationContext.log`."""
        run_in_loop(self._context.log, level, data, logger)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """See `InvocationContext.notify`."""
        run_in_loop(self._context.notify, method, params or {})

    def close_stream(self) -> None:
        """See `InvocationContext.close_stream`."""
        run_in_loop(self._context.close_stream)

    def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """See `InvocationContext.ask`."""
        answers: Mapping[str, Answer] = run_in_loop(self._context.ask, questions)
        return answers

    @overload
    def elicit(self, message: str, schema: type[_T], *, key: str | None = None) -> ElicitationAnswer[_T]: ...
    @overload
    def elicit(
        self, message: str, schema: Mapping[str, Any] | None, *, key: str | None = None
    ) -> ElicitationAnswer[dict[str, Any]]: ...
    @overload
    def elicit(self, message: str, schema: object, *, key: str | None = None) -> ElicitationAnswer: ...
    def elicit(self, message: str, schema: object, *, key: str | None = None) -> ElicitationAnswer:
        """See `InvocationContext.elicit`."""
        answer: ElicitationAnswer = run_in_loop(lambda: self._context.elicit(message, schema, key=key))
        return answer

    def sample(
        self,
        messages: Sequence[SamplingMessage],
        *,
        max_tokens: int,
        key: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> SamplingAnswer:
        """See `InvocationContext.sample`."""
        answer: SamplingAnswer = run_in_loop(
            lambda: self._context.sample(messages, max_tokens=max_tokens, key=key, **options)
        )
        return answer

    def roots(self, *, key: str | None = None) -> tuple[Root, ...]:
        """See `InvocationContext.roots`."""
        roots: tuple[Root, ...] = run_in_loop(lambda: self._context.roots(key=key))
        return roots

    @property
    def session(self) -> BlockingSession:
        """See `InvocationContext.session`."""
        return BlockingSession(lambda: self._context.session)
