"""The servers of one app by path: the server itself, or those of its profiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from bridge.errors import DefinitionError
from bridge.server.http.probes import ADMIN_PATH, PATHS
from bridge.server.http.requests import MESSAGES_PATH, STREAM_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.cluster import Cluster
    from bridge.server.http.sessions import Sessions
    from bridge.server.profiles import Profile
    from bridge.server.server import Server


_TAKEN = frozenset({STREAM_PATH, MESSAGES_PATH.rstrip("/"), *PATHS, ADMIN_PATH})
"""Paths at which no profile can be served."""


class ServedServer(NamedTuple):
    """A server at a path of an app."""

    server: Server
    sessions: Sessions
    cluster: Cluster | None
    profile: Profile | None
    """The profile; None for the server itself, which needs none."""


def served_at(
    path: str,
    server: Server,
    profiles: tuple[Profile, ...],
    make_sessions: Callable[[], Sessions],
    *,
    session_idle_seconds: float | None,
    redis_url: str | None,
    streamable: bool,
    has_auth: bool,
) -> dict[str, ServedServer]:
    """Return the servers of an app by path; `bridge.server.http.app.http_app` documents the arguments.

    Raises:
        DefinitionError: Two profiles have the same name, or one needs scopes or claims without authentication, or would
            be served at the path of something else.
        ValueError: Profiles would be served over SSE alone.
    """
    by_path = _by_path(profiles, path, streamable=streamable, has_auth=has_auth)
    pages = server.features.pages
    for at in by_path.keys() & {*_TAKEN, *([] if pages is None else [pages.path])}:
        raise DefinitionError(
            f"the profile {by_path[at].name!r} would be served at {at!r}, which is a page of the server: rename it, or "
            f"choose another path than {path!r}"
        )
    served: dict[str, ServedServer] = {}
    for at, profile in by_path.items() or ((path, None),):
        each = server if profile is None else server.with_profile(profile)
        each.session_idle_seconds = session_idle_seconds
        sessions, cluster = make_sessions(), None
        if redis_url is not None:
            cluster = _cluster(redis_url, each, sessions, session_idle_seconds, counts_rates=not served)
        served[at] = ServedServer(each, sessions, cluster, profile)
    return served


def served_profiles(served: Mapping[str, ServedServer], path: str) -> dict[str, Server]:
    """Return the servers of profiles by the paths of messages, without slashes at their ends."""
    found = {at.rstrip("/"): each.server for at, each in served.items() if each.profile is not None}
    default = found.get(path.rstrip("/"))
    return found if default is None else found | {MESSAGES_PATH.rstrip("/"): default}


def _by_path(profiles: tuple[Profile, ...], path: str, *, streamable: bool, has_auth: bool) -> dict[str, Profile]:
    """Return profiles by path; a path of the server itself has none.

    Raises:
        DefinitionError: Two have the same name, or one needs scopes or claims without authentication.
        ValueError: They would be served over SSE alone.
    """
    found: dict[str, Profile] = {}
    for profile in profiles:
        if not streamable:
            raise ValueError("profiles are served over streamable HTTP: pass streamable=True, or no profiles")
        at = profile.path_below(path)
        if at in found:
            raise DefinitionError(f"two profiles have the name {profile.name!r}: rename one")
        if profile.is_restricted and not has_auth:
            raise DefinitionError(
                f"the profile {profile.name!r} needs scopes or claims, and callers are not authenticated: pass auth=…"
            )
        found[at] = profile
    return found


def _cluster(
    redis_url: str, server: Server, sessions: Sessions, idle_seconds: float | None, *, counts_rates: bool
) -> Cluster:
    """Return what the replicas of a server share, and let them share its tasks and its large results."""
    from bridge.server.cluster import Cluster  # noqa: PLC0415 - only for those who have replicas, and an extra

    cluster = Cluster(redis_url, server, sessions, idle_seconds, counts_rates=counts_rates)
    if server.task_options.store is None:
        from bridge.server.tasks.shared.redis_store import RedisTaskStore  # noqa: PLC0415 - as above

        server.task_options = replace(server.task_options, store=RedisTaskStore(redis_url))
    if server.kept is not None and server.kept.spill.store is None:
        from bridge.tools.spill.redis_store import RedisResultStore  # noqa: PLC0415 - as above

        server.kept.spill.use(RedisResultStore(redis_url, server.name))
    return cluster
