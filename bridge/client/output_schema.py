"""Output schemas: structured content against what its tool declares (MCP, Structured Content).

A server writes both, so the work is bounded: what is small is judged at once, the rest in a worker thread, and what
needs too many steps is not judged.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from bridge.client.bounded_schema import BoundedSchema, Steps, UnjudgedError
from bridge.client.plain_schema import proof_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.plain_schema import Proof

_logger = logging.getLogger("bridge.client")

MAX_STEPS = 200_000
"""How much work a judgement may take: a second or some, in a worker thread."""
MAX_SECONDS = 5.0
"""How long a result waits for its judgement; the thread ends by the bound on its work."""
_PROOF_STEPS_A_STEP = 20
"""How many steps of the quick proof take as long as one of the general validator."""
_STEPS_AT_ONCE = 20_000
"""How much of the quick proof is done in the event loop: a few milliseconds."""
_KEYWORDS_AT_ONCE = 500
"""How many steps of the general validator are done there: likewise."""
_MAX_WARNINGS = 3
_SMALL_VALUES = 200
_SMALL_CHARS = 10_000


class OutputSchema:
    """A remote tool's output schema. It is compiled when it is first needed, and nothing is fetched for it.

    Args:
        schema: The JSON Schema, in the draft that it names; 2020-12 where it names none.
        owner: The tool, for the log.
        refuses_unjudged: Whether a value that cannot be judged within the bounds counts as wrong.
        max_steps: How much work a judgement may take.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        owner: str,
        *,
        refuses_unjudged: bool = False,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self._schema = dict(schema)
        self._owner = owner
        self._refuses_unjudged = refuses_unjudged
        self._max_steps = max_steps
        self._bounded: BoundedSchema | None = None
        self._unusable: str | None = None
        self._warned: set[str] = set()

    async def problem(self, value: Any) -> str | None:
        """What is wrong with a value, in words; None where nothing is, or where that cannot be said in time."""
        with suppress(UnjudgedError, RecursionError):  # then it is too large to be judged at once
            if self._proof is not None and self._proof(value, Steps(_STEPS_AT_ONCE)):
                return None
            if self._bounded is not None and _is_small(value):
                return self._bounded.problem(value, _KEYWORDS_AT_ONCE)
        if (reason := self._unusable) is None:
            reason = f"it takes more than {MAX_SECONDS:g} seconds"
            judge = partial(self._judge, value)
            try:
                with anyio.move_on_after(MAX_SECONDS):
                    return await anyio.to_thread.run_sync(judge, abandon_on_cancel=True, limiter=self._one_at_a_time)
            except UnjudgedError as error:
                reason = str(error)
        if reason not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(reason)
            _logger.warning("%s: its output schema cannot be used for all results: %s", self._owner, reason)
        return f"it cannot be judged: {reason}" if self._refuses_unjudged else None

    def _judge(self, value: Any) -> str | None:
        """Judge a value, in a worker thread.

        Raises:
            UnjudgedError: It takes more than the steps, or the schema cannot be used.
        """
        with suppress(RecursionError):
            if self._proof is not None and self._proof(value, Steps(_PROOF_STEPS_A_STEP * self._max_steps)):
                return None
        if self._bounded is None:
            try:
                self._bounded = BoundedSchema(self._schema)
            except UnjudgedError as error:
                self._unusable = str(error)
                raise
        return self._bounded.problem(value, self._max_steps)

    @cached_property
    def _one_at_a_time(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(1)

    @cached_property
    def _proof(self) -> Proof | None:
        return proof_of(self._schema)


def _is_small(value: Any) -> bool:
    values, chars, level = 0, 0, [value]
    while level:
        inner: list[Any] = []
        for each in level:
            if isinstance(each, str):
                chars += len(each)
            elif isinstance(each, dict | list):
                values += len(each)
                if values > _SMALL_VALUES:
                    return False
                inner.extend(each.values() if isinstance(each, dict) else each)
        level = inner
    return chars <= _SMALL_CHARS
