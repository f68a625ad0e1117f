"""Results, questions, resources, history and traffic, in a real browser."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from bridge.inspector.servers import disabled_summary
from tests.inspector.browser.conftest import call, choose, inspected, opened, signed_in
from tests.inspector.conftest import TRAVEL
from tests.models import openai_wire
from tests.models.provider import running_provider
from tests.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page


def test_every_kind_of_content_is_shown(page: Page) -> None:
    choose(page, "ticket")
    page.get_by_label("reference").fill("J-1")
    outcome = call(page, "ticket")
    expect(outcome).to_contain_text("Ticket J-1")
    picture = outcome.get_by_role("img")
    expect(picture).to_have_attribute("alt", "image/png, 123 B")
    assert picture.evaluate("image => image.naturalWidth") == 48
    expect(outcome.locator("audio")).to_have_attribute("src", "data:audio/wav;base64,UklGRiQAAABXQVZFZm10IA==")
    expect(outcome.get_by_role("link", name="Download").first).to_have_attribute("download", "content")
    expect(outcome).to_contain_text("travel://timetable/rome")
    outcome.get_by_role("button", name="JSON").click()
    expect(outcome).to_contain_text('"mimeType": "audio/wav"')


def test_markdown_is_shown_as_a_reader_wants_it_or_as_it_is(page: Page) -> None:
    choose(page, "guide")
    page.get_by_label("city").fill("Rome")
    outcome = call(page, "guide")
    expect(outcome.get_by_role("heading", name="Rome")).to_be_visible()
    expect(outcome.locator("strong", has_text="two days")).to_be_visible()
    expect(outcome.get_by_role("listitem")).to_have_count(2)
    expect(outcome.get_by_role("cell", name="May")).to_be_visible()
    expect(outcome.locator("pre")).to_have_text("08:00  breakfast\n")
    expect(outcome.get_by_role("link", name="boat")).to_have_attribute("href", "https://boats.example/tour")
    expect(outcome.get_by_text("https://boats.example/tour")).to_be_visible()
    expect(outcome.get_by_text("image: a map")).to_be_visible()
    assert outcome.locator("img").count() == 0
    outcome.get_by_role("button", name="Text", exact=True).click()
    expect(outcome.locator("pre.text")).to_contain_text("Stay **two days**")
    outcome.get_by_role("button", name="Bytes").click()
    expect(outcome.get_by_label("Bytes", exact=True)).to_contain_text("000000  23 20 52 6f 6d 65 0a")
    outcome.get_by_role("button", name="Markdown").click()
    expect(outcome.get_by_role("heading", name="Rome")).to_be_visible()


def test_no_view_of_a_text_is_wider_than_a_narrow_window(browser: Browser, travel: str) -> None:
    with opened(browser, travel, viewport={"width": 340, "height": 700}) as page:
        choose(page, "guide")
        page.get_by_label("city").fill("R" * 200)
        page.get_by_role("button", name="Call", exact=True).click()
        outcome = page.get_by_role("region", name="Outcome")
        for view in ("Markdown", "Text", "Bytes"):
            outcome.get_by_role("button", name=view, exact=True).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 340, view


def test_the_bytes_of_a_picture_are_shown(page: Page) -> None:
    choose(page, "ticket")
    page.get_by_label("reference").fill("J-2")
    outcome = call(page, "ticket")
    outcome.locator(".block", has=page.locator("img")).get_by_role("button", name="Bytes").click()
    expect(outcome.locator("pre.hex")).to_contain_text("89 50 4e 47 0d 0a 1a 0a")


def test_an_error_is_shown_as_one(page: Page) -> None:
    choose(page, "delay")
    page.get_by_label("train").fill("X")
    outcome = call(page, "delay")
    expect(outcome).to_contain_text("Failed")
    expect(outcome).to_contain_text("there is no train 'X'; name one of the timetable")


def test_a_form_of_a_tool_is_answered(page: Page) -> None:
    choose(page, "cancel_journey")
    page.get_by_label("reference").fill("J-1")
    outcome = call(page, "cancel_journey")
    question = page.get_by_role("dialog")
    expect(question).to_contain_text("Cancel the journey J-1?")
    expect(question.get_by_label("Refund to the card")).to_be_checked()
    question.get_by_label("Reason").select_option("illness")
    question.get_by_label("Refund to the card").uncheck()
    question.get_by_role("button", name="Submit").click()
    expect(outcome).to_contain_text("Cancelled because of illness, refund: False.")
    expect(question).to_have_count(0)
    call(page, "cancel_journey")
    question.get_by_role("button", name="Decline").click()
    expect(outcome).to_contain_text("The journey stays booked (decline).")


LONG_FORM = """
from bridge import InvocationContext, tool


@tool
async def order(context: InvocationContext) -> str:
    \"\"\"Ask for many things.\"\"\"
    names = [f"field {number}" for number in range(1, 14)]
    properties = {name: {"type": "string"} for name in names}
    schema = {"type": "object", "properties": properties, "required": names[:1]}
    answer = await context.elicit("What do you want?", schema)
    return f"{answer.action}: {answer.content}"
"""


@pytest.mark.parametrize("size", [(1200, 600), (390, 664)])
def test_a_question_stays_answerable_at_any_size_and_after_a_reload(
    browser: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    (tmp_path / "order.py").write_text(LONG_FORM)
    viewport: Any = dict(zip(("width", "height"), size, strict=True))
    with inspected(str(tmp_path / "order.py")) as url, opened(browser, url, viewport=viewport) as page:
        call(page, "order")
        question, badge = page.get_by_role("dialog"), page.get_by_role("button", name="1 question")
        for button in ("Submit", "Decline", "Cancel"):
            expect(question.get_by_role("button", name=button, exact=True)).to_be_in_viewport(ratio=1)
        question.get_by_role("button", name="Later").click()
        expect(question).to_be_hidden()
        page.get_by_role("link", name="Explore").click()
        expect(badge).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        badge.click()
        expect(question).to_contain_text("What do you want?")
        page.keyboard.press("Escape")
        expect(question).to_be_hidden()
        page.reload()
        expect(question).to_contain_text("What do you want?")
        expect(page).to_have_title("(1) bridge inspect")
        question.get_by_role("button", name="Submit").click()
        expect(question.get_by_text("Required", exact=True)).to_have_count(1)
        expect(question.get_by_label("field 1", exact=True)).to_be_focused()
        question.get_by_label("field 1", exact=True).fill("bread")
        question.get_by_role("button", name="Submit").click()
        expect(question).to_be_hidden()
        expect(badge).to_have_count(0)
        page.get_by_role("link", name="History").click()
        page.locator("a.row").click()
        expect(page.get_by_role("region", name="Outcome")).to_contain_text("accept: {'field 1': 'bread'}")


def test_questions_are_shown_one_after_the_other(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "order.py").write_text(LONG_FORM)
    with inspected(str(tmp_path / "order.py")) as url, opened(browser, url) as page:
        question = page.get_by_role("dialog")
        call(page, "order")
        question.get_by_role("button", name="Later").click()
        call(page, "order")
        expect(question).to_contain_text("question 1 of 2")
        question.get_by_label("field 1", exact=True).fill("bread")
        question.get_by_role("button", name="Next").click()
        expect(question).to_contain_text("question 2 of 2")
        expect(question.get_by_label("field 1", exact=True)).to_have_value("")
        question.get_by_role("button", name="Decline").click()
        expect(question).to_be_hidden()  # the first one was set aside
        page.get_by_role("button", name="1 question").click()
        expect(question.get_by_label("field 1", exact=True)).to_have_value("bread")
        question.get_by_role("button", name="Cancel", exact=True).click()
        expect(question).to_be_hidden()


def test_a_page_is_visited_only_by_the_user(page: Page) -> None:
    outcome = call(page, "pay")
    question = page.get_by_role("dialog")
    link = question.get_by_role("link", name="https://bank.example/pay?id=7")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(question).to_contain_text("only if you trust bank.example")
    question.get_by_role("button", name="Continue").click()
    expect(outcome).to_contain_text("payment: accept")


def test_a_person_answers_for_the_model_and_names_folders(page: Page) -> None:
    outcome = call(page, "recommend")
    question = page.get_by_role("dialog")
    expect(question).to_contain_text("Name a city.")
    question.get_by_label("Answer in the model's place").fill("Rome")
    question.get_by_role("button", name="Answer").click()
    expect(outcome).to_contain_text("The model says: Rome")
    call(page, "recommend")
    question.get_by_role("button", name="Refuse").click()
    expect(outcome).to_contain_text("Failed")
    call(page, "folders")
    question.get_by_label("Folders").fill("file:///tmp\nfile:///srv")
    question.get_by_role("button", name="Answer").click()
    expect(outcome).to_contain_text("file:///srv")


def test_a_model_proposes_what_the_user_may_change(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    with running_provider() as provider:
        provider.answer_to = lambda _: openai_wire.completion({"content": "Oslo"})
        options = ("--model", "openai:small", "--base-url", provider.url)
        with inspected(*options, TRAVEL) as url, opened(browser, url) as page:
            outcome = call(page, "recommend")
            question = page.get_by_role("dialog")
            question.get_by_role("button", name="Ask openai:small").click()
            answer = question.get_by_label("Answer in the model's place")
            expect(answer).to_have_value("Oslo")
            answer.fill("Oslo, or Bergen")
            question.get_by_role("button", name="Answer").click()
            expect(outcome).to_contain_text("The model says: Oslo, or Bergen")


def test_values_that_the_server_completes_are_offered(page: Page) -> None:
    choose(page, "plan")
    options = "input => [...input.list.options].map(option => option.value)"
    city, days = page.get_by_label("city"), page.get_by_label("days")
    city.focus()
    city.fill("ro")
    expect(page.locator("datalist option")).to_have_count(2)
    assert city.evaluate(options) == ["Rome", "Rovaniemi"]
    city.fill("Rome")
    days.focus()
    expect(page.locator("datalist option[value='2 days in Rome']")).to_have_count(1)
    assert days.evaluate(options) == ["2 days in Rome", "3 days in Rome"]
    choose(page, "timetable")
    page.get_by_label("city").fill("v")
    expect(page.locator("datalist option[value='Vienna']")).to_have_count(1)


def test_the_answer_to_a_form_is_checked(page: Page) -> None:
    choose(page, "cancel_journey")
    page.get_by_label("reference").fill("J-1")
    call(page, "cancel_journey")
    question = page.get_by_role("dialog")
    question.get_by_label("Answer as JSON").fill('{"reason": "boredom", "refund": true}')
    expect(question.locator(".violation")).to_contain_text("boredom")
    question.get_by_role("button", name="Decline").click()
    expect(question).to_have_count(0)


def test_resources_templates_and_prompts_are_read(page: Page) -> None:
    outcome = page.get_by_role("region", name="Outcome")
    choose(page, "cities")
    page.get_by_role("button", name="Read").click()
    expect(outcome.locator(".tree")).to_contain_text("Vienna")
    choose(page, "timetable")
    page.get_by_label("city").fill("São Paulo")
    expect(page.get_by_text("travel://timetable/S%C3%A3o%20Paulo")).to_be_visible()
    page.get_by_role("button", name="Read").click()
    expect(outcome).to_contain_text("Trains to São Paulo: 8:00, 12:00")
    choose(page, "plan")
    page.get_by_label("city").fill("Rome")
    page.get_by_role("button", name="Get").click()
    expect(outcome).to_contain_text("Plan 3 days in Rome.")


def test_earlier_calls_are_repeated_edited_and_copied(browser: Browser) -> None:
    with inspected(TRAVEL) as url, opened(browser, url) as page:
        choose(page, "distance")
        page.get_by_label("start").fill("Vienna")
        expect(call(page, "distance")).to_contain_text("1000")
        page.get_by_role("link", name="History").click()
        page.get_by_role("link", name='distance {"start":"Vienna"}').click()
        page.get_by_role("button", name="Reuse").click()
        page.get_by_role("button", name="Copy").first.click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        line = page.evaluate("navigator.clipboard.readText()")
        assert line.endswith("tests/inspector/travel.py distance start=Vienna")
        expect(page.get_by_text("def test_distance() -> None:")).to_be_visible()
        page.get_by_role("button", name="Repeat").click()
        expect(page.locator("a.row")).to_have_count(2)
        page.reload()
        expect(page.locator("a.row")).to_have_count(2)
        page.get_by_role("button", name="Edit").click()
        expect(page.get_by_label("start")).to_have_value("Vienna")
        page.get_by_role("link", name="History").click()
        page.get_by_role("button", name="Clear").click()
        expect(page.get_by_text("Nothing has been called yet.")).to_be_visible()


def test_the_traffic_of_both_eras_is_filtered_and_opened(browser: Browser, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "bridge", "serve", TRAVEL], "cwd": str(ROOT)}
    servers = {"new": entry, "old": {**entry, "protocol": "legacy"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    with inspected(str(tmp_path / "mcp.json")) as url, opened(browser, url) as page:
        page.get_by_role("link", name="Traffic").click()
        for first in ("server/discover", "initialize"):
            expect(page.get_by_role("button", name=f"sent {first} request")).to_be_visible()
        page.get_by_label("Server", exact=True).select_option("old")
        expect(page.get_by_text("server/discover")).to_have_count(0)
        page.get_by_label("Direction").select_option("received")
        page.get_by_label("Method").fill("tools")
        expect(page.locator("button.row")).to_have_count(1)
        page.get_by_role("button", name="received tools/list result").click()
        expect(page.locator("pre")).to_contain_text('"name": "distance"')


def test_a_server_is_shown_and_started_again(browser: Browser) -> None:
    with inspected(TRAVEL) as url, opened(browser, url) as page:
        choose(page, "ready travel")
        expect(page.get_by_text("2026-07-28 (modern era)")).to_be_visible()
        expect(page.locator("main .dot.ready")).to_be_visible()
        page.get_by_role("link", name="Traffic").click()
        expect(page.get_by_role("button", name="sent server/discover request")).to_have_count(1)
        choose(page, "ready travel")
        page.get_by_role("button", name="Restart").click()
        page.get_by_role("link", name="Traffic").click()
        expect(page.get_by_role("button", name="sent server/discover request")).to_have_count(2)


def test_a_server_that_does_not_start_says_why(browser: Browser) -> None:
    command = ["--", sys.executable, "-c", "raise SystemExit('no key')"]
    with inspected(*command) as url, opened(browser, url) as page:
        choose(page, "failed python")
        expect(page.locator("main .error")).to_contain_text("no key")


DEEP = """
from typing import Any

from bridge import tool


@tool
async def deep() -> str:
    \"\"\"Lists in lists.\"\"\"
    return "[" * 3000 + "]" * 3000


@tool
async def wide() -> list[Any]:
    \"\"\"Many lists.\"\"\"
    return [[[1] * 50] * 50] * 300
"""


def test_large_results_have_elements_only_where_they_are_unfolded(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(DEEP)
    with inspected(str(tmp_path / "deep.py")) as url, opened(browser, url) as page:
        for tool in ("wide", "deep"):
            outcome = call(page, tool)
            expect(outcome).to_contain_text("Done")
            expect(outcome.locator("details").first).to_be_visible()
            assert page.locator(".tree *").count() < 2_000
        tree = outcome.locator(".tree").first
        folded = tree.locator("details:not([open])")
        for _ in range(3):
            before = tree.locator("details").count()
            folded.last.locator("summary").click()
            expect(tree.locator("details")).to_have_count(before + 1)
        tree.locator("summary").first.click()
        expect(tree.locator("details")).to_have_count(1)


def test_a_result_that_is_no_longer_kept_is_asked_for_once(browser: Browser, travel: str) -> None:
    context = signed_in(browser, travel)  # whose console says that the result was not found
    page = context.new_page()
    page.goto(travel.partition("?")[0])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/requests/" in request.url else None)
    page.route("**/requests/*", lambda route: route.fulfill(status=404, body="gone"))
    choose(page, "distance")
    page.get_by_label("start").fill("Vienna")
    expect(call(page, "distance")).to_contain_text("The result cannot be shown: gone")
    page.get_by_role("link", name="History").click()
    page.go_back()
    expect(page.get_by_text("The result cannot be shown: gone")).to_be_visible()
    assert len(asked) == 1
    context.close()


def test_a_page_keeps_the_last_requests(page: Page) -> None:
    shown = page.evaluate("""async () => {
        const { receive, state } = await import("./static/js/store.js");
        for (let number = 1e6; number < 1e6 + 300; number++) receive("request", { number, state: "done", params: {} });
        return [state.requests.length, state.requests.at(-1).number];
    }""")
    assert shown == [200, 1_000_299]


def test_an_event_that_cannot_be_shown_leaves_the_page_alive(browser: Browser, travel: str) -> None:
    context = signed_in(browser, travel)
    page = context.new_page()
    page.route("**/events", lambda route: route.fulfill(content_type="text/event-stream", body=EVENTS))
    page.goto(travel.partition("?")[0])
    expect(page.get_by_role("alert")).to_contain_text("An event (server) of the inspector cannot be shown")
    expect(page.get_by_role("link", name="later", exact=True)).to_be_visible()
    context.close()


LATER = json.dumps({**disabled_summary("later"), "state": "ready"})
EVENTS = f"event: server\ndata: {{NaN}}\n\nevent: server\ndata: {LATER}\n\n"
