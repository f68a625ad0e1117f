"""The same requests, with credentials, to our server and to the SDK's behind our guards: permissions are equal."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.server.differential_requests import other_drafts, plain_drafts, spoiled
from tests.server.raw_http import open_session
from tests.server.test_differential_http import (
    SEED,
    Pair,
    both,
    described,
    differs,
    problems_with,
    same,
    serving,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.http_mutations import Draft

MUTATIONS = 3 * settings().max_examples // 2
CREDENTIALS = ("whole-whole-whole-whole", "part-part-part-part-part", "narrow-narrow-narrow-narrow")


@pytest.fixture(scope="module", params=["httptools", "direct"])
def servers(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with serving("--http", request.param, "--auth") as (ours, reference):
        yield Pair(ours, reference)


def with_credential(draft: Draft, credential: str) -> Draft:
    return replace(draft, headers=[*draft.headers, ("Authorization", f"Bearer {credential}".encode())])


async def sessions_of(servers: Pair, credential: str) -> Pair:
    header = [("Authorization", f"Bearer {credential}".encode())]
    return Pair(await open_session(int(servers.ours), header), await open_session(int(servers.reference), header))


@pytest.mark.anyio
@pytest.mark.parametrize("credential", CREDENTIALS)
async def test_every_caller_is_answered_as_by_the_sdk(servers: Pair, credential: str) -> None:
    sessions = await sessions_of(servers, credential)
    drafts = [with_credential(draft, credential) for draft in (*plain_drafts(), *other_drafts())]
    problems = await problems_with(drafts, servers, sessions)
    assert not problems, problems


@pytest.mark.anyio
@pytest.mark.parametrize("credential", CREDENTIALS)
async def test_mutations_are_done_or_refused_as_by_the_sdk(servers: Pair, credential: str) -> None:
    sessions = await sessions_of(servers, credential)
    drafts = [with_credential(draft, credential) for draft in (*plain_drafts(), *other_drafts())]
    problems = []
    for number in range(MUTATIONS):
        random = Random(SEED + number)
        draft = spoiled(random, random.choice(drafts))
        ours, reference = await both(draft, servers, sessions)
        if not same(ours, reference) and differs(draft) is None:
            problems.append(f"mutation {number}: {described(draft, ours, reference)}")
    assert not problems, "\n\n".join(problems[:20])


@pytest.mark.anyio
async def test_a_session_is_no_strangers(servers: Pair) -> None:
    sessions = await sessions_of(servers, CREDENTIALS[0])
    for stranger in (*CREDENTIALS[1:], "nobody"):
        for draft in plain_drafts():
            ours, reference = await both(with_credential(draft, stranger), servers, sessions)
            assert ours == reference
            assert ours is not None
            if any(name == "Mcp-Session-Id" for name, _ in draft.headers):
                assert ours.status in {401, 403, 404}
