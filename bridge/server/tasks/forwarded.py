"""Tasks of other servers, which a gateway answers for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bridge.tools.context import InvocationContext
    from bridge.tools.task import Task
    from bridge.types import Json


class ForwardedTasks(Protocol):
    """Tasks of other servers. Whoever answers for them knows them by their IDs, and keeps nothing."""

    def bind(self, audience: str, keys: Sequence[bytes] | None) -> None:
        """Bind IDs to the server that answers for them.

        Args:
            audience: Its name; IDs of other servers are refused.
            keys: Its keys, which its replicas share; None to let IDs be valid in this process alone.
        """
        ...

    def has(self, task_id: str) -> bool:
        """Return True if an ID may be that of a forwarded task, and not of one of this server."""
        ...

    async def get(self, task_id: str, context: InvocationContext) -> Task:
        """Return a task.

        Raises:
            ProtocolError: There is no such task of this caller, or its server cannot be reached.
        """
        ...

    def tool_of(self, task_id: str, context: InvocationContext) -> str:
        """Return the name of the tool whose call is a task; empty if it is not known.

        Raises:
            ProtocolError: There is no such task of this caller.
        """
        ...

    async def update(self, task_id: str, context: InvocationContext, answers: Mapping[str, Json]) -> None:
        """Give a task answers to its questions.

        Raises:
            ProtocolError: As by `get`, or its server refuses the answers.
        """
        ...

    async def cancel(self, task_id: str, context: InvocationContext) -> None:
        """Cancel a task.

        Raises:
            ProtocolError: As by `get`.
        """
        ...

    def watch(
        self, task_ids: Iterable[str], context: InvocationContext, listener: Callable[[str], None]
    ) -> Callable[[], None]:
        """Call a function with a task's ID after each change of its state; return a function that ends that."""
        ...
