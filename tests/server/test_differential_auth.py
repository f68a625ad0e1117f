"""The same requests, with credentials, to a server with the fast path and to one without: permissions are equal."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import processes
from tests.server.differential_requests import other_drafts, plain_drafts, spoiled
from tests.server.raw_http import open_session
from tests.server.test_differential_http import SEED, Pair, compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.http_mutations import Draft

MUTATIONS = 3 * settings().max_examples // 2
CREDENTIALS = ("whole-whole-whole-whole", "part-part-part-part-part", "narrow-narrow-narrow-narrow")


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    arguments = ("-m", "tests.server.differential_server", "--http", "httptools", "--auth")
    with ExitStack() as stack:
        fast = stack.enter_context(processes.serving(*arguments, "--fast-path"))
        plain = stack.enter_context(processes.serving(*arguments))
        yield Pair(fast.origin.rpartition(":")[2], plain.origin.rpartition(":")[2])


def with_credential(draft: Draft, credential: str) -> Draft:
    return replace(draft, headers=[*draft.headers, ("Authorization", f"Bearer {credential}".encode())])


async def sessions_of(servers: Pair, credential: str) -> Pair:
    header = [("Authorization", f"Bearer {credential}".encode())]
    return Pair(await open_session(int(servers.fast), header), await open_session(int(servers.plain), header))


@pytest.mark.anyio
@pytest.mark.parametrize("credential", CREDENTIALS)
async def test_both_paths_answer_every_caller_alike(servers: Pair, credential: str) -> None:
    sessions = await sessions_of(servers, credential)
    drafts = [with_credential(draft, credential) for draft in (*plain_drafts(), *other_drafts())]
    outcomes = [await compare(draft, servers, sessions) for draft in drafts]
    problems = [problem for problem, _ in outcomes if problem]
    assert not problems, "\n\n".join(problems)
    assert sum(was_fast for _, was_fast in outcomes) > 10


@pytest.mark.anyio
@pytest.mark.parametrize("credential", CREDENTIALS)
async def test_mutations_are_answered_alike(servers: Pair, credential: str) -> None:
    sessions = await sessions_of(servers, credential)
    drafts = [with_credential(draft, credential) for draft in (*plain_drafts(), *other_drafts())]
    problems = []
    for number in range(MUTATIONS):
        random = Random(SEED + number)
        problem, _ = await compare(spoiled(random, random.choice(drafts)), servers, sessions)
        if problem:
            problems.append(f"mutation {number}: {problem}")
    assert not problems, "\n\n".join(problems[:20])


@pytest.mark.anyio
async def test_a_session_is_no_strangers_by_either_path(servers: Pair) -> None:
    sessions = await sessions_of(servers, CREDENTIALS[0])
    for stranger in (*CREDENTIALS[1:], "nobody"):
        for draft in plain_drafts():
            problem, was_fast = await compare(with_credential(draft, stranger), servers, sessions)
            assert problem is None
            assert not (was_fast and any(name == "Mcp-Session-Id" for name, _ in draft.headers))
