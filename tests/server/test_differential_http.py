"""Thousands of equal requests to a server with the fast path and to one without: their responses are equal."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import settings

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
    body: str


@dataclass(frozen=True)
class Pair:
    """Ports of the two servers, or IDs of their sessions."""

    fast: str
    plain: str
    first_mutation: int = 0
    """Number of the first mutation that only these servers receive."""


KINDS = ("h11", "httptools", "direct", "direct --limits")


@pytest.fixture(scope="module", params=KINDS)
def servers(request: pytest.FixtureRequest) -> Iterator[Pair]:
    arguments = ("-m", "tests.server.differential_server", "--http", *request.param.split())
    with ExitStack() as stack:
        fast = stack.enter_context(processes.serving(*arguments, "--fast-path"))
        plain = stack.enter_context(processes.serving(*arguments))
        first = KINDS.index(request.param) * MUTATIONS
        yield Pair(fast.origin.rpartition(":")[2], plain.origin.rpartition(":")[2], first)


async def answer_to(draft: Draft, port: str, session: str) -> tuple[Answer | None, bool]:
    """Return the response of a server, and True if the fast path gave it."""
    raw = draft.raw.replace(SESSION.encode(), session.encode())
    async with sent(int(port), raw, draft.method) as connection:
        head = await connection.head()
        if head is None:
            return None, False
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        kind = headers.get("content-type", "")
        goes_on = draft.method == "GET" and kind.startswith("text/event-stream")
        body = b"" if goes_on else await connection.body()
    messages, kind = _messages(body, kind)
    if "mcp-session-id" in headers:
        headers["mcp-session-id"] = "its own" if headers["mcp-session-id"] == session else "another"
    kept = {name: value for name, value in headers.items() if name in KEPT_HEADERS} | {"content-type": kind}
    text = SEALED.sub('"requestState": "sealed"', messages.replace(session, SESSION))
    return Answer(head.status_code, tuple(sorted(kept.items())), text), "x-fast" in headers


def _messages(body: bytes, kind: str) -> tuple[str, str]:
    """Return the messages in a body in one form; a stream of one message counts as that message."""
    if kind.startswith("text/event-stream"):
        # The event without data, from which a client would resume the stream, is not a message.
        data = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: {")]
        messages = [json.loads(each) for each in data]
        if len(messages) == 1:
            kind = "application/json"
    elif kind.startswith("application/json") and body:
        messages = [json.loads(body)]
    else:
        return body.decode("latin-1"), kind
    return "\n".join(json.dumps(each, sort_keys=True) for each in messages), kind


async def compare(draft: Draft, servers: Pair, sessions: Pair) -> tuple[str | None, bool]:
    """Return the difference of the responses, if any, and True if the fast path gave one."""
    with anyio.fail_after(DEADLINE_SECONDS):
        fast, was_fast = await answer_to(draft, servers.fast, sessions.fast)
        plain, _ = await answer_to(draft, servers.plain, sessions.plain)
    if fast == plain:
        return None, was_fast
    return f"with the fast path {fast}\nwithout {plain}\nto {draft.raw[:2000]!r}", was_fast


async def sessions_of(servers: Pair) -> Pair:
    return Pair(await open_session(int(servers.fast)), await open_session(int(servers.plain)))


@pytest.mark.anyio
async def test_plain_requests_take_the_fast_path_and_are_answered_as_the_sdk_answers_them(servers: Pair) -> None:
    sessions = await sessions_of(servers)
    outcomes = [(draft, *await compare(draft, servers, sessions)) for draft in plain_drafts()]
    problems = [problem for _, problem, _ in outcomes if problem]
    assert not problems, "\n\n".join(problems)
    assert not [draft.body for draft, _, was_fast in outcomes if not was_fast]


@pytest.mark.anyio
async def test_what_is_not_plain_is_the_sdks_to_answer(servers: Pair) -> None:
    sessions = await sessions_of(servers)
    drafts = [*talking_drafts(), *other_drafts(), ending()]
    outcomes = [(draft, *await compare(draft, servers, sessions)) for draft in drafts]
    problems = [problem for _, problem, _ in outcomes if problem]
    assert not problems, "\n\n".join(problems)
    assert not [draft.body for draft, _, was_fast in outcomes if was_fast]


@pytest.mark.anyio
async def test_a_session_that_was_ended_is_gone_on_the_fast_path_too(servers: Pair) -> None:
    sessions = await sessions_of(servers)
    outcomes = [await compare(draft, servers, sessions) for draft in (ending(), *plain_drafts(), ending())]
    problems = [problem for problem, _ in outcomes if problem]
    assert not problems, "\n\n".join(problems)


@pytest.mark.anyio
async def test_thousands_of_mutations_are_answered_as_the_sdk_answers_them(servers: Pair) -> None:
    drafts = [*plain_drafts(), *talking_drafts(), *other_drafts()]
    problems: list[str] = []
    fast = 0

    async def some(numbers: range) -> None:
        nonlocal fast
        sessions = await sessions_of(servers)
        for number in numbers:
            random = Random(SEED + number)
            problem, was_fast = await compare(spoiled(random, random.choice(drafts)), servers, sessions)
            fast += was_fast
            if problem:
                problems.append(f"mutation {number}: {problem}")

    limit = anyio.CapacityLimiter(AT_ONCE)

    async def within_limit(numbers: range) -> None:
        async with limit:
            await some(numbers)

    async with anyio.create_task_group() as tasks:
        for first in range(servers.first_mutation, servers.first_mutation + MUTATIONS, MUTATIONS_A_SESSION):
            tasks.start_soon(within_limit, range(first, first + MUTATIONS_A_SESSION))
    assert not problems, f"{len(problems)} differ\n\n" + "\n\n".join(problems[:20])
    assert fast > MUTATIONS / 10
