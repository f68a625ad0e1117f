"""Questions of tools are answered in the page, in both eras of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import HttpTransport
from bridge.errors import ChatModelError
from bridge.inspector import questions
from bridge.inspector.questions import SamplingModel
from bridge.models.openai.model import OpenAiChatModel
from bridge.models.scripted import ScriptedChatModel
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


async def test_a_question_after_a_cancelled_call_is_answered(page: OpenPage) -> None:
    cancelled, _ = await asked(page, "pay")
    await page.post(f"/requests/{cancelled}/cancel")
    await page.ended(cancelled)
    number = await page.call("cancel_journey", {"reference": "J-1"})
    question = await page.event("question", request=number)
    await page.post(f"/questions/{question['number']}", {"answer": {"action": "decline"}})
    assert await text_of(page, number) == "The journey stays booked (decline)."


async def test_a_malformed_answer_leaves_the_question_open(page: OpenPage) -> None:
    number, question = await asked(page, "pay")
    wrong = await page.client.post(f"/questions/{question['number']}", json={"answer": {"action": "yes"}})
    assert wrong.status_code == 400
    assert page.inspector.questions.open_questions() == [question]
    await page.post(f"/questions/{question['number']}", {"answer": {"action": "decline"}})
    assert await text_of(page, number) == "payment: decline"


async def test_an_answer_that_does_not_fit_its_form_leaves_the_question_open(page: OpenPage) -> None:
    number, question = await asked(page, "cancel_journey", {"reference": "J-1"})
    answer = {"action": "accept", "content": {"reason": "illness", "refund": "false"}}
    wrong = await page.client.post(f"/questions/{question['number']}", json={"answer": answer})
    assert (wrong.status_code, "refund: expected yes or no" in wrong.text) == (400, True)
    assert page.inspector.questions.open_questions() == [question]
    await page.post(f"/questions/{question['number']}", {"answer": {"action": "decline"}})
    assert await text_of(page, number) == "The journey stays booked (decline)."


async def test_the_answer_to_a_form_is_checked_by_its_schema(page: OpenPage) -> None:
    _, question = await asked(page, "cancel_journey", {"reference": "J-1"})
    body = {"question": question["number"], "arguments": {"reason": "boredom", "refund": True}}
    assert "boredom" in (await page.post("/check", body))["problem"]
    body["arguments"]["reason"] = "illness"
    assert await page.post("/check", body) == {"problem": None}
    await page.post(f"/questions/{question['number']}", {"answer": {"action": "decline"}})
    body["arguments"]["reason"] = "boredom"
    assert await page.post("/check", {**body, "question": 99}) == {"problem": None}


async def test_a_model_proposes_an_answer_that_the_user_sends(agency: RemoteServer) -> None:
    model = ScriptedChatModel(["Rome", ChatModelError("overloaded", provider="openai")])
    config = travel(transport=HttpTransport(agency.url))
    async with inspecting(config, model=SamplingModel("openai:small", model)) as page:
        await page.listed()
        assert (await page.event("state"))["model"] == "openai:small"
        number, question = await asked(page, "recommend")
        proposal = await page.post(f"/questions/{question['number']}/proposal")
        assert proposal["content"] == {"type": "text", "text": "Rome"}
        assert (model.requests[0].messages[0].text, model.requests[0].max_output_tokens) == ("Name a city.", 20)
        assert page.inspector.questions.open_questions() == [question]  # nothing is sent yet
        failed = await page.client.post(f"/questions/{question['number']}/proposal", json={})
        assert (failed.status_code, "overloaded" in failed.text) == (502, True)
        await page.post(f"/questions/{question['number']}", {"answer": proposal})
        assert await text_of(page, number) == "The model says: Rome"
        assert (await page.client.post("/questions/99/proposal", json={})).status_code == 404


async def test_a_question_that_is_withdrawn_stops_the_model(agency: RemoteServer) -> None:
    asked_model, stopped = anyio.Event(), anyio.Event()

    async def think(_: object) -> str:
        asked_model.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    config = travel(transport=HttpTransport(agency.url))
    async with inspecting(config, model=SamplingModel("slow", ScriptedChatModel(think))) as page:
        await page.listed()
        number, question = await asked(page, "recommend")

        async def cancel() -> None:
            await asked_model.wait()
            await page.post(f"/requests/{number}/cancel")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            answered = await page.client.post(f"/questions/{question['number']}/proposal", json={})
        assert (answered.status_code, stopped.is_set()) == (404, True)


async def test_without_a_model_there_is_no_proposal(page: OpenPage) -> None:
    _, question = await asked(page, "recommend")
    refused = await page.client.post(f"/questions/{question['number']}/proposal", json={})
    assert (refused.status_code, "--model" in refused.text) == (502, True)
    await page.post(f"/questions/{question['number']}", {"answer": None})


async def test_the_model_is_closed_with_the_page() -> None:
    closed: list[bool] = []

    class Closing(OpenAiChatModel):
        async def aclose(self) -> None:
            await super().aclose()
            closed.append(True)

    async with inspecting(model=SamplingModel("openai:small", Closing("small", api_key="secret"))):
        assert closed == []
    assert closed == [True]
