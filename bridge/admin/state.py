"""State of a running server, as JSON for operators. It has no secrets, no arguments, and no results."""

from __future__ import annotations

import os
from itertools import islice
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from bridge.redaction import redact_url
from bridge.server.limits.accounts import TEAM_KEY
from bridge.telemetry.activity import latencies
from bridge.text import clip, utc_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bridge.server.auth.auth import Auth
    from bridge.server.http.app import BridgeApp
    from bridge.server.http.probes import HealthState
    from bridge.server.http.sessions import HttpSession
    from bridge.server.limits.accounts import Accounts
    from bridge.server.server import Server
    from bridge.server.tasks.store import TaskRecord
    from bridge.telemetry.activity import ActiveCall, Activity
    from bridge.types import Json

MAX_ITEMS = 200
"""Maximum items of each list; its total number is given beside it."""
ID_CHARS = 8
"""Characters of ids of sessions and tasks that are shown: whoever knows a whole one may use it."""


class AdminState:
    """State of one process.

    Args:
        name: Name of the server.
        version: Version of this package.
        app: The application.
        server: The server.
        operations: Readiness, and the state of the servers behind a gateway.
        activity: Calls under way, and the last records.
        auth: Authentication of callers; None for none.
    """

    def __init__(
        self,
        *,
        name: str,
        version: str,
        app: BridgeApp,
        server: Server,
        operations: HealthState,
        activity: Activity,
        auth: Auth | None,
    ) -> None:
        self._name, self._version = name, version
        self._app, self._server, self._operations = app, server, operations
        self._activity, self._auth = activity, auth
        self._started_at = time()

    def as_json(self) -> Json:
        """Return the state."""
        status, recent = self._operations.status(), self._activity.recent()
        measured = latencies(recent)
        calls = [_call(each) for each in islice(self._activity.calls.copy().values(), MAX_ITEMS)]
        sessions = [each for served in self._app.served for each in served.sessions]
        tasks = [record for served in self._app.served for record in served.server.tasks.running]
        tools = self._server.features.tools
        return {
            "name": self._name,
            "version": self._version,
            "pid": os.getpid(),
            "startedAt": utc_time(self._started_at),
            "uptimeSeconds": round(time() - self._started_at),
            "state": self._state(status["ready"]),
            "missing": status["missing"],
            "servers": [{**each, "latency": measured.get(each["name"])} for each in status["servers"]],
            "calls": calls,
            "callCount": len(self._activity.calls),
            "recent": recent[:MAX_ITEMS],
            "refusals": self._activity.refusals(),
            "callers": _callers(self._server.accounts),
            "teams": status.get("teams", {}),
            "keys": [] if self._auth is None else [_key(each) for each in self._auth.keys[:MAX_ITEMS]],
            "profiles": self._profiles(),
            "tools": [{"name": tool.name, "server": tool.server, "enabled": True} for tool in tools]
            + [{"name": name, "server": None, "enabled": False} for name in tools.disabled],
            "tasks": [_task(each) for each in tasks[:MAX_ITEMS]],
            "taskCount": len(tasks),
            "sessions": [_session(each) for each in sessions[:MAX_ITEMS]],
            "sessionCount": len(sessions),
        }

    def _state(self, is_ready: bool) -> str:
        if self._operations.is_draining:
            return "draining"
        return "ready" if is_ready else "not ready"

    def _profiles(self) -> list[Json]:
        found = []
        for served in self._app.served:
            if (profile := served.profile) is not None:
                tools = len(list(served.server.features.tools))
                needs = {"scopes": sorted(profile.scopes), "claims": dict(profile.claims)}
                found.append({"name": profile.name, "tools": tools, "sessions": len(list(served.sessions)), **needs})
        return found


def _call(operation: ActiveCall) -> Json:
    details, progress = operation.details, operation.progress
    assert details is not None, "others are not kept"
    return {
        "id": operation.id,
        "kind": details.noun,
        "name": details.target
        and clip(redact_url(details.target).shown if details.noun == "resource" else details.target),
        "server": details.server,
        "caller": details.caller and clip(details.caller),
        "team": details.team or None,
        "client": details.client and clip(details.client),
        "transport": details.transport,
        "ageSeconds": round(operation.age_seconds, 3),
        "progress": None if progress is None else progress[0],
        "total": None if progress is None else progress[1],
        "mayCancel": operation.task is not None,
    }


def _callers(accounts: Accounts | None) -> list[Json]:
    if accounts is None:
        return []
    now = accounts.clock()
    return [
        {
            "name": clip(key.removeprefix(TEAM_KEY)),
            "kind": "team" if key.startswith(TEAM_KEY) else "caller",
            **account.as_json(now),
        }
        for key, account in islice(accounts.known().items(), MAX_ITEMS)
    ]


def _key(key: Any) -> Json:
    limits = key.limits
    return {
        "name": key.name,
        "team": key.team,
        "profiles": key.profiles,
        "tools": key.tools,
        "scopes": None if key.scopes is None else sorted(key.scopes),
        "rate": None if limits is None or limits.rate is None else limits.rate.as_json(),
        "concurrency": None if limits is None else limits.concurrency,
        "tasks": None if limits is None else limits.tasks,
        "bytes": None if limits is None or limits.bytes is None else limits.bytes.as_json("bytes"),
    }


def _task(record: TaskRecord) -> Json:
    return {
        "id": record.task.id[:ID_CHARS],
        "tool": record.tool,
        "caller": clip(record.owner) if record.owner else None,
        "status": record.task.status,
        "ageSeconds": round(time() - record.task.created_at),
        "runs": record.runs,
    }


def _session(session: HttpSession) -> Json:
    now = monotonic()
    return {
        "id": session.id[:ID_CHARS],
        "caller": clip(session.owner) if session.owner else None,
        "client": session.client,
        "protocolVersion": session.version,
        "ageSeconds": round(now - session.opened_at),
        "idleSeconds": 0 if session.requests else round(now - session.unused_since),
        "requests": session.requests,
        "streams": session.streams,
    }


def merged(states: Mapping[str, Json]) -> Json:
    """Return the states of several workers as one; items of their lists have the number of the ``worker``."""
    first = next(iter(states.values()))
    found: Json = {**first, "processes": [_process(number, each) for number, each in sorted(states.items())]}
    for name, value in first.items():
        if isinstance(value, list) and name not in _SAME_IN_ALL:
            found[name] = _items(name, states)
        elif name.endswith("Count"):
            found[name] = sum(each[name] for each in states.values())
    found["recent"] = sorted(found["recent"], key=lambda each: each["time"], reverse=True)[:MAX_ITEMS]
    found["missing"] = sorted({reason for each in states.values() for reason in each["missing"]})
    found["teams"] = _teams([each["teams"] for each in states.values()])
    found["state"] = _worst(each["state"] for each in states.values())
    return found


_SAME_IN_ALL = frozenset({"keys", "tools", "missing"})
_STATES = ("draining", "not ready", "ready")


def _process(number: str, state: Json) -> Json:
    return {"worker": number, **{name: state[name] for name in ("pid", "state", "uptimeSeconds", "callCount")}}


def _items(name: str, states: Mapping[str, Json]) -> list[Json]:
    return [{**item, "worker": number} for number, state in sorted(states.items()) for item in state[name]]


def _worst(states: Iterable[str]) -> str:
    return min(states, key=_STATES.index)


def _teams(tables: Sequence[Json]) -> Json:
    """Return the sums of the tables of teams."""
    found: Json = {}
    for table in tables:
        for team, usage in table.items():
            found[team] = usage if team not in found else _sum(found[team], usage)
    return dict(sorted(found.items()))


def _sum(first: Json, second: Json) -> Json:
    return {
        name: _sum(first.get(name, {}), second.get(name, {})) if isinstance(first.get(name, second.get(name)), dict)
        else round(first.get(name, 0) + second.get(name, 0), 3)
        for name in {**first, **second}
    }  # fmt: skip
