"""``/metrics``: what was counted, as Prometheus fetches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class WrittenMetrics(Protocol):
    """Metrics that can be written down: of one process, or of several that are one server."""

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """See `bridge.telemetry.prometheus.PrometheusMetrics.text`."""
        ...


class MetricsPage:
    """ASGI: the metrics. They name tools and servers, and no caller.

    Args:
        metrics: The metrics; None where nothing is counted.
    """

    def __init__(self, metrics: WrittenMetrics | None) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        response: Response
        if scope["method"] not in {"GET", "HEAD"}:
            response = PlainTextResponse("only GET is answered here\n", 405, {"allow": "GET, HEAD"})
        elif self._metrics is None:
            response = PlainTextResponse("nothing is counted: bridge serve --metrics\n", 404)
        else:
            accept = Headers(scope=scope).get("accept", "")
            # Writing them down takes milliseconds, in which no call should have to wait.
            text, content_type = await anyio.to_thread.run_sync(self._metrics.text, accept)
            response = Response(text, headers={"content-type": content_type, "cache-control": "no-store"})
        await response(scope, receive, send)
