"""Listeners to changes of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class TaskListeners:
    """Functions that are called with a task's id after each change of its state."""

    def __init__(self) -> None:
        self._functions: dict[str, set[Callable[[str], None]]] = {}

    def add(self, task_ids: Iterable[str], listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a function after changes of some tasks; return a function that ends that."""
        ids = tuple(task_ids)
        for each in ids:
            self._functions.setdefault(each, set()).add(listener)

        def end() -> None:
            for each in ids:
                functions = self._functions.get(each, set())
                functions.discard(listener)
                if not functions:
                    self._functions.pop(each, None)

        return end

    def notify(self, task_id: str) -> None:
        """Call the functions for a task."""
        for function in tuple(self._functions.get(task_id, ())):
            function(task_id)

    def notify_all(self) -> None:
        """Call all functions, for tasks whose changes may have been missed."""
        for task_id in tuple(self._functions):
            self.notify(task_id)
