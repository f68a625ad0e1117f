"""Profile guard: refuses requests for profiles that are not given to their caller, as those for any unknown path."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

from bridge.server.auth.failures import Challenge, send_challenge
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.http.requests import Request
    from bridge.server.profiles import Profile

_logger = logging.getLogger("bridge.server.auth")


class ProfileGuard:
    """Guard that admits requests for the profiles that are given to their caller.

    Args:
        profiles: The profiles, by path.
        metadata_url: URL of the metadata of the issuers of tokens; None if there is none.
    """

    def __init__(self, profiles: Mapping[str, Profile], metadata_url: str | None) -> None:
        self._profiles = profiles
        self._metadata_url = metadata_url
        self._repetitions = Repetitions()

    def admits_at_once(self, request: Request) -> bool:
        """Admit a request unless `admit` has to refuse it."""
        return self._refused(request) is None

    async def admit(self, request: Request) -> bool:
        """Check the caller of a request; with 403 for scopes that it can request, and 404 otherwise."""
        if (profile := self._refused(request)) is None:
            return True
        user = request.user
        shown = None if user is None else clip(user.caller.name)
        if (addition := self._repetitions.addition(shown, profile.name)) is not None:
            _logger.warning("refused %r the profile %r%s", shown, profile.name, addition)
        missing = None if user is None else profile.missing(user.access_token)
        if missing and request.access.profiles is None and not profile.claims:
            scopes = " ".join(sorted(profile.scopes))
            challenge = Challenge(
                status=403,
                error="insufficient_scope",
                description=f"this profile needs the scope {scopes}",
                scopes=profile.scopes,
            )
            await send_challenge(request.send, challenge, self._metadata_url)
        else:
            await PlainTextResponse("Not Found", 404)(request.scope, request.receive, request.send)
        return False

    def _refused(self, request: Request) -> Profile | None:
        profile = self._profiles.get(path_of(request))
        if profile is None:
            return None
        token = None if request.user is None else request.user.access_token
        return None if profile.is_given_to(token, request.access.profiles) else profile


def path_of(request: Request) -> str:
    """Return the path of a request within its app."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))
