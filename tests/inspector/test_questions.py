"""Questions of tools are answered in the page, in both eras of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge.client import HttpTransport
from bridge.inspector import questions
from tests.inspector.conftest import inspecting, travel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.client.conftest import RemoteServer
    from tests.inspector.conftest import OpenPage

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["legacy", "2026-07-28"])
async def page(request: pytest.FixtureRequest, agency: RemoteServer) -> AsyncIterator[OpenPage]:
    """The page of the travel agency in an era."""
    async with inspecting(travel(protocol=request.param, transport=HttpTransport(agency.url))) as opened:
        await opened.listed()
        yield opened


async def asked(page: OpenPage, tool: str, arguments: Any = None) -> tuple[int, Any]:
    """Call a tool, and return the call's number and its question."""
    number = await page.call(tool, arguments)
    return number, await page.event("question")


async def text_of(page: OpenPage, number: int) -> str:
    return str((await page.ended(number))["answer"]["result"]["content"][0]["text"])


async def test_a_form_is_answered(page: OpenPage) -> None:
    number, question = await asked(page, "cancel_journey", {"reference": "J-1"})
    assert (question["server"], question["request"]) == ("travel", number)
    assert question["params"]["message"] == "Cancel the journey J-1?"
    assert list(question["params"]["requestedSchema"]["properties"]) == ["reason", "refund"]
    answer = {"action": "accept", "content": {"reason": "illness", "refund": False}}
    await page.post(f"/questions/{question['number']}", {"answer": answer})
    assert await text_of(page, number) == "Cancelled because of illness, refund: False."
    await page.event("question-over", number=question["number"])


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_form_is_declined(page: OpenPage, action: str) -> None:
    number, question = await asked(page, "cancel_journey", {"reference": "J-1"})
    await page.post(f"/questions/{question['number']}", {"answer": {"action": action}})
    assert await text_of(page, number) == f"The journey stays booked ({action})."


async def test_a_page_is_visited(page: OpenPage) -> None:
    number, question = await asked(page, "pay")
    assert question["params"]["url"] == "https://bank.example/pay?id=7"
    await page.post(f"/questions/{question['number']}", {"answer": {"action": "accept"}})
    assert await text_of(page, number) == "payment: accept"


async def test_a_person_answers_for_the_model(page: OpenPage) -> None:
    number, question = await asked(page, "recommend")
    assert question["method"] == "sampling/createMessage"
    content = {"type": "text", "text": "Rome"}
    answer = {"role": "assistant", "content": content, "model": "a person"}
    await page.post(f"/questions/{question['number']}", {"answer": answer})
    assert await text_of(page, number) == "The model says: Rome"


async def test_a_question_is_refused(page: OpenPage) -> None:
    number, question = await asked(page, "recommend")
    await page.post(f"/questions/{question['number']}", {"answer": None})
    ended = await page.ended(number)
    assert ended["state"] == "failed"
    assert "refused" in str(ended["answer"])


@pytest.mark.parametrize(("bound", "value"), [("MAX_OPEN", 1), ("MAX_OPEN_CHARS", 200)])
async def test_open_questions_are_bounded(
    page: OpenPage, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(questions, bound, value)
    number, question = await asked(page, "folders")
    refused = await page.ended(await page.call("pay"))
    assert (refused["state"], "too many questions" in str(refused["answer"])) == ("failed", True)
    await page.post(f"/questions/{question['number']}", {"answer": {"roots": []}})
    assert (await page.ended(number))["state"] == "done"


async def test_folders_are_shared(page: OpenPage) -> None:
    number, question = await asked(page, "folders")
    await page.post(f"/questions/{question['number']}", {"answer": {"roots": [{"uri": "file:///tmp"}]}})
    assert (await page.ended(number))["answer"]["result"]["structuredContent"] == {"result": ["file:///tmp"]}


async def test_a_cancelled_call_withdraws_its_question(page: OpenPage) -> None:
    number, question = await asked(page, "pay")
    assert page.inspector.questions.open_questions() == [question]
    await page.post(f"/requests/{number}/cancel")
    await page.event("question-over", number=question["number"])
    late = await page.client.post(f"/questions/{question['number']}", json={"answer": {"action": "accept"}})
    assert (late.status_code, page.inspector.questions.open_questions()) == (404, [])


async def test_a_malformed_answer_leaves_the_question_open(page: OpenPage) -> None:
    number, question = await asked(page, "pay")
    wrong = await page.client.post(f"/questions/{question['number']}", json={"answer": {"action": "yes"}})
    assert wrong.status_code == 400
    assert page.inspector.questions.open_questions() == [question]
    await page.post(f"/questions/{question['number']}", {"answer": {"action": "decline"}})
    assert await text_of(page, number) == "payment: decline"
