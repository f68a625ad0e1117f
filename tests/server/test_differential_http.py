"""Thousands of equal requests to our server and to the official SDK's: their responses are equal.

Texts of errors are not compared; nor are their codes, for requests that no client would send. `differs` names the few
requests that one of them answers and the other refuses.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import settings

from bridge.protocol.versions import CAPABILITIES_KEY
from tests import processes
from tests.server.differential_requests import SESSION, ending, other_drafts, plain_drafts, spoiled, talking_drafts
from tests.server.raw_http import open_session, sent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.http_mutations import Draft

SEED = 20260728
MUTATIONS = 10 * settings().max_examples
"""Mutations for each pair of servers, which are others for each."""
MUTATIONS_A_SESSION = 40
AT_ONCE = 8
DEADLINE_SECONDS = 60
SEALED = re.compile(r'"requestState": "[^"]+"')
KEPT_HEADERS = {"content-type", "mcp-session-id", "allow", "www-authenticate", "location"}


@dataclass(frozen=True)
class Answer:
    """Response as a client sees it."""

    status: int
    headers: tuple[tuple[str, str], ...]
    messages: tuple[Any, ...]
    """Its messages, in JSON; of one that is an error, the id and the code."""

    @property
    def is_refusal(self) -> bool:
        """True if the request was not done."""
        return self.status >= 400 or any('"code"' in each for each in self.messages)


@dataclass(frozen=True)
class Pair:
    """Ports of the two servers, or IDs of their sessions."""

    ours: str
    reference: str
    first_mutation: int = 0
    """Number of the first mutation that only these servers receive."""


KINDS = ("h11", "httptools", "direct", "direct --limits")


@pytest.fixture(scope="module", params=KINDS)
def servers(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with serving("--http", *request.param.split()) as (ours, reference):
        yield Pair(ours, reference, KINDS.index(request.param) * MUTATIONS)


@contextmanager
def serving(*options: str) -> Iterator[tuple[str, str]]:
    """Run both servers; yields their ports."""
    arguments = ("-m", "tests.server.differential_server", *options)
    with ExitStack() as stack:
        pair = [stack.enter_context(processes.serving(*arguments, *more)) for more in ((), ("--reference",))]
        ours, reference = (each.origin.rpartition(":")[2] for each in pair)
        yield ours, reference


async def answer_to(draft: Draft, port: str, session: str) -> Answer | None:
    """Return the response of a server; None if it closed the connection."""
    raw = draft.raw.replace(SESSION.encode(), session.encode())
    async with sent(int(port), raw, draft.method) as connection:
        head = await connection.head()
        if head is None:
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        kind = headers.get("content-type", "")
        goes_on = draft.method == "GET" and kind.startswith("text/event-stream")
        body = b"" if goes_on else await connection.body()
    messages, kind = _messages(body, kind)
    if "mcp-session-id" in headers:
        headers["mcp-session-id"] = "its own" if headers["mcp-session-id"] == session else "another"
    kept = {name: value for name, value in headers.items() if name in KEPT_HEADERS} | {"content-type": kind}
    if head.status_code == 202 or head.status_code >= 400 or any("error" in each for each in messages):
        del kept["content-type"]
        kept.pop("mcp-session-id", None)
    texts = (json.dumps(_without_text(each), sort_keys=True).replace(session, SESSION) for each in messages)
    found = tuple(SEALED.sub('"requestState": "sealed"', text) for text in texts)
    return Answer(head.status_code, tuple(sorted(kept.items())), found)


def _messages(body: bytes, kind: str) -> tuple[list[Any], str]:
    """Return the messages in a body, and its type; a stream of one message counts as that message."""
    messages = []
    if kind.startswith("text/event-stream"):
        # The event without data, from which a client would resume the stream, is not a message.
        data = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: {")]
        messages = [json.loads(each) for each in data]
        if len(messages) == 1:
            kind = "application/json"
    elif kind.startswith("application/json") and body:
        messages = [json.loads(body)]
    return messages, kind


def _without_text(message: Any) -> Any:
    """Return a message; of an error, the id and the code."""
    error = message.get("error")
    return {"id": message.get("id"), "code": error["code"]} if isinstance(error, dict) else message


async def both(draft: Draft, servers: Pair, sessions: Pair) -> tuple[Answer | None, Answer | None]:
    """Return the responses of the two servers."""
    with anyio.fail_after(DEADLINE_SECONDS):
        ours = await answer_to(draft, servers.ours, sessions.ours)
        return ours, await answer_to(draft, servers.reference, sessions.reference)


async def problems_with(drafts: list[Draft], servers: Pair, sessions: Pair) -> str:
    """Return the differences of the responses."""
    found = [(draft, *await both(draft, servers, sessions)) for draft in drafts]
    return "\n\n".join(described(draft, *answers) for draft, *answers in found if answers[0] != answers[1])


def described(draft: Draft, ours: Answer | None, reference: Answer | None) -> str:
    return f"{ours}\nby the SDK {reference}\nto {draft.raw[:2000]!r}"


def same(ours: Answer | None, reference: Answer | None) -> bool:
    """Return True if both have done a request, with equal responses, or both have refused it."""
    if ours is None or reference is None or not (ours.is_refusal and reference.is_refusal):
        return ours == reference
    return True


def differs(draft: Draft) -> str | None:
    """Return the reason for which only one of the servers does a request; None if both do it, or none."""
    return next(_reasons(draft), None)


def _reasons(draft: Draft) -> Iterator[str]:
    names = Counter(name.lower() for name, _ in draft.headers)
    kind = next((value.strip() for name, value in draft.headers if name.lower() == "content-type"), b"")
    text = draft.body
    if any(count > 1 for count in names.values()):
        yield "of a repeated header, we read the last value, or all, and the SDK the first"
    if kind not in {b"application/json", b"application/json; charset=utf-8"}:
        yield "we read a content type as RFC 9110 says"
    if text[:1] >= b"\x80" or b"\0" in text[:4] or b"\xed\xa0\x80" in text:
        yield "we read UTF-8 without a mark alone (RFC 8259, section 8.1)"
    if b"\\ud8" in text.lower() or b"[" * 150 in text or b'{"a":' * 150 in text:
        yield "we read lone surrogates, and deeper nesting"
    with suppress(ValueError, RecursionError):
        yield from _reasons_in(json.loads(text))


def _reasons_in(message: Any) -> Iterator[str]:
    if not isinstance(message, dict):
        return
    if "method" in message and "id" in message and type(message["id"]) not in {int, str}:
        yield "we refuse ids that are none, which the SDK ignores"
    params: Any = message.get("params")
    if not isinstance(params, dict):
        return
    if not params.keys().isdisjoint({"task", "inputResponses", "requestState", "cursor"}):
        yield "we ignore parameters that a method does not have, as the SDK does those that no method has"
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return
    if type(meta.get("progressToken")) is bool:
        yield "we refuse tokens that are none, which the SDK takes for numbers"
    capabilities = meta.get(CAPABILITIES_KEY)
    if isinstance(capabilities, dict) and not all(map(_is_right, capabilities.values())):
        yield "we check that capabilities are objects, and nothing in them"


def _is_right(capability: Any) -> bool:
    """Return True if a capability is not an object, or one as the schema has it."""
    return not isinstance(capability, dict) or all(
        type(value) is (bool if name == "listChanged" else dict) for name, value in capability.items()
    )


async def sessions_of(servers: Pair) -> Pair:
    return Pair(await open_session(int(servers.ours)), await open_session(int(servers.reference)))


@pytest.mark.anyio
async def test_valid_requests_and_errors_are_answered_as_the_sdk_answers_them(servers: Pair) -> None:
    sessions = await sessions_of(servers)
    drafts = [*plain_drafts(), *talking_drafts(), *other_drafts(), ending()]
    problems = await problems_with(drafts, servers, sessions)
    assert not problems, problems


@pytest.mark.anyio
async def test_a_session_that_was_ended_is_gone(servers: Pair) -> None:
    problems = await problems_with([ending(), *plain_drafts(), ending()], servers, await sessions_of(servers))
    assert not problems, problems


@pytest.mark.anyio
async def test_thousands_of_mutations_are_done_or_refused_as_by_the_sdk(servers: Pair) -> None:
    drafts = [*plain_drafts(), *talking_drafts(), *other_drafts()]
    problems: list[str] = []
    outcomes: Counter[bool] = Counter()

    async def some(numbers: range) -> None:
        async with limit:
            sessions = await sessions_of(servers)
            for number in numbers:
                random = Random(SEED + number)
                draft = spoiled(random, random.choice(drafts))
                ours, reference = await both(draft, servers, sessions)
                outcomes[ours is None or ours.is_refusal] += 1
                if not same(ours, reference) and differs(draft) is None:
                    problems.append(f"mutation {number}: {described(draft, ours, reference)}")

    limit = anyio.CapacityLimiter(AT_ONCE)
    async with anyio.create_task_group() as tasks:
        for first in range(servers.first_mutation, servers.first_mutation + MUTATIONS, MUTATIONS_A_SESSION):
            tasks.start_soon(some, range(first, first + MUTATIONS_A_SESSION))
    assert not problems, f"{len(problems)} differ\n\n" + "\n\n".join(problems[:20])
    assert min(outcomes[True], outcomes[False]) > MUTATIONS / 10
