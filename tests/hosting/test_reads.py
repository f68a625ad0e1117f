"""A read or prompt starts as soon as its request is read, like the call of a tool."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import anyio
import pytest

from bridge.errors import ResourceNotFoundError, ToolError
from bridge.prompts.function import prompt
from bridge.prompts.prompt import Prompt, PromptMessage
from bridge.resources.function import resource
from bridge.resources.resource import Resource
from bridge.server import Server, http_app
from bridge.server.eager_tasks import EagerTasks
from bridge.server.limits import Limits
from bridge.tools.content import File
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the functions are made
from bridge.tools.function import function_tool
from tests.server import http_server
from tests.server.http_server import open_session, whole_client

DEADLINE_SECONDS = 60
WRITTEN: dict[str, Any] = {
    "text": 'é "quoted"',
    "bytes": b"\x00\xff",
    "data": {"a": [1]},
    "several": [b"a", File("other://x", "b", "text/css"), File("", b"c")],
    "half": "\ud800",
    "none": None,
}


def _outcome(kind: str) -> Any:
    match kind:
        case "refusal":
            raise ToolError("refused")
        case "crash":
            raise ValueError("a secret")
        case "absent":
            raise ResourceNotFoundError(kind)
        case "exit":
            raise SystemExit(1)
        case "cancelled":
            raise asyncio.CancelledError
        case _:
            return WRITTEN[kind]


async def _wait() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        await anyio.lowlevel.checkpoint()


@resource("now://{kind}/{times}")
async def now(kind: str, times: int) -> Any:
    """End at once."""
    return _outcome(kind)


@resource("later://{kind}", mime_type="text/x-later")
async def later(kind: str) -> Any:
    """Wait first."""
    await _wait()
    return _outcome(kind)


@resource("talk://{kind}")
async def talk(kind: str, context: InvocationContext) -> Any:
    """Report to whom it may concern."""
    await context.progress(1, 2, "half")
    return _outcome(kind)


@resource("static://text", description="A text.")
async def static() -> str:
    """Return a text."""
    return "It rains."


@prompt(description='"Described"')
async def render(kind: str, moment: str = "now") -> Any:
    """End in one way."""
    if moment == "later":
        await _wait()
    match kind:
        case "messages":
            return ["one", PromptMessage("two", "assistant")]
        case "texts":
            return ["one", "é"]
        case "data":
            return {"a": 1}
        case _:
            return _outcome(kind)


@prompt
async def undescribed(context: InvocationContext) -> str:
    return f"for {context.account}"


FEATURES = [now, later, talk, static, render, undescribed]
URIS = ["static://text", "static://text", "now://text/x", "static://other"]
URIS += [f"now://{kind}/1" for kind in (*WRITTEN, "refusal", "crash", "absent", "exit", "cancelled")]
URIS += [f"{moment}://{kind}" for moment in ("later", "talk") for kind in ("text", "bytes", "refusal", "crash", "none")]
REQUESTS: list[tuple[str, dict[str, Any]]] = [("resources/read", {"uri": uri}) for uri in URIS]
REQUESTS += [
    ("prompts/get", {"name": "render", "arguments": {"kind": kind, "moment": moment}})
    for kind in ("text", "texts", "messages", "data", "half", "refusal", "crash", "absent", "cancelled")
    for moment in ("now", "later")
]
REQUESTS += [("prompts/get", params) for params in ({"name": "render"}, {"name": "undescribed"}, {"name": "unknown"})]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Functions that were started at once."""
    found: list[str] = []
    step = EagerTasks.step

    def noted(self: EagerTasks, work: Any) -> Any:
        found.append(work.__name__)
        return step(self, work)

    monkeypatch.setattr(EagerTasks, "step", noted)
    return found


def answers(era: str, app: Any, http: str, requests: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    with http_server.serving(app, http=http) as origin, whole_client() as client:
        session = open_session(client, origin + "/mcp") if era == "handshake" else {}
        found = []
        for number, (method, params) in enumerate(requests):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            if era == "modern":
                message = http_server.modern(message)
            headers = session or http_server.modern_headers(message)
            response = client.post(origin + "/mcp", json=message, headers=headers)
            answered = http_server.answer(response)
            found.append((response.status_code, answered.get("result"), answered.get("error")))
        return found


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_every_outcome_is_that_of_asgi_and_of_a_server_with_limits(
    era: str, steps: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    found, in_asgi = (answers(era, http_app(FEATURES), http, REQUESTS) for http in ("direct", "httptools"))
    assert found == in_asgi
    assert {"now", "later", "talk", "static", "render", "undescribed"} <= set(steps)
    whole = http_app(Server(FEATURES, name="bridge", limits=Limits(max_result_bytes=10**6)))
    assert [each[1] for each in answers(era, whole, "httptools", REQUESTS)] == [each[1] for each in found]
    assert "StopIteration" not in caplog.text, "it has the value"


def test_texts_and_bytes_are_written_as_they_are() -> None:
    (read, blob, rendered) = (
        result
        for _, result, _ in answers(
            "modern",
            http_app(FEATURES),
            "direct",
            [
                ("resources/read", {"uri": "now://text/1"}),
                ("resources/read", {"uri": "later://bytes"}),
                ("prompts/get", {"name": "render", "arguments": {"kind": "texts"}}),
            ],
        )
    )
    text = {"uri": "now://text/1", "mimeType": "text/plain", "text": WRITTEN["text"]}
    assert read["contents"] == [text]
    assert (read["ttlMs"], read["cacheScope"], read["resultType"]) == (0, "private", "complete")
    data = base64.b64encode(WRITTEN["bytes"]).decode()
    assert blob["contents"] == [{"uri": "later://bytes", "mimeType": "text/x-later", "blob": data}]
    messages = [{"role": "user", "content": {"type": "text", "text": each}} for each in ("one", "é")]
    assert (rendered["description"], rendered["messages"]) == ('"Described"', messages)


def test_a_reader_that_is_a_tool_is_read_like_others() -> None:
    async def speak() -> str:
        return "a result, and no contents"

    executor = function_tool(speak).executor
    by_hand = Resource(uri="hand://made", name="hand", reader=executor), Prompt(name="hand", renderer=executor)
    assert [each.runs_directly for each in by_hand] == [False, False]
    (answer,) = answers("modern", http_app(list(by_hand)), "direct", [("resources/read", {"uri": "hand://made"})])
    assert answer[1]["contents"] == []


def test_limits_of_calls_hold_for_reads() -> None:
    limited = http_app(Server(FEATURES, name="limited", limits=Limits(tool_concurrency={"*": 1})))
    found = answers("modern", limited, "direct", REQUESTS[:1])
    assert found[0][1]["contents"][0]["text"] == "It rains."
