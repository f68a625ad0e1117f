"""Responses to malformed requests, and their possible faults."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.server.raw_http import sent

if TYPE_CHECKING:
    from tests.server.http_mutations import Attempt


@dataclass(frozen=True, slots=True)
class Answer:
    """The received part of a response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]


async def answer_to(port: int, made: Attempt) -> Answer | None:
    """Send a request over a connection of its own; return None if the server closed it without a response."""
    async with sent(port, made.raw, made.method, is_whole=made.must_be_answered) as connection:
        head = await connection.head()
        if head is None:
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        is_stream = headers.get("content-type", "").startswith("text/event-stream")
        return Answer(head.status_code, headers, b"" if is_stream else await connection.body())


def problem_with(made: Attempt, answer: Answer | None) -> str | None:
    """Return the fault of a response; None for none."""
    if answer is None:
        return "no answer" if made.must_be_answered else None
    if not (200 <= answer.status < 300 or 400 <= answer.status < 500):
        return "the wrong class of status"
    if (made.must_be_taken and answer.status >= 300) or (made.must_be_refused and answer.status < 400):
        return "the wrong verdict"
    if answer.kind != "application/json" or made.method == "HEAD" or (answer.status < 300 and not answer.body):
        return None
    return problem_with_json(answer)


def problem_with_json(answer: Answer) -> str | None:
    """Return the reason why a body is not a JSON-RPC response; None if it is one."""
    message = json.loads(answer.body)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or type(message.get("id")) is bool:
        return "not a JSON-RPC message"
    if ("result" in message) is ("error" in message) or ("error" not in message and answer.status >= 400):
        return "not an answer of that status"
    error = message.get("error", {"code": 0, "message": ""})
    if type(error["code"]) is not int or not isinstance(error["message"], str):
        return "a malformed error"
    return None
