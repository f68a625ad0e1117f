"""Requests of the page: outcome, progress, cancellation, history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge.inspector import requests
from tests.client.conftest import forked
from tests.inspector.conftest import inspecting, travel

if TYPE_CHECKING:
    from pathlib import Path
from tests.inspector.conftest import OpenPage

pytestmark = pytest.mark.anyio


async def test_a_call_shows_its_result_its_size_and_its_time(page: OpenPage) -> None:
    ended = await page.ended(await page.call("distance", {"start": "Vienna"}))
    assert ended["state"] == "done"
    assert ended["answer"]["result"]["structuredContent"] == {"result": 1000}
    assert ended["answer"]["result"]["content"] == [{"type": "text", "text": "1000"}]
    assert ended["bytes"] > 50
    assert ended["tokens"] > 0
    assert ended["ms"] > 0
    assert ended["params"] == {"name": "distance", "arguments": {"start": "Vienna"}}


async def test_a_failed_tool_and_a_refused_request_are_told_apart(page: OpenPage) -> None:
    failed = await page.ended(await page.call("delay", {"train": "X"}))
    assert failed["state"] == "failed"
    assert failed["answer"]["result"]["isError"] is True
    refused = await page.ended(await page.start("resources/read", uri="travel://nowhere"))
    assert refused["state"] == "failed"
    assert refused["answer"]["error"]["code"] in {-32002, -32602}


async def test_the_servers_own_check_of_the_arguments_is_shown(page: OpenPage) -> None:
    ended = await page.ended(await page.call("distance", {"strt": 1}))
    assert ended["state"] == "failed"
    assert "start" in ended["answer"]["result"]["content"][0]["text"]


async def test_arguments_are_checked_before_the_call(page: OpenPage) -> None:
    good = {"server": "travel", "tool": "distance", "arguments": {"start": "Vienna"}}
    assert await page.post("/check", good) == {"problem": None}
    found = await page.post("/check", {**good, "arguments": {"start": 5}})
    assert "start" in found["problem"]
    assert (await page.client.post("/check", json={**good, "tool": "none"})).status_code == 404


async def test_progress_and_log_messages_are_shown_while_it_runs(page: OpenPage) -> None:
    number = await page.call("search", {"destination": "Rome", "until": 10})
    shown = await page.event("request", number=number, progress={"progress": 9, "total": 10, "message": "timetable 9"})
    assert shown["state"] == "running"
    await page.post(f"/requests/{number}/cancel")
    ended = await page.ended(number)
    assert (ended["state"], ended["answer"]) == ("cancelled", None)
    assert {"level": "info", "data": "read timetable 1 for Rome", "logger": None} in ended["logs"]


async def test_resources_templates_and_prompts_are_read(page: OpenPage) -> None:
    server = await page.listed()
    assert [each["uri"] for each in server["resources"]] == ["travel://cities"]
    assert [each["uriTemplate"] for each in server["templates"]] == ["travel://timetable/{city}"]
    assert [each["name"] for each in server["prompts"]] == ["plan"]
    read = await page.ended(await page.start("resources/read", uri="travel://timetable/rome"))
    assert read["answer"]["result"]["contents"][0]["text"] == "Trains to rome: 8:00, 12:00"
    got = await page.ended(await page.start("prompts/get", name="plan", arguments={"city": "Rome"}))
    assert got["answer"]["result"]["messages"][0]["content"]["text"] == "Plan 3 days in Rome."


async def test_a_resource_is_a_document_in_a_sandbox(page: OpenPage) -> None:
    number = await page.start("resources/read", uri="travel://timetable/%3Cb%3Erome")
    await page.ended(number)
    document = await page.frame(number, 0)
    assert document.text == "Trains to <b>rome: 8:00, 12:00"
    directives = [each.strip() for each in document.headers["content-security-policy"].split(";")]
    assert {"sandbox allow-scripts", "default-src 'none'", "frame-ancestors 'self'"} <= set(directives)
    assert (await page.frame(number, 1)).status_code == 404
    call = await page.call("distance", {"start": "A"})
    await page.ended(call)
    assert (await page.frame(call, 0)).status_code == 404
    own = page.tokens.frames_path(number)
    key = own.split("/")[2]
    page.client.cookies.clear()
    for path in (
        f"{own}0/0",
        f"/frames/{key}/{call}/0",
        f"/frames/x/{number}/0",
        f"/frames/{number}/0",
        f"{own}/0/0",
        own,
    ):
        assert (await page.client.get(page.at(path))).status_code == 403
    assert (await page.client.get(f"/requests/{number}")).status_code == 403
    assert (await page.frame(number, 0)).text == document.text  # whoever has its address has the document


async def test_a_wrong_request_of_the_page_is_refused(page: OpenPage) -> None:
    wrong: list[tuple[Any, int]] = [
        ({"server": "none", "method": "tools/call", "params": {"name": "a", "arguments": {}}}, 404),
        ({"server": "travel", "method": "initialize", "params": {}}, 400),
        ({"server": "travel", "method": "tools/call", "params": {"name": "distance"}}, 400),
        ({"server": "travel", "method": ["tools/call"], "params": {}}, 400),
        ({"server": ["travel"]}, 404),
        ([], 400),
    ]
    for body, status in wrong:
        assert (await page.client.post("/requests", json=body)).status_code == status
    assert page.inspector.requests.summaries() == []


async def test_what_is_no_json_is_refused() -> None:
    async with inspecting() as page:
        headers = {"content-type": "application/json"}
        for content in (b"{", b"\xff", b"[" * 100_000):
            assert (await page.client.post("/check", content=content, headers=headers)).status_code == 400


async def test_the_oldest_requests_are_forgotten(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_REQUESTS", 2)
    for start in ("A", "B", "C"):
        await page.ended(await page.call("distance", {"start": start}))
    assert [each["number"] for each in page.inspector.requests.summaries()] == [2, 3]
    assert (await page.client.get("/requests/1")).status_code == 404
    monkeypatch.setattr(requests, "MAX_BYTES", 1)
    await page.ended(await page.call("distance", {"start": "D"}))
    assert [each["number"] for each in page.inspector.requests.summaries()] == [4]
    await page.post("/requests/clear")
    assert page.inspector.requests.summaries() == []


async def test_parameters_logs_and_errors_count_as_kept_bytes(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_BYTES", 10_000)
    long = "x" * 6_000
    await page.ended(await page.start("resources/read", uri=f"travel://{long}"))
    await page.ended(await page.call("distance", {"start": long}))
    assert [each["number"] for each in page.inspector.requests.summaries()] == [2]
    await page.ended(await page.call("search", {"destination": "y" * 3_000, "until": 2}))
    assert [each["number"] for each in page.inspector.requests.summaries()] == [3]


async def test_log_messages_of_a_request_are_bounded(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_LOG_BYTES", 5_000)
    ended = await page.ended(await page.call("search", {"destination": "y" * 2_000, "until": 5}))
    assert [each["data"][:16] for each in ended["logs"]] == ["read timetable 1", "read timetable 2"]


async def test_a_long_progress_message_is_shortened(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_PROGRESS_CHARS", 5)
    ended = await page.ended(await page.call("search", {"destination": "Rome", "until": 1}))
    assert ended["progress"]["message"] == "timet…"


async def test_a_result_that_violates_its_output_schema_is_pointed_out(page: OpenPage) -> None:
    tool = page.inspector.servers["travel"].tool("distance")
    assert tool is not None
    tool["outputSchema"] = {"type": "object", "properties": {"result": {"type": "string"}}}
    ended = await page.ended(await page.call("distance", {"start": "A"}))
    assert "does not match the output schema" in ended["warning"]


TASK = """
from bridge import InvocationContext, TaskPolicy, tool

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool(task=TaskPolicy(required=True, poll_interval_seconds=0.02))
async def print_book(context: InvocationContext) -> str:
    answer = await context.elicit("Whose name?", FORM)
    return f"printed for {answer.content['name']}"
"""


async def test_a_call_that_becomes_a_task_is_a_call_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "printing.py").write_text(TASK)
    transport = forked("-m", "bridge", "serve", str(tmp_path / "printing.py"))
    async with inspecting(travel(transport=transport)) as page:
        await page.listed()
        number = await page.call("print_book")
        question = await page.event("question")
        answer = {"action": "accept", "content": {"name": "Ada"}}
        await page.post(f"/questions/{question['number']}", {"answer": answer})
        ended = await page.ended(number)
        assert ended["answer"]["result"]["content"] == [{"type": "text", "text": "printed for Ada"}]
        methods = {message["method"] for message in page.inspector.traffic.summaries()}
        assert {"tasks/get", "tasks/update"} <= methods
