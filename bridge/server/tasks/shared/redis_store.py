"""Store of tasks on Redis: one operation of the script for each change, and how its failures are reported."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
from pydantic_core import from_json, to_json

from bridge.redis import redis_at
from bridge.server.cluster.replica import Replica
from bridge.server.tasks.shared.script import EXPIRED_MILLISECONDS, SCRIPT
from bridge.server.tasks.store import TaskStoreError, record_from_json, record_to_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from bridge.server.tasks.store import TaskRecord
    from bridge.types import Json

Held = Literal["held", "ended", "lost", "gone"]
"""State of a claim: of this process, ended by it, of another process, or of a task that does not exist any more."""

_FIELDS = ("state", "status", "outcome", "runner", "fence", "again", "runs", "cancelled")
_MILLISECONDS = 1000
_COMMAND_SECONDS = 5.0
_MAX_MAIL = 1000
_SERVED_MILLISECONDS = 10_000
"""Time for which a tool counts as served after a process has said so, which it does every second while tasks wait."""


class Claim(NamedTuple):
    """Right to change a task."""

    runner: str
    """The process; empty while the task waits for one."""
    fence: str
    """Grows with each claim of the task."""


LOST = Claim("", "0")
"""Claim of a task that has failed because Redis has lost it."""


class SharedRecord(NamedTuple):
    """A task on Redis."""

    record: TaskRecord
    claim: Claim
    may_run_again: bool
    """True if a further run of its tool is harmless."""
    is_cancelled: bool
    """True if its client has cancelled it."""
    seconds_left: float | None
    """Time until it expires, by the clock of Redis; None for never."""


class Registered(NamedTuple):
    """All processes, and the tasks that wait for one."""

    is_unknown: bool
    """True if Redis did not know the process that asks."""
    runners: list[str]
    """Processes that run tasks, or did."""
    waiting: int
    """Number of waiting tasks."""
    oldest: float | None
    """Time at which the oldest of them was created; None without one."""
    tools: set[str]
    """Tools of the waiting tasks."""


class MalformedTaskError(TaskStoreError):
    """A stored task cannot be read."""


class RedisTaskStore:
    """Keeps tasks on Redis, for all processes of a server; for `TaskOptions`. Needs the extra ``tasks``.

    Any process runs them, and any process answers for them.

    Args:
        url: URL of the Redis, such as ``redis://localhost:6379/0``.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not a Redis URL.
    """

    is_durable = True
    is_shared = True

    def __init__(self, url: str) -> None:
        self.url = url
        """The URL, on which events are kept, too."""
        # Sessions have connections of their own: they may be on another Redis, and do not wait for large results.
        self._redis = redis_at(url, "a store of tasks on Redis", "tasks")

    def beside(self, name: str) -> RedisTaskStore:  # noqa: ARG002 - keys begin with the name of the server
        """Return the store of a profile on the same Redis."""
        return copy(self)

    def connect(self, server: str) -> None:
        """Prepare to use the tasks of the server of this name; done by its `Server`."""
        # The braces put all keys on one node of a Redis Cluster.
        consequence = "tasks are answered by errors until it is available again"
        self.replica = Replica(self._redis, f"bridge:{{{server}}}:tasks", consequence)
        """This process, and its messages to and from others."""
        self._script = self._redis.register_script(SCRIPT)

    # --- requests of clients ------------------------------------------------------------------------------------------

    async def room(self, account: str, stored_bytes: int, maxima: tuple[int, int]) -> Literal["ok", "tasks", "bytes"]:
        """Return the maximum that is reached, ``tasks`` or ``bytes``, or ``ok``.

        Args:
            account: The caller.
            stored_bytes: Bytes of a further task.
            maxima: Maximum of unfinished tasks, and of stored bytes.

        Raises:
            TaskStoreError: Redis does not answer; so do all methods.
        """
        reached: Literal["ok", "tasks", "bytes"] = await self._run("room", account, stored_bytes, *maxima)
        return reached

    async def create(
        self, record: TaskRecord, maxima: tuple[int, int], runner: str, *, may_run_again: bool
    ) -> Literal["ok", "tasks", "bytes"]:
        """Add a task, which a process holds, with the fence 1; return the maximum that is reached, or ``ok``."""
        created: Literal["ok", "tasks", "bytes"] = await self._run(
            "create",
            record.task.id,
            _milliseconds_left(record),
            record.account,
            record.stored_bytes,
            *maxima,
            runner,
            *_fields(record, may_run_again=may_run_again),
        )
        return created

    async def forget(self, task_id: str, runner: str) -> None:
        """Delete a task, which a process runs."""
        await self._run("forget", task_id, runner)

    async def find(self, task_id: str) -> SharedRecord | None:
        """Return a task without its request; None if there is no such task."""
        return await self._found(task_id, _FIELDS)

    async def find_with_request(self, task_id: str) -> SharedRecord | None:
        """Return a task with its request; None if there is no such task."""
        return await self._found(task_id, (*_FIELDS, "request"))

    async def _found(self, task_id: str, names: tuple[str, ...]) -> SharedRecord | None:
        try:
            task_id.encode()
        except UnicodeEncodeError:  # lone surrogates, which JSON may have
            return None
        key = self.replica.key("task", task_id)

        async def commands() -> list[Any]:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.hmget(key, names)
                pipeline.pttl(key)
                found: list[Any] = await pipeline.execute()
                return found

        values, left_milliseconds = await self._bounded(commands)
        fields = dict(zip(names, values, strict=True))
        if fields["state"] is None or 0 <= left_milliseconds <= EXPIRED_MILLISECONDS:
            return None
        try:
            request, outcome = (fields.get("request") or "").encode(), (fields["outcome"] or "").encode()
            record = replace(record_from_json(fields["state"], request, outcome), runs=int(fields["runs"]))
        except ValueError as error:
            raise MalformedTaskError(f"a task on Redis is malformed: {error}") from error
        claim = Claim(fields["runner"], fields["fence"])
        left = None if left_milliseconds < 0 else (left_milliseconds - EXPIRED_MILLISECONDS) / _MILLISECONDS
        return SharedRecord(record, claim, fields["again"] == "1", fields["cancelled"] == "1", left)

    async def answers(self, task_id: str) -> dict[str, Json]:
        """Return the answers to the questions of a task that has not ended, by key."""
        key = self.replica.key("answers", task_id)
        given: dict[str, str] = await self._bounded(lambda: self._redis.hgetall(key))
        return {name: from_json(answer) for name, answer in given.items()}

    async def answer(self, task_id: str, answers: Mapping[str, Json]) -> None:
        """Add answers to questions; those that were answered before stay."""
        given = [part for name, answer in answers.items() for part in (name, to_json(answer))]
        await self._run("answer", task_id, *given)

    async def is_first_misfit(self, task_id: str, key: str) -> bool:
        """Note that an answer does not fit its question; return True if none was noted before."""
        return bool(await self._run("misfit", task_id, key))

    async def is_served(self, tool: str) -> bool:
        """Return True if a process that lives runs waiting tasks of a tool."""
        return bool(await self._run("is_served", _SERVED_MILLISECONDS, tool))

    async def cancel(self, cancelled: TaskRecord) -> bool:
        """Cancel a task: by a message to its process, or at once if it waits for one; return True if it did."""
        outcome = await self._run("cancel", cancelled.task.id, record_to_json(cancelled), cancelled.stored_bytes)
        return bool(outcome == "done")

    # --- processes that run tasks -------------------------------------------------------------------------------------

    async def claim(self, runner: str, most: int, skipped: Collection[str]) -> list[str]:
        """Take tasks that wait; return their ids.

        Args:
            runner: The process.
            most: Maximum number of tasks.
            skipped: Tools whose tasks are left to others.
        """
        claimed: list[str] = await self._run("claim", runner, most, to_json(sorted(skipped)))
        return claimed

    async def put(self, record: TaskRecord, claim: Claim) -> Held:
        """Store the state of a task that runs."""
        return await self._held("put", record, claim, record.task.status, record_to_json(record))

    async def finish(self, record: TaskRecord, claim: Claim, max_bytes: int | None) -> Held | Literal["done", "full"]:
        """Store the end of a task: ``done``, or ``full`` if its outcome is over the maximum of stored bytes."""
        ended: Held | Literal["done", "full"] = await self._run(
            "finish",
            record.task.id,
            *claim,
            record.task.status,
            record_to_json(record),
            record.task.outcome,
            record.stored_bytes,
            "" if max_bytes is None else max_bytes,
        )
        return ended

    async def release(self, record: TaskRecord, claim: Claim, *, is_counted: bool, has_begun: bool) -> Held:
        """Let a task wait for another process.

        Args:
            record: The task.
            claim: The claim that ends.
            is_counted: True to count the run.
            has_begun: True if its state has changed.
        """
        state = record_to_json(record) if has_begun else ""
        return await self._held("release", record, claim, record.task.created_at, "1" if is_counted else "", state)

    async def restore(self, record: TaskRecord, claim: Claim, *, may_run_again: bool) -> Held:
        """Store a task that Redis has lost: one that runs, or has failed because it was lost, with the claim `LOST`."""
        fields = _fields(record, may_run_again=may_run_again)
        size = (_milliseconds_left(record), record.account, record.stored_bytes)
        restored: Held = await self._run("restore", record.task.id, *size, *claim, *fields)
        return restored

    async def _held(self, operation: str, record: TaskRecord, claim: Claim, *arguments: Any) -> Held:
        held: Held = await self._run(operation, record.task.id, *claim, *arguments)
        return held

    async def register(self, runner: str) -> Registered:
        """Note that a process runs tasks; return what it has to know of the others."""

        async def commands() -> list[Any]:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.sadd(self.replica.key("runners"), runner)
                pipeline.smembers(self.replica.key("runners"))
                pipeline.zcard(self.replica.key("queue"))
                pipeline.zrange(self.replica.key("queue"), 0, 0, withscores=True)
                pipeline.smembers(self.replica.key("queued"))
                found: list[Any] = await pipeline.execute()
                return found

        added, runners, waiting, oldest, tools = await self._bounded(commands)
        return Registered(bool(added), sorted(runners), waiting, oldest[0][1] if oldest else None, tools)

    async def serve(self, tools: Collection[str]) -> None:
        """Note that a process runs waiting tasks of some tools."""
        await self._run("serve", _SERVED_MILLISECONDS, to_json(sorted(tools)))

    async def held_by(self, runner: str) -> set[str]:
        """Return the ids of the tasks that a process runs."""
        found: set[str] = await self._bounded(lambda: self._redis.smembers(self.replica.key("of", runner)))
        return found

    async def mail(self, runner: str) -> Iterable[str]:
        """Take the ids of tasks that have answers for a process, or were cancelled."""
        key = self.replica.key("mail", runner)
        return dict.fromkeys(await self._bounded(lambda: self._redis.lpop(key, _MAX_MAIL)) or ())

    async def unregister(self, runner: str) -> None:
        """Note that a process runs no tasks any more."""

        async def commands() -> None:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.srem(self.replica.key("runners"), runner)
                pipeline.delete(self.replica.key("mail", runner), self.replica.key("of", runner))
                await pipeline.execute()

        await self._bounded(commands)

    async def has_ended(self, runner: str) -> bool:
        """Return True if a process has certainly ended."""
        has_ended: bool = await self._bounded(lambda: self.replica.has_ended(runner))
        return has_ended

    async def _run(self, operation: str, *arguments: Any) -> Any:
        key = self.replica.key()
        return await self._bounded(lambda: self._script(keys=[key], args=[operation, *arguments]))

    async def _bounded(self, command: Callable[[], Awaitable[Any]]) -> Any:
        if not self.replica.is_up:
            raise TaskStoreError("Redis is unavailable: it did not answer the last command")
        try:
            with anyio.move_on_after(_COMMAND_SECONDS):
                return await command()
            raise TimeoutError(f"it did not answer within {_COMMAND_SECONDS:g} seconds")
        except self.replica.failures as error:
            self.replica.failed(error)
            raise TaskStoreError(f"Redis cannot be used: {str(error) or type(error).__name__}") from error


def _milliseconds_left(record: TaskRecord) -> int | str:
    """Return the time until a task of this process expires; empty for never."""
    return "" if record.expires_at is None else max(0, int((record.expires_at - time()) * _MILLISECONDS))


def _fields(record: TaskRecord, *, may_run_again: bool) -> list[Any]:
    task = record.task
    return [
        *("state", record_to_json(record), "status", task.status, "outcome", task.outcome),
        *("request", record.request, "tool", record.tool, "runs", record.runs, "again", "1" if may_run_again else ""),
    ]
