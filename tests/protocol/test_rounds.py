"""Rounds: the answers so far, and states that only their own request can bring back."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from bridge.protocol.messages import ProtocolError
from bridge.protocol.rounds import FIRST_ROUND, MIN_KEY_BYTES, STATE_TTL_SECONDS, Round, StateSeal, binding
from bridge.protocol.versions import INVALID_PARAMS

KEYS = [bytes([number]) * MIN_KEY_BYTES for number in range(1, 5)]
BOUND = binding("tools/call", "add", {"a": 1}, "alice")
STATE = {"round": 0, "asked": ["name"], "answers": {}}
WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=10,
)
"""JSON values, with lone surrogates."""


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def seal_of(keys: list[bytes] | None = None, audience: str = "server", clock: Clock | None = None) -> StateSeal:
    return StateSeal(KEYS[:1] if keys is None else keys, audience, clock=clock or Clock())


def is_refused(seal: StateSeal, token: object, bound: bytes = BOUND) -> bool:
    """True if a state is refused, by the one error that there is."""
    try:
        seal.unseal(token, bound)
    except ProtocolError as error:
        return (error.code, error.data) == (INVALID_PARAMS, {"reason": "invalid_request_state"})
    return False


# --- answers of rounds -----------------------------------------------------------------------------------------------

ANSWER: dict[str, Any] = {"action": "accept", "content": {}}
OTHER: dict[str, Any] = {"action": "decline"}


def test_the_first_round_has_no_answers() -> None:
    assert (FIRST_ROUND.number, FIRST_ROUND.answers, FIRST_ROUND.saved) == (0, {}, None)
    assert FIRST_ROUND.next_state(["a"], None) == {"round": 0, "asked": ["a"], "answers": {}}


def test_answers_may_come_before_their_questions() -> None:
    first = Round({"a": ANSWER})
    assert (first.number, first.answers) == (0, {"a": ANSWER})
    assert first.next_state(["b"], None) == {"round": 0, "asked": ["b"], "answers": {"a": ANSWER}}


def test_only_answers_to_questions_of_the_last_round_count() -> None:
    state = {"round": 0, "asked": ["b", "c"], "answers": {"a": ANSWER}}
    second = Round({"a": OTHER, "b": OTHER, "d": ANSWER}, state)
    assert (second.number, second.answers) == (1, {"a": ANSWER, "b": OTHER})
    assert second.next_state(["c"], None) == {"round": 1, "asked": ["c"], "answers": {"a": ANSWER, "b": OTHER}}


def test_a_question_may_be_asked_again() -> None:
    second = Round({"a": OTHER}, {"round": 0, "asked": ["a"], "answers": {"a": ANSWER}})
    assert second.answers == {"a": OTHER}


@pytest.mark.parametrize("saved", [{"step": 2}, 0, "", [], False])
def test_code_that_saved_a_state_gets_it_with_the_answers(saved: Any) -> None:
    state = FIRST_ROUND.next_state(["a"], saved)
    second = Round({"a": ANSWER, "b": ANSWER}, state)
    assert (second.number, second.saved, second.saved_answers, second.answers) == (1, saved, {"a": ANSWER}, {})
    assert second.next_state(["a"], None) == {"round": 1, "asked": ["a"], "answers": {}}


def test_a_round_changes_no_earlier_one() -> None:
    state = {"round": 0, "asked": ["b"], "answers": {"a": ANSWER}}
    Round({"b": ANSWER}, state)
    assert state == {"round": 0, "asked": ["b"], "answers": {"a": ANSWER}}


# --- what a state belongs to -----------------------------------------------------------------------------------------


@given(WILD, WILD)
def test_the_same_parts_have_the_same_binding(first: Any, second: Any) -> None:
    assert binding(first, second) == binding(first, second)
    assert len(binding(first)) == 32


def test_the_order_of_members_does_not_matter() -> None:
    assert binding({"a": 1, "b": {"c": 2, "d": 3}}) == binding({"b": {"d": 3, "c": 2}, "a": 1})


def test_other_parts_have_another_binding() -> None:
    parts: list[list[Any]] = [
        [],
        [None],
        ["tools/call", "a", {}, None],
        ["tools/call", "a", {}, "null"],
        ["tools/call", "a", {}, ""],
        ["tools/call", "a", {"x": 1}, None],
        ["tools/call", "a", {"x": "1"}, None],
        ["tools/call", "a", {"x": True}, None],
        ["tools/call", "a", {"x": [1, 2]}, None],
        ["tools/call", "a", {"x": [2, 1]}, None],
        ["prompts/get", "a", {}, None],
        ["tools/call", 'a",{},"', None],
        ["tools/call", "\ud800", {}, None],
    ]
    assert len({binding(*each) for each in parts}) == len(parts)


# --- sealed states ---------------------------------------------------------------------------------------------------


@given(state=st.dictionaries(st.text(st.characters()), WILD), audience=st.text(st.characters()))
def test_a_state_comes_back(state: dict[str, Any], audience: str) -> None:
    token = seal_of(audience=audience).seal(state, BOUND)
    assert token.isascii()
    assert token.startswith("b1.")
    assert seal_of(audience=audience).unseal(token, BOUND) == state


def test_the_client_cannot_read_a_state() -> None:
    first, second = (seal_of().seal({"secret": "hunter2"}, BOUND) for _ in range(2))
    assert first != second
    assert b"hunter2" not in base64.urlsafe_b64decode(first[3:] + "===")


@pytest.mark.parametrize(
    "bound",
    [
        binding("prompts/get", "add", {"a": 1}, "alice"),
        binding("tools/call", "subtract", {"a": 1}, "alice"),
        binding("tools/call", "add", {"a": 2}, "alice"),
        binding("tools/call", "add", {"a": 1}, "bob"),
        binding("tools/call", "add", {"a": 1}, None),
        b"",
    ],
)
def test_a_state_of_another_request_or_caller_is_refused(bound: bytes) -> None:
    seal = seal_of()
    token = seal.seal(STATE, BOUND)
    assert is_refused(seal, token, bound)
    assert not is_refused(seal, token)


@pytest.mark.parametrize("audience", ["other", "", "server2", "\ud800"])
def test_a_state_of_another_server_is_refused(audience: str) -> None:
    assert is_refused(seal_of(audience=audience), seal_of().seal(STATE, BOUND))


def test_a_state_expires() -> None:
    clock = Clock()
    seal = seal_of(clock=clock)
    token = seal.seal(STATE, BOUND)
    clock.now += STATE_TTL_SECONDS - 1
    assert not is_refused(seal, token)
    clock.now += 1
    assert is_refused(seal, token)


def test_a_state_of_an_older_key_is_read_until_the_key_is_removed() -> None:
    token = seal_of(KEYS[:1]).seal(STATE, BOUND)
    assert seal_of([KEYS[1], KEYS[0]]).unseal(token, BOUND) == STATE
    assert is_refused(seal_of([KEYS[1]]), token)
    assert is_refused(seal_of(KEYS[:1]), seal_of([KEYS[1], KEYS[0]]).seal(STATE, BOUND))


def test_a_key_may_be_given_twice() -> None:
    assert seal_of([KEYS[0], KEYS[0]]).unseal(seal_of().seal(STATE, BOUND), BOUND) == STATE


def test_without_keys_a_state_is_that_of_one_seal() -> None:
    first, second = StateSeal(None, "server"), StateSeal(None, "server")
    token = first.seal(STATE, BOUND)
    assert first.unseal(token, BOUND) == STATE
    assert is_refused(second, token)


def test_keys_are_long_enough() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        StateSeal([], "server")
    with pytest.raises(ValueError, match=r"state_keys\[1\] has 31 bytes, and needs 32"):
        StateSeal([KEYS[0], b"x" * 31], "server")


CHARACTERS = st.sampled_from("AZaz09-_=. \n+/é\ud800")
CHANGES = st.tuples(st.sampled_from(["replace", "insert", "cut", "append"]), st.integers(0, 500), CHARACTERS)
"""Changes of a token, none of which depends on the token, which is random."""


def changed(token: str, change: tuple[str, int, str]) -> str:
    """Return a token that differs from another one."""
    kind, place, character = change
    place %= len(token)
    match kind:
        case "replace":
            character = "B" if character == token[place] else character
            return token[:place] + character + token[place + 1 :]
        case "insert":
            return token[:place] + character + token[place:]
        case "cut":
            return token[:place]
    return token + character


@given(CHANGES)
def test_a_changed_state_is_refused(change: tuple[str, int, str]) -> None:
    seal = seal_of()
    assert is_refused(seal, changed(seal.seal(STATE, BOUND), change))


@pytest.mark.parametrize(
    "token", [None, 7, [], {}, "", "b1.", "b1.AAAA", "b1", "b2." + "A" * 80, "b1." + "A" * 80, "\ud800", "b1.é"]
)
def test_what_is_no_state_is_refused(token: object) -> None:
    assert is_refused(seal_of(), token)


@pytest.mark.parametrize("length", range(48))
def test_a_state_that_was_cut_is_refused(length: int) -> None:
    seal = seal_of()
    raw = base64.urlsafe_b64decode(seal.seal(STATE, BOUND)[3:] + "===")[:length]
    assert is_refused(seal, "b1." + base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


# --- any number of rounds --------------------------------------------------------------------------------------------

QUESTIONS = st.lists(st.sampled_from("abc"), unique=True)
ANSWERS = st.dictionaries(st.sampled_from("abc"), st.sampled_from([ANSWER, OTHER]))


@dataclass(frozen=True)
class Sealed:
    """A state with a client, and what the next round has to be."""

    token: str
    bound: bytes
    audience: str
    key: bytes
    until: float
    number: int
    asked: tuple[str, ...]
    answers: dict[str, Any]
    saved: Any


class Rounds(RuleBasedStateMachine):
    """Rounds of questions and answers of several requests, whose clients change and mix up states."""

    states: Bundle[Sealed] = Bundle("states")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.keys = [KEYS[0]]

    def seal(self, audience: str) -> StateSeal:
        return StateSeal(self.keys, audience, clock=self.clock)

    def _ask(self, round_: Round, bound: bytes, audience: str, asked: list[str], saved: Any) -> Sealed:
        return Sealed(
            self.seal(audience).seal(round_.next_state(asked, saved), bound),
            bound,
            audience,
            self.keys[0],
            self.clock.now + STATE_TTL_SECONDS,
            round_.number + 1,
            tuple(asked),
            dict(round_.answers),
            saved,
        )

    @rule(
        target=states,
        caller=st.sampled_from(["alice", "bob", None]),
        argument=st.integers(0, 1),
        audience=st.sampled_from(["server", "other"]),
        given=ANSWERS,
        asked=QUESTIONS,
        saved=st.sampled_from([None, {"step": 1}]),
    )
    def begin(
        self,
        caller: str | None,
        argument: int,
        audience: str,
        given: dict[str, Any],
        asked: list[str],
        saved: Any,
    ) -> Sealed:
        first = Round(given)
        assert (first.number, first.answers, first.saved) == (0, given, None)
        return self._ask(first, binding("tools/call", "add", {"a": argument}, caller), audience, asked, saved)

    @rule(target=states, state=states, given=ANSWERS, asked=QUESTIONS, saved=st.sampled_from([None, 0, "x"]))
    def go_on(self, state: Sealed, given: dict[str, Any], asked: list[str], saved: Any) -> Any:
        seal = self.seal(state.audience)
        if self.clock.now >= state.until or state.key not in self.keys:
            assert is_refused(seal, state.token, state.bound)
            return multiple()
        next_ = Round(given, seal.unseal(state.token, state.bound))
        answers = state.answers | {key: value for key, value in given.items() if key in state.asked}
        has_saved = state.saved is not None
        assert next_.number == state.number
        assert next_.answers == ({} if has_saved else answers)
        assert next_.saved_answers == (answers if has_saved else {})
        assert next_.saved == state.saved
        return self._ask(next_, state.bound, state.audience, asked, saved)

    @rule(state=states, other=states)
    def mix_up(self, state: Sealed, other: Sealed) -> None:
        for mixed in (replace(state, bound=other.bound), replace(state, audience=other.audience)):
            if mixed != state:
                assert is_refused(self.seal(mixed.audience), mixed.token, mixed.bound)
        halves = state.token[: len(state.token) // 2] + other.token[len(state.token) // 2 :]
        if halves not in {state.token, other.token}:
            assert is_refused(self.seal(state.audience), halves, state.bound)

    @rule(state=states, change=CHANGES)
    def change(self, state: Sealed, change: tuple[str, int, str]) -> None:
        assert is_refused(self.seal(state.audience), changed(state.token, change), state.bound)

    @rule(seconds=st.sampled_from([1.0, STATE_TTL_SECONDS / 2, STATE_TTL_SECONDS]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(key=st.sampled_from(KEYS), keeps=st.booleans())
    def rotate(self, key: bytes, keeps: bool) -> None:
        self.keys = [key, *(each for each in self.keys if each != key)] if keeps else [key]

    @invariant()
    def the_first_round_stays_empty(self) -> None:
        assert (FIRST_ROUND.number, FIRST_ROUND.answers, FIRST_ROUND.saved_answers) == (0, {}, {})


TestRounds = Rounds.TestCase
