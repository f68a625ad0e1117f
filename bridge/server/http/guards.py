"""The direct way: what a server that knows of it may answer without ASGI, when a request came whole.

An ASGI server makes a task and its messages for every request before the app sees it, and a third of a plain call goes
there. `Direct` asks the same questions as the edge and the fast path, in one function that does not wait; what it does
not answer goes the way of all requests, where whatever is wrong with it is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from bridge.server.auth.guarding import Guarding
    from bridge.server.http.fast import Answer, Beginner, Work
    from bridge.server.http.host_origin import Names

_SPACE = b" \t"


class Direct:
    """Begins with a POST that came whole, if it is plain.

    Args:
        fast: What begins with it.
        names: Which names are let in.
        max_request_bytes: How long a request's body may be.
        guarding: Who may come in; None for everyone.
        is_open: As for `bridge.server.http.app.direct_way`.
    """

    def __init__(
        self,
        fast: Beginner,
        names: Names,
        max_request_bytes: int,
        guarding: Guarding | None,
        is_open: Callable[[], bool],
    ) -> None:
        self._names = names
        self._max_request_bytes = max_request_bytes
        self._is_open = is_open
        self._begin = fast.begin if guarding is None else guarding.beginning(fast)

    def begin(self, scope: Scope, body: bytes) -> Answer | Work | None:
        """As `FastHttp.begin`, for a request that nobody has looked at.

        Args:
            scope: The request, as ASGI has it.
            body: Its body, whole.
        """
        headers = {name: value.strip(_SPACE) for name, value in scope["headers"]}
        if (
            len(headers) < len(scope["headers"])
            or b"transfer-encoding" in headers
            or not self._names.admit_plainly(headers)
            or len(body) > self._max_request_bytes
            or not self._is_open()
        ):
            return None
        return self._begin(scope, headers, body)
