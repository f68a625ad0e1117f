"""A client of tasks, which speaks the protocol as it is on the wire."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import httpx

from tests.server import http_server as http

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

SUPPORTS_TASKS: dict[str, Any] = {
    "elicitation": {"form": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
"""Capabilities of a client that supports tasks, and can ask its user."""
FINAL = {"completed", "failed", "cancelled"}
TIMEOUT_SECONDS = 20


class TaskClient:
    """A client of version 2026-07-28 over HTTP.

    Args:
        origin: Origin of the server.
        key: API key; None for none.
        capabilities: Capabilities that it declares.
        path: Path of the server.
    """

    def __init__(
        self, origin: str, key: str | None = None, capabilities: dict[str, Any] | None = None, path: str = "/mcp"
    ) -> None:
        self._url = f"{origin}{path}"
        self._capabilities = SUPPORTS_TASKS if capabilities is None else capabilities
        self._ids = count(1)
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._http = httpx.Client(timeout=TIMEOUT_SECONDS, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def send(self, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        """Send a request; return its result or error."""
        message, sent = self._request(method, params)
        answer = http.answer(self._http.post(self._url, json=message, headers=sent | headers))
        found: dict[str, Any] = answer.get("result") or answer["error"]
        return found

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        return self.send("tools/call", {"name": name, "arguments": arguments})

    def created(self, name: str, **arguments: Any) -> str:
        """Call a tool; return the id of the task."""
        result = self.call(name, **arguments)
        assert result.get("resultType") == "task", result
        task_id: str = result["taskId"]
        return task_id

    def get(self, task_id: str) -> dict[str, Any]:
        """Return the state of a task."""
        return self.send("tasks/get", {"taskId": task_id})

    def update(self, task_id: str, **answers: Any) -> dict[str, Any]:
        """Answer questions of a task."""
        return self.send("tasks/update", {"taskId": task_id, "inputResponses": answers})

    def cancel(self, task_id: str) -> dict[str, Any]:
        """Cancel a task."""
        return self.send("tasks/cancel", {"taskId": task_id})

    def states(self, *task_ids: str) -> Iterator[dict[str, Any]]:
        """The parameters of the notifications of a subscription: the acknowledgement, then states of tasks."""
        message, headers = self._request("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}})
        with self._http.stream("POST", self._url, json=message, headers=headers) as stream:
            for each in http.events(stream.iter_lines()):
                if "params" in each:
                    yield each["params"]

    def state(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Wait for a task to have one of some states; return it as of ``tasks/get``."""
        states = self.states(task_id)
        assert next(states)["notifications"] == {"taskIds": [task_id]}
        while (state := self.get(task_id))["status"] not in statuses:
            assert state["status"] not in FINAL, state
            next(states)
        states.close()  # type: ignore[attr-defined]  # a generator
        return state

    def settled(self, task_id: str) -> dict[str, Any]:
        """Wait for the end of a task; return it."""
        return self.state(task_id, *FINAL)

    def _request(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        message = http.modern(http.request(method, params, next(self._ids)), self._capabilities)
        headers = http.modern_headers(message)
        if "taskId" in params:
            headers["mcp-name"] = params["taskId"]
        return message, headers
