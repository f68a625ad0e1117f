"""Sessions: the handshake, ids in use, questions to the client, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from bridge.protocol.messages import ProtocolError, answer, read_message
from bridge.protocol.session import Question, Session
from bridge.protocol.versions import CONNECTION_CLOSED, HANDSHAKE_VERSIONS, INVALID_PARAMS, LATEST_MODERN_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.types import Json

PARAMS: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"roots": {"listChanged": True}, "sampling": None},
    "clientInfo": {"name": "client", "version": "1"},
}


def opened(**changes: Any) -> Session:
    session = Session()
    session.initialize(PARAMS | changes)
    return session


class Call:
    """A request that runs until it ends or is cancelled."""

    def __init__(self, session: Session, message_id: int | str) -> None:
        self.session = session
        self.id = message_id
        self.cancelled = 0
        session.running[str(message_id)] = self

    def cancel(self) -> None:
        self.cancelled += 1
        self.end()

    def end(self) -> None:
        del self.session.running[str(self.id)]


# --- the handshake ---------------------------------------------------------------------------------------------------


def test_before_the_handshake_nothing_is_known() -> None:
    session = Session()
    assert (session.version, session.params, session.capabilities, session.client) == ("", {}, {}, None)
    assert not session.is_initialized


def test_the_handshake_keeps_what_the_client_says() -> None:
    session = opened()
    assert session.version == "2025-06-18"
    assert session.params is not None
    assert session.capabilities == {"roots": {"listChanged": True}}
    assert session.client == "client"


@pytest.mark.parametrize("requested", [*HANDSHAKE_VERSIONS, LATEST_MODERN_VERSION, "", "1"])
def test_the_version_is_negotiated(requested: str) -> None:
    agreed = requested if requested in HANDSHAKE_VERSIONS else "2025-11-25"
    assert opened(protocolVersion=requested).version == agreed


def test_a_handshake_is_restored() -> None:
    restored = Session()
    restored.restore(opened().params, "2024-11-05")
    assert (restored.version, restored.client) == ("2024-11-05", "client")
    assert restored.capabilities == {"roots": {"listChanged": True}}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"protocolVersion": None}, "'protocolVersion' must be text"),
        ({"protocolVersion": 20250618}, "'protocolVersion' must be text"),
        ({"capabilities": None}, "the client's capabilities must be an object"),
        ({"capabilities": {"elicitation": True}}, "the client's capability 'elicitation' must be an object"),
        ({"clientInfo": None}, "'clientInfo' must be an object"),
        ({"clientInfo": {"name": "client"}}, "'version' of 'clientInfo' must be text"),
        ({"clientInfo": {"name": 7, "version": "1"}}, "'name' of 'clientInfo' must be text"),
    ],
)
def test_a_malformed_handshake_is_refused_and_changes_nothing(changes: dict[str, Any], problem: str) -> None:
    session = Session()
    with pytest.raises(ProtocolError) as refused:
        session.initialize(PARAMS | changes)
    assert (refused.value.code, refused.value.message) == (INVALID_PARAMS, f"Invalid request parameters: {problem}")
    assert (session.version, session.params) == ("", {})


def test_a_long_name_is_cut() -> None:
    client = opened(clientInfo={"name": "x" * 10_000, "version": "1"}).client
    assert client is not None
    assert len(client) < 10_000


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(7, 7), (7, "7"), ("7", 7), ("a", "a"), ("\ud800", "\ud800")])
def test_an_id_in_use_is_refused(first: int | str, second: int | str) -> None:
    session = opened()
    call = Call(session, first)
    assert session.id_problem(second) == (
        f"a request of this session with the id {second!r} still runs; give each request its own id"
    )
    call.end()
    assert session.id_problem(second) is None


@pytest.mark.parametrize(("running", "cancelled"), [(7, 7), (7, "7"), ("7", 7)])
def test_a_request_is_cancelled_by_its_id(running: int | str, cancelled: int | str) -> None:
    session = opened()
    call = Call(session, running)
    session.cancel(cancelled)
    session.cancel(cancelled)
    assert call.cancelled == 1


@pytest.mark.parametrize("request_id", [8, "07", "True", None, True, 7.0, [7], {"7": 7}])
def test_another_id_cancels_nothing(request_id: object) -> None:
    session = opened()
    calls = [Call(session, 7), Call(session, 1)]
    session.cancel(request_id)
    assert [call.cancelled for call in calls] == [0, 0]


# --- questions -------------------------------------------------------------------------------------------------------


class Asked:
    """A question and its outcomes."""

    def __init__(self, session: Session, params: Json | None = None) -> None:
        self.outcomes: list[Any] = []
        self.question = session.ask("roots/list", params, self.outcomes.append)

    @property
    def errors(self) -> list[tuple[int, str, Any]]:
        return [(each.code, each.message, each.data) for each in self.outcomes]


def respond(session: Session, message_id: int | str, outcome: Json | ProtocolError) -> bool:
    """Receive a response as bytes; return True if it answers an open question."""
    message = read_message(answer(message_id, outcome))
    assert message is not None
    return session.answered(message)


def test_questions_are_numbered() -> None:
    session = opened()
    asked = [Asked(session), Asked(session, {"a": float("nan")})]
    assert [each.question.id for each in asked] == [1, 2]
    assert asked[0].question.text == b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}'
    assert asked[1].question.text == b'{"jsonrpc":"2.0","id":2,"method":"roots/list","params":{"a":null}}'


def test_questions_of_a_replica_have_its_prefix() -> None:
    session = opened()
    session.id_prefix = "r-"
    asked = Asked(session)
    assert asked.question.text == b'{"jsonrpc":"2.0","id":"r-1","method":"roots/list"}'
    assert respond(session, "r-1", {"roots": []})
    assert asked.outcomes == [{"roots": []}]


@pytest.mark.parametrize("message_id", [1, "1"])
def test_a_question_is_answered_once(message_id: int | str) -> None:
    session = opened()
    asked = Asked(session)
    assert respond(session, message_id, {"roots": []})
    assert not respond(session, message_id, {"roots": [1]})
    assert asked.outcomes == [{"roots": []}]


def test_a_question_is_refused() -> None:
    session = opened()
    asked = [Asked(session), Asked(session)]
    assert respond(session, 2, ProtocolError(-1, "no", {"a": 1}))
    assert respond(session, 1, ProtocolError(-32601, "Method not found"))
    assert [each.errors for each in asked] == [[(-32601, "Method not found", None)], [(-1, "no", {"a": 1})]]


def test_an_answer_to_a_withdrawn_question_is_late() -> None:
    session = opened()
    asked = [Asked(session), Asked(session)]
    asked[0].question.withdraw()
    asked[0].question.withdraw()
    assert not respond(session, 1, {})
    assert respond(session, 2, {"a": 1})
    assert [each.outcomes for each in asked] == [[], [{"a": 1}]]


@pytest.mark.parametrize("message_id", [0, 2, "01", "r-1", ""])
def test_an_answer_to_no_question_is_ignored(message_id: int | str) -> None:
    session = opened()
    asked = Asked(session)
    assert not respond(session, message_id, {})
    assert asked.outcomes == []


def test_an_error_without_id_answers_nothing() -> None:
    session = opened()
    asked = Asked(session)
    message = read_message(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}')
    assert message is not None
    assert not session.answered(message)
    assert asked.outcomes == []


def test_a_question_that_cannot_be_written_is_not_asked() -> None:
    session = opened()
    with pytest.raises(ValueError, match="surrogates"):
        Asked(session, {"message": "\ud800"})
    assert not respond(session, 1, {})


# --- the end ---------------------------------------------------------------------------------------------------------


def test_the_end_cancels_refuses_and_ends_all() -> None:
    session = opened()
    calls, asked, ended = [Call(session, 1), Call(session, "a")], Asked(session), list[str]()
    session.watched = {uri: lambda uri=uri: ended.append(uri) for uri in ("a://b", "a://c")}  # type: ignore[misc]
    session.close()
    session.close()
    assert [call.cancelled for call in calls] == [1, 1]
    assert asked.errors == [(CONNECTION_CLOSED, "the session has ended", None)]
    assert sorted(ended) == ["a://b", "a://c"]
    assert (session.running, session.watched) == ({}, {})
    assert not respond(session, 1, {})


def test_no_question_is_asked_after_the_end() -> None:
    session = opened()
    session.close()
    with pytest.raises(ProtocolError) as refused:
        Asked(session)
    assert refused.value.code == CONNECTION_CLOSED


def test_a_cancelled_call_may_withdraw_its_question() -> None:
    session = opened()
    asked = Asked(session)

    class Asking(Call):
        def cancel(self) -> None:
            asked.question.withdraw()
            super().cancel()

    Asking(session, 1)
    session.close()
    assert asked.outcomes == []
    assert session.running == {}


# --- all in any order ------------------------------------------------------------------------------------------------

IDS = st.sampled_from([1, "1", 2, "2", -1, "a", ""])


class Model:
    """A question, and what was done to it."""

    def __init__(self) -> None:
        self.question: Question | None = None
        self.outcomes: list[Any] = []
        self.expected: list[Any] = []
        self.is_withdrawn = False

    @property
    def is_open(self) -> bool:
        return not self.is_withdrawn and not self.expected


class Client(RuleBasedStateMachine):
    """Requests, cancellations, questions and answers of one client in any order, until it leaves."""

    questions: Bundle[Model] = Bundle("questions")

    def __init__(self) -> None:
        super().__init__()
        self.session = opened()
        self.calls: dict[str, Call] = {}
        self.asked: list[Model] = []
        self.watched: list[str] = []
        self.is_closed = False

    def _ends(self, uri: str) -> Callable[[], object]:
        return lambda: self.watched.remove(uri)

    @rule(message_id=IDS)
    def request(self, message_id: int | str) -> None:
        in_use = str(message_id) in self.calls
        assert (self.session.id_problem(message_id) is not None) is in_use
        if not in_use and not self.is_closed:
            self.calls[str(message_id)] = Call(self.session, message_id)

    @rule(message_id=IDS)
    def answer_request(self, message_id: int | str) -> None:
        if (call := self.calls.pop(str(message_id), None)) is not None:
            call.end()
            assert call.cancelled == 0

    @rule(message_id=IDS | st.sampled_from([None, True, 1.0]))
    def cancel(self, message_id: Any) -> None:
        self.session.cancel(message_id)
        call = self.calls.pop(str(message_id), None) if type(message_id) in {int, str} else None
        if call is not None:
            assert call.cancelled == 1

    @rule(target=questions)
    def ask(self) -> Model:
        model = Model()
        if self.is_closed:
            with pytest.raises(ProtocolError):
                self.session.ask("roots/list", None, model.outcomes.append)
            model.is_withdrawn = True
            return model
        model.question = self.session.ask("roots/list", None, model.outcomes.append)
        assert model.question.id not in {each.question and each.question.id for each in self.asked}
        self.asked.append(model)
        return model

    @rule(model=questions, as_text=st.booleans(), is_error=st.booleans())
    def answer_question(self, model: Model, as_text: bool, is_error: bool) -> None:
        if model.question is None:
            return
        message_id = str(model.question.id) if as_text else model.question.id
        outcome: Any = ProtocolError(-1, "no") if is_error else {"answer": message_id}
        assert respond(self.session, message_id, outcome) is model.is_open
        if model.is_open:
            model.expected.append(outcome)

    @rule(model=consumes(questions))
    def withdraw(self, model: Model) -> None:
        if model.question is not None:
            model.question.withdraw()
        if model.is_open:
            model.is_withdrawn = True

    @rule(message_id=st.integers(1000, 1002) | st.text(max_size=2))
    def answer_nothing(self, message_id: int | str) -> None:
        if str(message_id) not in {str(each.question.id) for each in self.asked if each.question is not None}:
            assert not respond(self.session, message_id, {})

    @rule(uri=st.sampled_from(["a://b", "a://c"]))
    def watch(self, uri: str) -> None:
        if not self.is_closed and uri not in self.session.watched:
            self.watched.append(uri)
            self.session.watched[uri] = self._ends(uri)

    @rule()
    def close(self) -> None:
        calls = tuple(self.calls.values())
        self.session.close()
        assert [call.cancelled for call in calls] == [1] * len(calls)
        for model in self.asked:
            if model.is_open:
                model.expected.append(ProtocolError(CONNECTION_CLOSED, "the session has ended"))
        self.calls.clear()
        self.is_closed = True

    @invariant()
    def requests_in_use_run(self) -> None:
        assert self.session.running == self.calls

    @invariant()
    def each_question_has_one_outcome_at_most(self) -> None:
        for model in self.asked:
            assert [_text(each) for each in model.outcomes] == [_text(each) for each in model.expected]
            assert len(model.outcomes) <= 1
            assert len(model.outcomes) == 1 or model.is_withdrawn or not self.is_closed

    @invariant()
    def nothing_is_left_after_the_end(self) -> None:
        if self.is_closed:
            assert (self.session.running, self.session.watched, self.watched) == ({}, {}, [])


def _text(outcome: Any) -> bytes:
    return answer(0, outcome)


TestClient = Client.TestCase
