from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import pytest
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from bridge.redis import redis_at
from bridge.server.cluster.replica import Replica
from bridge.server.cluster.session_records import SessionRecord, SessionRecords, owner_digest

if TYPE_CHECKING:
    from tests.redis_server import RedisServer

DEADLINE_SECONDS = 60
RECORD = SessionRecord(id="1" * 32, owner="", version="2025-11-25", params={"capabilities": {"elicitation": {}}})


@pytest.fixture
def link(redis: RedisServer) -> Replica:
    return Replica(redis_at(redis.url), f"records-{uuid4().hex}")


@pytest.mark.anyio
async def test_a_record_is_found_as_it_was_kept_for_as_long_as_a_session_may_go_unused(link: Replica) -> None:
    async with link.redis:
        records = SessionRecords(link, 100.0)
        for record in (RECORD, replace(RECORD, log_level="error"), replace(RECORD, watched=["a:b"])):
            await records.save(record)
            assert await records.find(RECORD.id) == record
        assert await records.find("2" * 32) is None
        assert 0 < await link.redis.ttl(link.key("session", RECORD.id)) <= 100


@pytest.mark.anyio
async def test_renewing_keeps_what_is_there_makes_good_what_is_lost_and_tells_what_was_ended(link: Replica) -> None:
    async with link.redis:
        records = SessionRecords(link, 100.0)
        kept, lost, ended = (replace(RECORD, id=digit * 32) for digit in "123")
        await records.save(kept)
        await records.save(ended)
        await link.redis.expire(link.key("session", kept.id), 1)
        await records.end(ended.id)
        assert await records.renew([kept, lost, ended]) == [ended.id]
        assert await records.find(lost.id) == lost
        assert await link.redis.ttl(link.key("session", kept.id)) > 1
        await records.save(ended)
        assert await records.find(ended.id) is None


@pytest.mark.anyio
async def test_a_record_that_is_looked_for_is_renewed_as_it_is_about_to_be_used(link: Replica) -> None:
    async with link.redis:
        records = SessionRecords(link, 100.0)
        await records.save(RECORD)
        await link.redis.expire(link.key("session", RECORD.id), 10)
        assert await records.find(RECORD.id) == RECORD
        assert await link.redis.ttl(link.key("session", RECORD.id)) > 10


@pytest.mark.anyio
async def test_what_a_later_version_knows_of_a_session_does_no_harm(link: Replica) -> None:
    async with link.redis:
        content = {"owner": "", "version": RECORD.version, "params": RECORD.params, "color": "green"}
        await link.redis.set(link.key("session", RECORD.id), json.dumps(content))
        assert await SessionRecords(link, 100.0).find(RECORD.id) == RECORD


@pytest.mark.anyio
async def test_a_session_that_is_ended_while_it_is_saved_is_ended(redis: RedisServer, link: Replica) -> None:
    """The commands show that no other client's command can intervene."""
    async with link.redis, redis_at(redis.url) as watching, watching.monitor() as monitor:
        await SessionRecords(link, 100.0).save(RECORD)
        await link.redis.echo("saved")
        asked = []
        with anyio.fail_after(DEADLINE_SECONDS):
            while not (seen := await monitor.next_command())["command"].startswith("ECHO"):
                asked.append((seen["client_type"], seen["command"].partition(" ")[0]))
    assert asked[-2:] == [("lua", "EXISTS"), ("lua", "SET")]


def test_the_owner_is_told_apart_by_what_the_sdk_compares_and_holds_no_secret() -> None:
    def user(token: str, client: str, subject: str | None = None) -> AuthenticatedUser:
        return AuthenticatedUser(AccessToken(token=token, client_id=client, scopes=[], subject=subject))

    mine = owner_digest(user("secret", "ada"), "1")
    assert mine == owner_digest(user("refreshed", "ada"), "1")
    others = [
        (user("secret", "eve"), "1"),
        (user("secret", "ada", "ada"), "1"),
        (user("secret", "ada"), "2"),
        (None, "1"),
    ]
    assert mine not in [owner_digest(*other) for other in others]
    assert "secret" not in mine
    assert owner_digest(None, "1") == ""
