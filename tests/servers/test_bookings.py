from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.errors import TargetError
from bridge.testing import connected
from bridge.tools.caller import Caller
from bridge.tools.content import Text

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.tools.tool import ToolExecutionResult
    from tests.servers.conftest import Load, Loaded, Serve

pytestmark = pytest.mark.anyio

DRIVER = {"name": "Zoë 王", "age_years": 30}


@pytest.fixture
def bookings(load: Load) -> Loaded:
    return load("bookings", BOOKINGS_CUSTOMER="", BOOKINGS_FILE="")


def days_from_today(bookings: Loaded, first: int, last: int) -> dict[str, str]:
    today = bookings.module.today()
    return {
        "first_day": str(today + timedelta(days=first)),
        "last_day": str(today + timedelta(days=last)),
    }


async def create(
    bookings: Loaded, customer: str, first: int, last: int, car_class: str = "van", **more: Any
) -> ToolExecutionResult:
    period = days_from_today(bookings, first, last)
    arguments = {"car_class": car_class, "period": period, "driver": DRIVER} | more
    return await bookings.call("create_booking", memory_id=customer, **arguments)


async def numbers_of(bookings: Loaded, customer: str) -> list[str]:
    listed = (await bookings.call("list_bookings", memory_id=customer)).structured_content["result"]
    return [booking["number"] for booking in listed]


async def test_the_details_of_a_booking_are_returned_however_its_number_is_typed(bookings: Loaded) -> None:
    for number in ("B-10001", " b-10001 "):
        result = await bookings.call("get_booking_details", memory_id="anna", booking_number=number)
        assert result.structured_content == {
            "number": "B-10001",
            "status": "confirmed",
            "car_class": "small",
            "period": days_from_today(bookings, 30, 36),
            "driver": {"name": "Anna", "age_years": 40},
            "extras": ["navigation"],
        }


@pytest.mark.parametrize(
    "number",
    ["12345", "B-1234", "B-123456", "B12345", "", "B-\uff11\uff12\uff13\uff14\uff15", "B-10001\n--", "' OR 1=1"],
)
async def test_what_is_no_booking_number_is_answered_with_the_format(bookings: Loaded, number: str) -> None:
    result = await bookings.call("get_booking_details", memory_id="anna", booking_number=number)
    assert result.is_error
    assert result.text.endswith("is no booking number; they look like B-12345")


async def test_a_missing_booking_is_answered_with_the_nearest_own_ones(bookings: Loaded) -> None:
    result = await bookings.call("get_booking_details", memory_id="anna", booking_number="B-10011")
    assert result.text == "this customer has no booking B-10011; nearest to it are B-10001, B-10003, B-10002"
    nobody = await bookings.call("get_booking_details", memory_id="carl", booking_number="B-10011")
    assert nobody.text == "this customer has no booking B-10011; this customer has no bookings"


@pytest.mark.parametrize("tool", ["get_booking_details", "cancel_booking"])
async def test_anothers_booking_and_a_missing_one_cannot_be_told_apart(bookings: Loaded, tool: str) -> None:
    anothers = await bookings.call(tool, memory_id="anna", booking_number="B-20001")
    missing = await bookings.call(tool, memory_id="anna", booking_number="B-99999")
    assert anothers.is_error
    assert anothers.text.replace("B-20001", "B-99999").split(";")[0] == missing.text.split(";")[0]
    assert "B-20001" in await numbers_of(bookings, "ben")
    assert (await bookings.call("get_booking_details", memory_id="ben", booking_number="B-20001")).structured_content[
        "status"
    ] == "confirmed"


@pytest.mark.parametrize("customer", ["anna' OR '1'='1", "anna\0", "ANNA", "anna ", "%", ""])
async def test_a_customer_of_almost_the_same_name_has_no_bookings(bookings: Loaded, customer: str) -> None:
    assert await numbers_of(bookings, customer) == []


async def test_the_proven_caller_comes_before_the_environment_and_that_before_the_memory(
    bookings: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def customers_number(**who: Any) -> Any:
        return (await bookings.call("list_bookings", **who)).structured_content["result"][-1]["number"]

    assert await customers_number(memory_id="ben") == "B-20001"
    assert await customers_number(memory_id="ben", caller=Caller("anna")) == "B-10002"
    monkeypatch.setenv("BOOKINGS_CUSTOMER", "anna")
    assert await customers_number(memory_id="ben") == "B-10002"
    assert await customers_number(memory_id="anna", caller=Caller("ben")) == "B-20001"


async def test_nobody_is_served_where_it_is_not_known_who_asks(bookings: Loaded) -> None:
    result = await bookings.call("list_bookings")
    assert result.is_error
    assert result.text.startswith("it is not known which customer is asking")


async def test_the_customer_is_no_argument(bookings: Loaded) -> None:
    for tool in bookings.tools:
        assert not {"customer", "memory_id", "context"} & set(tool.specification.parameters["properties"])
    smuggled = await bookings.call("list_bookings", caller=Caller("carl"), memory_id="anna", customer="anna")
    assert smuggled.is_error
    assert "customer" in smuggled.text


async def test_a_booking_is_made_listed_and_cancelled(bookings: Loaded) -> None:
    made = (
        await create(bookings, "carl", 10, 15, extras=["child_seat", "CHILD_SEAT", "navigation"])
    ).structured_content
    assert made["extras"] == ["child_seat", "navigation"]
    assert made["driver"] == DRIVER
    listed = await bookings.call("list_bookings", memory_id="carl", status="confirmed")
    assert listed.structured_content["result"] == [made]
    cancelled = await bookings.call("cancel_booking", memory_id="carl", booking_number=made["number"])
    assert cancelled.structured_content == made | {"status": "cancelled"}
    listed = await bookings.call("list_bookings", memory_id="carl", status="confirmed")
    assert listed.structured_content["result"] == []
    assert await numbers_of(bookings, "carl") == [made["number"]]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("B-10002", "B-10002 cannot be cancelled any more: it could be until"),
        ("B-10003", "B-10003 cannot be cancelled: it is for 2 days, and only bookings of 3 days or more can be"),
    ],
)
async def test_a_booking_that_cannot_be_cancelled_says_why(bookings: Loaded, number: str, expected: str) -> None:
    result = await bookings.call("cancel_booking", memory_id="anna", booking_number=number)
    assert result.is_error
    assert result.text.startswith(expected)


@pytest.mark.parametrize(("first", "is_error"), [(7, False), (6, True)])
async def test_a_booking_can_be_cancelled_until_seven_days_before(bookings: Loaded, first: int, is_error: bool) -> None:
    made = (await create(bookings, "carl", first, first + 2)).structured_content
    result = await bookings.call("cancel_booking", memory_id="carl", booking_number=made["number"])
    assert result.is_error is is_error


async def test_a_cancelled_booking_is_not_cancelled_again_and_frees_its_car(bookings: Loaded) -> None:
    made = (await create(bookings, "carl", 10, 15)).structured_content
    assert (await create(bookings, "dora", 15, 20)).text.startswith("no van car is free for all of that period")
    await bookings.call("cancel_booking", memory_id="carl", booking_number=made["number"])
    again = await bookings.call("cancel_booking", memory_id="carl", booking_number=made["number"])
    assert again.text == f"{made['number']} is cancelled already"
    assert not (await create(bookings, "dora", 15, 20)).is_error


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"first": 10, "last": 9}, "the period ends on"),
        ({"first": -1, "last": 3}, "the period begins on"),
        ({"first": 366, "last": 370}, "the period begins on"),
        ({"first": 10, "last": 100}, "the period has 91 days; a car can be had for 90 at most"),
        ({"driver": {"name": " ", "age_years": 30}}, "the driver's name must be 1 to 100 characters"),
        ({"driver": {"name": "x" * 101, "age_years": 30}}, "the driver's name must be 1 to 100 characters"),
        ({"driver": {"name": "a\nb", "age_years": 30}}, "the driver's name must be 1 to 100 characters"),
        ({"driver": {"name": "x", "age_years": 20}}, "the driver is 20 years old; drivers must be at least 21"),
        ({"driver": {"name": "x"}}, "invalid arguments for 'create_booking': driver.age_years: is required"),
        (
            {"car_class": "tank"},
            "invalid arguments for 'create_booking': car_class: should be 'small', 'family' or 'van'",
        ),
        ({"extras": ["pony"]}, "invalid arguments for 'create_booking': extras[0]: should be 'child_seat'"),
    ],
)
async def test_a_booking_against_the_rules_is_explained_and_not_made(
    bookings: Loaded, change: dict[str, Any], expected: str
) -> None:
    result = await create(bookings, "carl", **({"first": 10, "last": 12} | change))
    assert result.is_error
    assert result.text.startswith(expected)
    assert await numbers_of(bookings, "carl") == []


async def test_a_customer_can_have_only_so_many_open_bookings(bookings: Loaded) -> None:
    for week in range(20):
        assert not (await create(bookings, "carl", 7 * week, 7 * week + 1)).is_error
    assert (await create(bookings, "carl", 200, 201)).text == "a customer can have 20 open bookings; cancel one first"


@pytest.mark.parametrize("file", [None, "bookings.db"])
async def test_the_last_car_is_booked_once_however_many_ask_at_the_same_time(
    load: Load, tmp_path: Path, file: str | None
) -> None:
    path = tmp_path / file if file else ""
    servers = [load("bookings", BOOKINGS_CUSTOMER="", BOOKINGS_FILE=path) for _ in range(2 if file else 1)]
    results: list[ToolExecutionResult] = []

    async def ask(server: Loaded, customer: str) -> None:
        results.append(await create(server, customer, 10, 12))

    async with anyio.create_task_group() as calls:
        for number in range(30):
            calls.start_soon(ask, servers[number % len(servers)], f"customer {number}")
    assert sum(not result.is_error for result in results) == 1
    assert all("no van car is free" in result.text for result in results if result.is_error)


async def test_bookings_in_a_file_outlive_the_server(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "bookings.db"
    first = load("bookings", BOOKINGS_CUSTOMER="", BOOKINGS_FILE=file)
    made = (await create(first, "carl", 10, 12)).structured_content
    second = load("bookings", BOOKINGS_FILE=file)
    assert await numbers_of(second, "carl") == [made["number"]]
    assert len(await numbers_of(second, "anna")) == 3


def test_a_database_of_something_else_is_refused_and_left_alone(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE t (a)")
        with pytest.raises(TargetError, match="a database of something else"):
            load("bookings", BOOKINGS_FILE=file)
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("t",)]


def test_a_file_that_is_no_database_is_refused(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no database, but long enough to be taken for one" * 100)
    with pytest.raises(TargetError, match="BOOKINGS_FILE must name a SQLite file"):
        load("bookings", BOOKINGS_FILE=file)


async def test_a_real_client_books_for_the_customer_of_the_environment(serve: Serve, bookings: Loaded) -> None:
    async with serve("bookings", BOOKINGS_CUSTOMER="anna") as client:
        arguments = {"car_class": "family", "period": days_from_today(bookings, 10, 12), "driver": DRIVER}
        made = await client.call_tool("create_booking", arguments)
        assert made.structured_content is not None
        listed = await client.call_tool("list_bookings")
        assert listed.structured_content is not None
        assert made.structured_content in listed.structured_content["result"]
        assert len(listed.structured_content["result"]) == 4
        assert (await client.call_tool("cancel_booking", {"booking_number": "B-20001"})).is_error


async def test_the_prompt_books_as_the_customer_wishes(bookings: Loaded) -> None:
    async with connected(bookings.module) as provider:
        (message,) = await provider.prompts.render("book_car", {"wishes": "Sunday, for two", "car_class": "van"})
        assert isinstance(message.content, Text)
        assert message.content.text.startswith(
            f"Today is {bookings.module.today()}. Book a car for me: Sunday, for two\n"
        )
        assert "of the class van" in message.content.text
        assert (await provider.prompts.complete("book_car", "car_class", "f")).values == ("family",)
