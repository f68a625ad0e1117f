"""Clients that call continuously, and the end of each call.

A call **had begun** if its ID is in the journal, to which the tool writes first. A call that was cut off before it had
begun is repeated with the same ID; a call that had begun never is. So the journal has one line for each ID, however the
call ended: with its own result, or, if its replica was killed, with an unknown outcome.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import httpx

from tests.server.cluster.speaking import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ACCEPT = {"accept": "application/json, text/event-stream"}
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_TIMEOUT_SECONDS = 60


class BrokeOffError(Exception):
    """An attempt without a response, or with one that says that the outcome is unknown."""


@dataclass(kw_only=True)
class Client:
    """One client, with its own name and connection pool.

    Attributes:
        answered: The results, by the call's ID.
        unknown: Calls that had begun, and whose outcome is unknown.
        strange: Messages for another client.
        again: Number of attempts that were cut off before they had begun.
    """

    name: str
    url: str
    journal: Path
    http: httpx.AsyncClient
    answered: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    again: int = 0
    _attempts: int = 0

    async def call(self, number: int) -> None:
        """Make one call, and repeat it as long as it has not begun."""
        call = f"{self.name}-{number}"
        while True:
            try:
                self.answered[call] = await self._attempt(call)
            except (BrokeOffError, httpx.TransportError):
                if self.runs()[call]:
                    self.unknown.append(call)
                    return
                self.again += 1
                await anyio.lowlevel.checkpoint()
            else:
                return

    def runs(self) -> Counter[str]:
        """Return the number of runs of each call, by the servers' journals."""
        return Counter(self.journal.read_text(encoding="utf-8").split()) if self.journal.exists() else Counter()

    async def _attempt(self, call: str) -> str:
        raise NotImplementedError

    def _message(self, tool: str, call: str, meta: dict[str, Any]) -> dict[str, Any]:
        self._attempts += 1
        arguments = {"journal": str(self.journal), "call": call}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        return {"jsonrpc": "2.0", "id": f"{call}.{self._attempts}", "method": "tools/call", "params": params}

    def _result(self, message: dict[str, Any], request: dict[str, Any]) -> str:
        if message.get("id") != request["id"]:
            self.strange.append(json.dumps(message))
        if "error" in message:
            if "unknown" not in message["error"]["message"]:
                self.strange.append(json.dumps(message))
            raise BrokeOffError(message["error"]["message"])
        text: str = message["result"]["content"][0]["text"]
        return text


class ModernClient(Client):
    """Client of the 2026-07-28 revision, without a session."""

    async def _attempt(self, call: str) -> str:
        request = self._message("work", call, ENVELOPE)
        headers = ACCEPT | {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "work"}
        response = await self.http.post(self.url, json=request, headers=headers, timeout=_TIMEOUT_SECONDS)
        _check(response)
        return self._result(response.json(), request)


class HandshakeClient(Client):
    """Client of an earlier revision: one session for all calls, some of which report progress or ask."""

    session: str = ""

    async def open(self) -> None:
        """Open the session."""
        info = {"name": self.name, "version": "1"}
        params = {"protocolVersion": VERSION, "capabilities": {"elicitation": {}}, "clientInfo": info}
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self.http.post(self.url, json=opening, headers=ACCEPT, timeout=_TIMEOUT_SECONDS)
        self.session = response.headers["mcp-session-id"]
        await self._say({"method": "notifications/initialized"})

    @property
    def _headers(self) -> dict[str, str]:
        return ACCEPT | {"mcp-session-id": self.session, "mcp-protocol-version": VERSION}

    async def _attempt(self, call: str) -> str:
        tool = ("work", "work_long", "ask")[self._attempts % 3]
        request = self._message(tool, call, {} if tool == "work" else {"progressToken": call})
        last = ""
        try:
            async with self.http.stream(
                "POST", self.url, json=request, headers=self._headers, timeout=_TIMEOUT_SECONDS
            ) as response:
                _check(response)
                if response.headers["content-type"] == "application/json":
                    return self._result(json.loads(await response.aread()), request)
                async for number, message in _events(response):
                    last = number
                    if message is not None and await self._is_answer(message, call):
                        return self._result(message, request)
        except httpx.TransportError:
            if not last:
                raise
        if not last:
            raise BrokeOffError("the stream ended before it began")
        return await self._resumed(last, call, request)

    async def _resumed(self, place: str, call: str, request: dict[str, Any]) -> str:
        """Resume the stream where it broke off."""
        while True:
            answer = None
            try:
                headers = self._headers | {"last-event-id": place}
                async with self.http.stream("GET", self.url, headers=headers, timeout=_TIMEOUT_SECONDS) as response:
                    _check(response)
                    async for number, message in _events(response):
                        place = number
                        if message is not None and await self._is_answer(message, call):
                            answer = message
            except (BrokeOffError, httpx.TransportError):
                await anyio.lowlevel.checkpoint()
            if answer is not None:
                return self._result(answer, request)

    async def _is_answer(self, message: dict[str, Any], call: str) -> bool:
        """Return True if a message ends the call; answer a question, and record a message for another client."""
        match message:
            case {"method": "notifications/progress", "params": {"progressToken": token}}:
                if token != call:
                    self.strange.append(json.dumps(message))
            case {"method": "elicitation/create", "id": number, "params": {"message": question}}:
                if question != f"{call}?":
                    self.strange.append(json.dumps(message))
                answer = {"action": "accept", "content": {"name": self.name}}
                await self._say({"id": number, "result": answer})
            case {"method": _}:
                self.strange.append(json.dumps(message))
            case _:
                return True
        return False

    async def _say(self, message: dict[str, Any]) -> None:
        """Send a message without a response until a replica accepts it."""
        while True:
            try:
                response = await self.http.post(
                    self.url, json={"jsonrpc": "2.0", **message}, headers=self._headers, timeout=_TIMEOUT_SECONDS
                )
                _check(response)
            except (BrokeOffError, httpx.TransportError):
                await anyio.lowlevel.checkpoint()
            else:
                return


def _check(response: httpx.Response) -> None:
    """Check that a replica accepts a request: a session that is not found was lost."""
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        raise BrokeOffError("not now")
    assert response.is_success, response.status_code


async def _events(response: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any] | None]]:
    number = ""
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("data:"):
            text = line.removeprefix("data:").strip()
            yield number, json.loads(text) if text else None
