"""Accounts: usage by each caller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import DefinitionError
from bridge.server.limits import Limits, Rate
from bridge.server.limits import accounts as accounts_module
from bridge.server.limits.account import Account, LimitExceeded, ToolAccount
from bridge.server.limits.accounts import Accounts, caller_key
from bridge.server.limits.limits import Meter


def scope_of(address: str, name: str | None = None) -> dict[str, Any]:
    scope: dict[str, Any] = {"client": (address, 4711)}
    return scope if name is None else scope | {"user": SimpleNamespace(caller=SimpleNamespace(name=name))}


def entered(account: Account, name: str, now: float = 100.0) -> ToolAccount:
    place = account.enter(name, now)
    assert isinstance(place, ToolAccount)
    return place


def test_a_caller_is_its_name_and_without_one_its_address() -> None:
    assert caller_key(scope_of("10.0.0.1", "ada")) == "ada"
    assert caller_key(scope_of("10.0.0.1")) == "10.0.0.1"
    assert caller_key({"client": None}) == ""


def test_the_addresses_of_one_network_of_ipv6_are_one_caller() -> None:
    keys = {caller_key(scope_of(address)) for address in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1")}
    assert keys == {"2001:db8::/64", "2001:db8:0:1::/64"}
    assert caller_key(scope_of("fe80::1%eth0")) == "fe80::/64"
    assert caller_key(scope_of("not:an:address")) == "not:an:address"


def test_an_ipv4_address_is_the_same_caller_on_a_socket_of_ipv6() -> None:
    assert caller_key(scope_of("::ffff:10.0.0.1")) == caller_key(scope_of("10.0.0.1")) == "10.0.0.1"


@pytest.mark.parametrize(("calls", "seconds"), [(0, 1), (1, 0), (1, -1), (1, float("nan")), (1, float("inf"))])
def test_a_rate_that_limits_nothing_is_refused(calls: int, seconds: float) -> None:
    with pytest.raises(DefinitionError, match=r"^a rate is at least 1 in a time above 0 and not infinite, not "):
        Rate(calls, seconds)


def test_what_one_caller_took_is_not_counted_against_another() -> None:
    accounts = Accounts(Limits(rate=Rate(1, 60)), lambda: 100.0)
    ada, bob = accounts.of(scope_of("x", "ada")), accounts.of(scope_of("x", "bob"))
    ada.count(100.0)
    assert accounts.of(scope_of("y", "ada")) is ada
    assert ada.refusal(100.0, b"2026-07-28") == LimitExceeded("too many requests: a caller has 1 in 60 s", "--rate", 60)
    assert bob.refusal(100.0, b"2026-07-28") is None


def test_calls_are_counted_for_each_tool_that_a_pattern_names() -> None:
    account = Account(Limits(tool_rates={"delete_*": Rate(1, 60), "*": Rate(3, 60)}))
    entered(account, "delete_one").leave()
    entered(account, "delete_two").leave()
    refused = account.enter("delete_one", 100.0)
    assert isinstance(refused, LimitExceeded)
    assert refused.text == "'delete_one' was called too often: a caller has 1 in 60 s; try again in 60 seconds"
    for _ in range(3):
        entered(account, "add").leave()
    assert isinstance(account.enter("add", 100.0), LimitExceeded)
    entered(account, "add", 160.0)


def test_meters_are_made_of_the_caller_and_of_the_tool_and_the_pattern_that_names_it() -> None:
    made: list[tuple[str, ...]] = []

    def make_meter(*of: str, rate: Rate) -> Meter:
        made.append((*of, str(rate)))
        return Meter(rate)

    accounts = Accounts(Limits(rate=Rate(9, 60), tool_rates={"a*": Rate(1, 60), "*": Rate(3, 60)}))
    accounts.make_meter = make_meter
    ada = accounts.of(scope_of("x", "ada"))
    entered(ada, "add").leave()
    assert isinstance(ada.enter("add", 100.0), LimitExceeded)
    assert made == [("ada", "9 in 60 s"), ("ada", "add", "a*", "1 in 60 s"), ("ada", "add", "*", "3 in 60 s")]


def test_a_call_takes_its_place_until_it_leaves() -> None:
    account = Account(Limits(concurrency=2, tool_concurrency={"slow": 1, "s*": 2}))
    place = entered(account, "slow")
    refused = account.enter("slow", 100.0)
    assert isinstance(refused, LimitExceeded)
    assert refused.result.is_error
    assert refused.result.metadata == {"io.github.mcp-toolbridge/retryAfterSeconds": 1}
    other = entered(account, "other")
    refused = account.enter("third", 100.0)
    assert isinstance(refused, LimitExceeded)
    assert refused.limit == "--concurrency"
    place.leave()
    other.leave()
    assert isinstance(account.enter("slow", 100.0), ToolAccount)


def test_a_call_that_was_refused_is_not_counted() -> None:
    account = Account(Limits(tool_concurrency={"slow": 1}, tool_rates={"slow": Rate(2, 60)}))
    place = entered(account, "slow")
    for _ in range(10):
        assert isinstance(account.enter("slow", 100.0), LimitExceeded)
    place.leave()
    entered(account, "slow").leave()


def test_in_a_session_a_few_requests_more_come_in_so_that_what_a_call_asks_can_be_answered() -> None:
    account = Account(Limits(concurrency=1))
    account.requests = 1
    assert account.refusal(100.0, b"2025-11-25") is None
    assert account.refusal(100.0, b"2026-07-28") is not None
    account.requests = 17
    assert account.refusal(100.0, b"2025-11-25") is not None


def test_calls_whose_requests_are_gone_are_still_counted() -> None:
    account = Account(Limits(concurrency=1))
    place = entered(account, "slow")
    assert account.refusal(100.0, b"2026-07-28") is not None
    place.leave()
    assert account.refusal(100.0, b"2026-07-28") is None


def test_streams_have_a_limit_of_their_own() -> None:
    account = Account(Limits(max_streams=1, concurrency=1))
    account.requests = 5
    assert account.stream_refusal(100.0) is None
    account.streams = 1
    assert account.stream_refusal(100.0) == LimitExceeded(
        "too many open streams: a caller has 1 at once", "--max-streams", 1
    )


def test_the_first_refusals_are_answered_at_once_and_those_of_whoever_goes_on_are_not() -> None:
    account = Account(Limits(rate=Rate(1, 60)))
    assert [account.is_answered_at_once(100.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert account.is_answered_at_once(101.0)


def test_of_too_many_callers_those_are_forgotten_who_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_module, "MAX_ACCOUNTS", 4)
    accounts = Accounts(Limits(rate=Rate(1, 60)), lambda: 100.0)
    busy = accounts.of(scope_of("busy"))
    busy.count(100.0)
    for number in range(10):
        accounts.of(scope_of(str(number)))
        assert len(accounts) <= 4
    assert accounts.of(scope_of("busy")) is busy


def test_not_even_callers_who_all_take_something_are_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_module, "MAX_ACCOUNTS", 4)
    accounts = Accounts(Limits(rate=Rate(1, 60)), lambda: 100.0)
    for number in range(20):
        accounts.of(scope_of(str(number))).count(100.0)
        assert len(accounts) <= 4


@pytest.mark.parametrize(
    "limits",
    [
        {"concurrency": 0},
        {"max_streams": -1},
        {"max_result_bytes": 0},
        {"tool_result_bytes": {"add": 0}},
        {"tool_concurrency": {"add": 0}},
    ],
)
def test_a_limit_that_lets_nothing_through_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="at least 1"):
        Limits(**limits)
