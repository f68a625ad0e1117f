"""An MCP server for a car rental's bookings, in which every customer sees and changes only their own.

Run it:

    BOOKINGS_CUSTOMER=anna bridge serve servers/bookings.py
    BOOKINGS_FILE=bookings.db bridge serve servers/bookings.py --transport http

Environment:

    BOOKINGS_FILE       The SQLite file with the bookings; made, with samples for the customers anna and ben, where
                        there is none. Default: the same samples in memory, forgotten when the server ends.
    BOOKINGS_CUSTOMER   Whose bookings these are where nobody proves who is calling, as over stdio. Default: nobody's.

Who the customer is, is never an argument, which a model could be talked into changing. It is the caller's proven
identity; else BOOKINGS_CUSTOMER; else the memory id, by which an AI service tells its users apart, and which over HTTP
is the session. The booking of another customer and one that does not exist are answered in the same words.

The prompt `book_car` books a car as a customer wishes.
"""

import atexit
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from re import fullmatch
from threading import Lock
from typing import Annotated, Any
from unicodedata import category

from bridge import InvocationContext, P, ToolAnnotations, ToolError, prompt, tool
from bridge.errors import TargetError
from bridge.tools import ToolMemoryId

CANCELLABLE_UNTIL_DAYS_BEFORE = 7
CANCELLABLE_FROM_DAYS = 3
LONGEST_DAYS = 90
FARTHEST_DAYS = 365
YOUNGEST_DRIVER_YEARS = 21
BOOKINGS_PER_CUSTOMER = 20
NAME_CHARS = 100
LISTED_BOOKINGS = 100
NUMBERS = range(10_000, 100_000)
LOCK_SECONDS = 5.0

# --- what a booking is -----------------------------------------------------------------------------------------------


class CarClass(Enum):
    """A class of cars."""

    SMALL = "small"
    FAMILY = "family"
    VAN = "van"


CARS = {CarClass.SMALL: 5, CarClass.FAMILY: 3, CarClass.VAN: 1}
"""Number of cars of each class."""


class Extra(Enum):
    """Something to have in the car."""

    CHILD_SEAT = "child_seat"
    NAVIGATION = "navigation"
    SNOW_CHAINS = "snow_chains"


class Status(Enum):
    """Outcome of a booking."""

    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Period:
    """The days of a booking."""

    first_day: date
    """The day on which the car is fetched."""
    last_day: date
    """The day on which the car is brought back; the same day where it is one day only."""

    @property
    def days(self) -> int:
        """Number of days, the first and the last included."""
        return (self.last_day - self.first_day).days + 1


@dataclass(frozen=True)
class Driver:
    """Name of the driver."""

    name: str
    """The full name, as in the driving licence."""
    age_years: int


@dataclass(frozen=True)
class Booking:
    """One booking."""

    number: str
    status: Status
    car_class: CarClass
    period: Period
    driver: Driver
    extras: list[Extra]


# --- tools -----------------------------------------------------------------------------------------------------------

BookingNumber = Annotated[str, P("The booking number, in the format B-12345")]
MemoryId = Annotated[Any, ToolMemoryId]

reading = tool(annotations=ToolAnnotations(read_only=True, idempotent=True, destructive=False, open_world=False))


@reading
def get_booking_details(
    booking_number: BookingNumber, context: InvocationContext, memory_id: MemoryId = None
) -> Booking:
    """Returns the details of one of the customer's bookings."""
    with _transaction() as bookings:
        return _find(bookings, booking_number, _customer(context, memory_id))


@reading
def list_bookings(
    context: InvocationContext,
    status: Annotated[Status | None, P("Only bookings of this status; all where it is left out")] = None,
    memory_id: MemoryId = None,
) -> list[Booking]:
    """Lists the customer's bookings, the latest first."""
    with _transaction() as bookings:
        rows = bookings.execute(
            "SELECT * FROM bookings WHERE customer = ? AND status = coalesce(?, status) "
            "ORDER BY first_day DESC, number LIMIT ?",
            (_customer(context, memory_id), status and status.value, LISTED_BOOKINGS),
        )
        return [_booking(row) for row in rows]


@tool(annotations=ToolAnnotations(read_only=False, destructive=False, idempotent=False, open_world=False))
def create_booking(
    car_class: Annotated[CarClass, P("Which class of car")],
    period: Annotated[Period, P("From when to when")],
    driver: Annotated[Driver, P("Who will drive")],
    context: InvocationContext,
    extras: Annotated[list[Extra], P("What to have in the car", default=[])],
    memory_id: MemoryId = None,
) -> Booking:
    """Books a car for the customer, and returns the booking with its number."""
    _check_period(period)
    _check_driver(driver)
    customer = _customer(context, memory_id)
    with _transaction() as bookings:
        open_ones = bookings.execute(
            "SELECT count(*) FROM bookings WHERE customer = ? AND status = 'confirmed' AND last_day >= ?",
            (customer, today().isoformat()),
        )
        if open_ones.fetchone()[0] >= BOOKINGS_PER_CUSTOMER:
            raise ToolError(f"a customer can have {BOOKINGS_PER_CUSTOMER} open bookings; cancel one first")
        car = _free_car(bookings, car_class, period)
        booking = Booking(
            _free_number(bookings), Status.CONFIRMED, car_class, period, driver, list(dict.fromkeys(extras))
        )
        _insert(bookings, customer, car, booking)
    return booking


@tool(annotations=ToolAnnotations(read_only=False, destructive=True, idempotent=False, open_world=False))
def cancel_booking(booking_number: BookingNumber, context: InvocationContext, memory_id: MemoryId = None) -> Booking:
    """Cancels one of the customer's bookings, where the rules allow it. This cannot be undone."""
    customer = _customer(context, memory_id)
    with _transaction() as bookings:
        booking = _find(bookings, booking_number, customer)
        _check_cancellable(booking)
        bookings.execute("UPDATE bookings SET status = 'cancelled' WHERE number = ?", (booking.number,))
        return _find(bookings, booking.number, customer)


@prompt(title="Book a car")
def book_car(
    wishes: Annotated[str, P("When, for whom and what for: 'next weekend, for five with a dog'")],
    car_class: Annotated[CarClass | None, P("Which class of car; by default the one that fits")] = None,
) -> str:
    """Books a car as the customer wishes, after asking for what is missing."""
    wanted = f"The car is to be of the class {car_class.value}." if car_class else "Choose the class of car that fits."
    return (
        f"Today is {today()}. Book a car for me: {wishes}\n\n{wanted} Look at my bookings first. Ask me for the days, "
        "the driver's name and age if you do not know them; never guess them. Show me what you are about to book, and "
        "book it only when I have agreed."
    )


# --- rules -----------------------------------------------------------------------------------------------------------


def today() -> date:
    """The day by which the rules count, in UTC."""
    return datetime.now(UTC).date()


def _customer(context: InvocationContext, memory_id: object) -> str:
    """Customer whose bookings a call is about: the authenticated caller, never an argument of the call."""
    if context.caller is not None:
        return context.caller.name
    if customer := os.environ.get("BOOKINGS_CUSTOMER"):
        return customer
    if memory_id is None:
        raise ToolError(
            "it is not known which customer is asking, and that cannot be an argument: whoever runs this server "
            "must let customers prove who they are, or set BOOKINGS_CUSTOMER"
        )
    return str(memory_id)


def _check_period(period: Period) -> None:
    first, last = today(), today() + timedelta(days=FARTHEST_DAYS)
    if period.last_day < period.first_day:
        raise ToolError(f"the period ends on {period.last_day}, before it begins on {period.first_day}")
    if not first <= period.first_day <= last:
        raise ToolError(f"the period begins on {period.first_day}; it must begin between today, {first}, and {last}")
    if period.days > LONGEST_DAYS:
        raise ToolError(f"the period has {period.days} days; a car can be had for {LONGEST_DAYS} at most")


def _check_driver(driver: Driver) -> None:
    if (
        not driver.name.strip()
        or len(driver.name) > NAME_CHARS
        or any(category(c) in {"Cc", "Cs"} for c in driver.name)
    ):
        raise ToolError(f"the driver's name must be 1 to {NAME_CHARS} characters, none of them a control character")
    if not YOUNGEST_DRIVER_YEARS <= driver.age_years <= 120:  # noqa: PLR2004 - as old as people get
        raise ToolError(f"the driver is {driver.age_years} years old; drivers must be at least {YOUNGEST_DRIVER_YEARS}")


def _check_cancellable(booking: Booking) -> None:
    if booking.status is Status.CANCELLED:
        raise ToolError(f"{booking.number} is cancelled already")
    if booking.period.days < CANCELLABLE_FROM_DAYS:
        raise ToolError(
            f"{booking.number} cannot be cancelled: it is for {booking.period.days} days, and only bookings of "
            f"{CANCELLABLE_FROM_DAYS} days or more can be"
        )
    until = booking.period.first_day - timedelta(days=CANCELLABLE_UNTIL_DAYS_BEFORE)
    if today() > until:
        raise ToolError(
            f"{booking.number} cannot be cancelled any more: it could be until {until}, "
            f"{CANCELLABLE_UNTIL_DAYS_BEFORE} days before it begins"
        )


# --- storage ---------------------------------------------------------------------------------------------------------


def _opened() -> sqlite3.Connection:
    file = os.environ.get("BOOKINGS_FILE")
    with ExitStack() as refused:
        try:
            bookings = sqlite3.connect(
                Path(file).expanduser() if file else ":memory:",
                isolation_level=None,
                timeout=LOCK_SECONDS,
                check_same_thread=False,
            )
            refused.callback(bookings.close)
            bookings.row_factory = sqlite3.Row
            bookings.execute("BEGIN IMMEDIATE")
            tables = {name for (name,) in bookings.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            if not tables:
                _fill(bookings)
            bookings.execute("COMMIT")
        except sqlite3.Error as error:
            raise TargetError(f"BOOKINGS_FILE must name a SQLite file, or a new one; {file!r}: {error}") from error
        if tables and "bookings" not in tables:
            raise TargetError(f"BOOKINGS_FILE names a database of something else; {file!r} has no table of bookings")
        refused.pop_all()
    atexit.register(bookings.close)
    return bookings


def _fill(bookings: sqlite3.Connection) -> None:
    """Make the table, and the samples: counted from today, so that every rule of cancelling can be seen."""
    bookings.execute(
        "CREATE TABLE bookings (number TEXT PRIMARY KEY, customer TEXT NOT NULL, car INTEGER NOT NULL, "
        "first_day TEXT NOT NULL, last_day TEXT NOT NULL, status TEXT NOT NULL, car_class TEXT NOT NULL, "
        "driver TEXT NOT NULL, extras TEXT NOT NULL) STRICT"
    )
    bookings.execute("CREATE INDEX bookings_by_customer ON bookings (customer, first_day)")
    bookings.execute("CREATE INDEX bookings_by_car ON bookings (car_class, car, last_day)")
    for customer, number, starts_in_days, days in [
        ("anna", "B-10001", 30, 7),
        ("anna", "B-10002", 3, 5),
        ("anna", "B-10003", 40, 2),
        ("ben", "B-20001", 20, 10),
    ]:
        first_day = today() + timedelta(days=starts_in_days)
        period = Period(first_day, first_day + timedelta(days=days - 1))
        driver = Driver(customer.title(), 40)
        booking = Booking(number, Status.CONFIRMED, CarClass.SMALL, period, driver, [Extra.NAVIGATION])
        _insert(bookings, customer, 1 if customer == "anna" else 2, booking)


@contextmanager
def _transaction() -> Iterator[sqlite3.Connection]:
    """The bookings, for one caller at a time: in this process by the lock, among processes by SQLite's."""
    with _lock:
        try:
            _bookings.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise ToolError("the bookings are being changed by someone else; try again") from error
        try:
            yield _bookings
            _bookings.execute("COMMIT")
        finally:
            if _bookings.in_transaction:
                _bookings.execute("ROLLBACK")


def _find(bookings: sqlite3.Connection, number: str, customer: str) -> Booking:
    number = number.strip().upper()
    if not fullmatch(r"B-[0-9]{5}", number):
        raise ToolError(f"{number[:NAME_CHARS]!r} is no booking number; they look like B-12345")
    row = bookings.execute("SELECT * FROM bookings WHERE number = ? AND customer = ?", (number, customer)).fetchone()
    if row is None:
        own = bookings.execute(
            "SELECT number FROM bookings WHERE customer = ? ORDER BY first_day DESC LIMIT ?",
            (customer, LISTED_BOOKINGS),
        )
        near = get_close_matches(number, [name for (name,) in own], cutoff=0)
        hint = f"nearest to it are {', '.join(near)}" if near else "this customer has no bookings"
        raise ToolError(f"this customer has no booking {number}; {hint}")
    return _booking(row)


def _free_car(bookings: sqlite3.Connection, car_class: CarClass, period: Period) -> int:
    for car in range(1, CARS[car_class] + 1):
        taken = bookings.execute(
            "SELECT 1 FROM bookings WHERE car_class = ? AND car = ? AND status = 'confirmed' "
            "AND last_day >= ? AND first_day <= ?",
            (car_class.value, car, period.first_day.isoformat(), period.last_day.isoformat()),
        )
        if taken.fetchone() is None:
            return car
    others = " or ".join(other.value for other in CarClass if other is not car_class)
    raise ToolError(f"no {car_class.value} car is free for all of that period; try other days, or {others}")


def _free_number(bookings: sqlite3.Connection) -> str:
    """A number that nobody has: by chance, since one that counts up would tell how many bookings there are."""
    for _ in range(1_000):
        number = f"B-{secrets.choice(NUMBERS)}"
        if bookings.execute("SELECT 1 FROM bookings WHERE number = ?", (number,)).fetchone() is None:
            return number
    raise ToolError("there are no booking numbers left; whoever runs this server must remove old bookings")


def _insert(bookings: sqlite3.Connection, customer: str, car: int, booking: Booking) -> None:
    bookings.execute(
        "INSERT INTO bookings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            booking.number,
            customer,
            car,
            booking.period.first_day.isoformat(),
            booking.period.last_day.isoformat(),
            booking.status.value,
            booking.car_class.value,
            json.dumps(asdict(booking.driver)),
            json.dumps([extra.value for extra in booking.extras]),
        ),
    )


def _booking(row: sqlite3.Row) -> Booking:
    return Booking(
        number=row["number"],
        status=Status(row["status"]),
        car_class=CarClass(row["car_class"]),
        period=Period(date.fromisoformat(row["first_day"]), date.fromisoformat(row["last_day"])),
        driver=Driver(**json.loads(row["driver"])),
        extras=[Extra(extra) for extra in json.loads(row["extras"])],
    )


_lock = Lock()
_bookings = _opened()
