"""Forms from schemas, the JSON beside them, and calls, in a real browser."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.inspector.browser.conftest import arguments, call, choose, inspected, opened

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page


def expect_arguments(page: Page, value: Any) -> None:
    expect(arguments(page)).to_have_value(json.dumps(value, indent=2, ensure_ascii=False))


def test_a_form_is_made_from_a_nested_schema_and_written_as_json(page: Page) -> None:
    choose(page, "book")
    expect(page.get_by_role("heading", name="Book a journey")).to_be_visible()
    page.get_by_label("destination").fill("Rome")
    page.get_by_label("departure").fill("2030-05-17")
    passengers = page.get_by_role("group", name="passengers")
    passengers.get_by_role("button", name="Add item").click()
    passengers.get_by_role("button", name="Add item").click()
    for index, (name, age) in enumerate((("Ada", "36"), ("Grace", "45"))):
        passengers.get_by_role("textbox", name="name").nth(index).fill(name)
        passengers.get_by_role("textbox", name="age").nth(index).fill(age)
    passengers.get_by_role("combobox", name="meal").nth(1).select_option("fish")
    passengers.get_by_role("button", name="Remove item 1").click()
    payment = page.get_by_role("group", name="payment")
    payment.get_by_role("combobox", name="kind of value").select_option("Invoice")
    payment.get_by_label("email").fill("grace@example.org")
    page.get_by_label("dog").check()
    expect_arguments(
        page,
        {
            "destination": "Rome",
            "departure": "2030-05-17",
            "passengers": [{"name": "Grace", "age": 45, "meal": "fish"}],
            "payment": {"kind": "invoice", "email": "grace@example.org"},
            "extras": ["dog"],
        },
    )
    page.keyboard.press("Control+Enter")
    outcome = page.get_by_role("region", name="Outcome")
    expect(outcome).to_contain_text("Done")
    expect(outcome).to_contain_text("J-0517110")
    expect(outcome.locator(".figures")).to_contain_text("ms")
    expect(outcome.locator(".figures")).to_contain_text("tokens")


def test_the_form_follows_the_json(page: Page) -> None:
    choose(page, "book")
    written = {
        "destination": "Oslo",
        "departure": "2031-01-01",
        "passengers": [{"name": "Ada", "age": 36}],
        "payment": {"kind": "invoice", "email": "a@example.org"},
        "extras": ["seat", "bicycle"],
        "notes": "two\nlines",
    }
    arguments(page).fill(json.dumps(written))
    expect(page.get_by_label("destination")).to_have_value("Oslo")
    expect(page.get_by_label("departure")).to_have_value("2031-01-01")
    expect(page.get_by_role("group", name="passengers").get_by_role("textbox", name="name")).to_have_value("Ada")
    expect(page.get_by_role("combobox", name="kind of value")).to_have_value("1")
    expect(page.get_by_label("email")).to_have_value("a@example.org")
    expect(page.get_by_label("seat")).to_be_checked()
    expect(page.get_by_label("notes")).to_have_value("two\nlines")
    page.get_by_label("destination").fill("Bergen")
    expect_arguments(page, {**written, "destination": "Bergen", "extras": ["bicycle", "seat"]})


def test_json_that_is_none_cannot_be_sent_and_stays_as_it_was_typed(page: Page) -> None:
    choose(page, "distance")
    arguments(page).fill('{"start": ')
    expect(page.get_by_role("button", name="Call", exact=True)).to_be_disabled()
    expect(arguments(page)).to_have_value('{"start": ')
    arguments(page).fill("[]")
    expect(page.get_by_text("enter a JSON object")).to_be_visible()
    arguments(page).fill('{"start": "A"}')
    expect(page.get_by_role("button", name="Call", exact=True)).to_be_enabled()


def test_arguments_are_checked_and_may_be_sent_nevertheless(page: Page) -> None:
    choose(page, "search")
    page.get_by_label("until").fill("many")
    expect(page.locator(".violation")).to_contain_text("until")
    page.get_by_label("destination").fill("Rome")
    page.get_by_role("button", name="Call", exact=True).click()
    outcome = page.get_by_role("region", name="Outcome")
    expect(outcome).to_contain_text("Failed")
    expect(outcome).to_contain_text("until")
    page.get_by_label("until").fill("1")
    expect(page.locator(".violation")).to_have_count(0)


def test_required_values_that_are_missing_block_the_call_at_their_fields(page: Page) -> None:
    choose(page, "book")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.url.endswith("/requests") else None)
    page.get_by_role("group", name="passengers").get_by_role("button", name="Add item").click()
    expect(page.get_by_text("Required", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Call", exact=True).click()
    expect(page.get_by_text("Required", exact=True)).to_have_count(5)  # those of the passenger and the card as well
    destination = page.get_by_label("destination")
    expect(destination).to_be_focused()
    expect(destination).to_have_accessible_description("Required")
    page.keyboard.type("Rome")
    expect(page.get_by_text("Required", exact=True)).to_have_count(4)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_label("departure")).to_be_focused()
    assert sent == []


def test_json_that_was_written_by_hand_is_sent_as_it_is(page: Page) -> None:
    choose(page, "delay")
    arguments(page).fill('{"train": ""}')
    outcome = call(page, "delay")
    expect(outcome).to_contain_text("there is no train ''")
    arguments(page).fill("{}")
    expect(call(page, "delay")).to_contain_text("train")
    expect(outcome).to_contain_text("Failed")


NUMBERS = """
from bridge import tool


@tool
async def fare(kilometres: int | float, discount: float | int | None = None) -> float:
    \"\"\"Price of a journey.\"\"\"
    return kilometres * (1 - (discount or 0))
"""


def test_integer_or_number_is_one_field(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "numbers.py").write_text(NUMBERS)
    with inspected(str(tmp_path / "numbers.py")) as url, opened(browser, url) as page:
        choose(page, "fare")
        expect(page.get_by_role("combobox", name="kind of value")).to_have_count(0)
        page.get_by_label("kilometres").fill("12.5")
        page.get_by_label("discount").fill("0")
        expect_arguments(page, {"kilometres": 12.5, "discount": 0})
        expect(call(page, "fare")).to_contain_text("12.5")
        kinds = page.evaluate("""async () => {
            const { makeField } = await import("./static/js/forms/fields.js");
            return [["integer", "number"], ["number", "integer", "null"], ["integer", "string"]].map(
                (type) => makeField({ type }, {}, undefined, { isRequired: false }).kind);
        }""")
        assert kinds == ["number", "number", "union"]


def test_integers_of_any_size_keep_their_digits(page: Page) -> None:
    choose(page, "search")
    arguments(page).fill('{"destination": "Rome", "until": 12345678901234567890}')
    expect(page.get_by_label("until")).to_have_value("12345678901234567890")
    page.get_by_label("destination").fill("Oslo")
    expect(arguments(page)).to_have_value('{\n  "destination": "Oslo",\n  "until": 12345678901234567890\n}')


def test_defaults_are_named_and_left_to_the_server(page: Page) -> None:
    choose(page, "distance")
    expect(page.get_by_label("end")).to_have_attribute("placeholder", 'default: "Rome"')
    page.get_by_label("start").fill("Vienna")
    expect_arguments(page, {"start": "Vienna"})
    page.get_by_label("end").fill("Ulm")
    expect_arguments(page, {"start": "Vienna", "end": "Ulm"})


def test_what_was_typed_stays_when_another_tool_is_looked_at(page: Page) -> None:
    choose(page, "distance")
    page.get_by_label("start").fill("Vienna")
    choose(page, "pay")
    choose(page, "distance")
    expect(page.get_by_label("start")).to_have_value("Vienna")


def test_a_running_call_shows_its_progress_and_is_cancelled(page: Page) -> None:
    choose(page, "search")
    page.get_by_label("destination").fill("Rome")
    page.get_by_label("until").fill("12")
    outcome = call(page, "search")
    expect(outcome).to_contain_text("timetable 9 (9 of 12)")
    expect(outcome.get_by_role("progressbar")).to_have_attribute("max", "12")
    assert outcome.get_by_role("progressbar").evaluate("bar => bar.value") == 9
    outcome.get_by_role("button", name="Cancel").click()
    expect(outcome).to_contain_text("Cancelled")
    outcome.get_by_role("button", name="Log (9)").click()
    expect(outcome).to_contain_text("read timetable 9 for Rome")
