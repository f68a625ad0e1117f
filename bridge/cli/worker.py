"""A worker's side of the channel to its parent; see `bridge.hosting.workers`."""

from __future__ import annotations

import json
import os
import signal
from queue import Empty, Queue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from bridge.telemetry.prometheus import PrometheusMetrics

_METRICS_SECONDS = 10.0
"""How long the parent may take to ask all workers."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Worker:
    """This process, as one of several.

    Args:
        channel: The way to the parent.
        is_ending: Whether this process has begun to end.
        metrics: What this process counts; None for nothing.
    """

    def __init__(
        self, channel: socket.socket, is_ending: Callable[[], bool], metrics: PrometheusMetrics | None
    ) -> None:
        self._channel = channel
        self._is_ending = is_ending
        self._metrics = metrics
        self._writing = Lock()
        self._asking = Lock()
        self._given: Queue[Mapping[str, str]] = Queue()
        Thread(target=self._listen, name="bridge-worker", daemon=True).start()

    def opened(self) -> None:
        """Say that requests are served."""
        self._tell({"say": "opened"})

    def text(self, accept: str = "") -> tuple[bytes, str]:  # noqa: ARG002 - one format, whoever asks
        """The metrics of all workers (see `PrometheusMetrics.text`), each with the label ``worker``."""
        from bridge.telemetry.prometheus import merge_expositions  # noqa: PLC0415 - an extra

        with self._asking:
            while not self._given.empty():  # what came too late for whoever asked before
                self._given.get()
            self._tell({"give": "metrics of all"})
            try:
                texts = self._given.get(timeout=_METRICS_SECONDS)
            except Empty:
                texts = {}
        return merge_expositions(texts, label="worker").encode(), CONTENT_TYPE

    def _tell(self, message: Mapping[str, Any]) -> None:
        with self._writing:
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        with self._channel.makefile("rb") as lines:
            for line in lines:
                match json.loads(line):
                    case {"end": number}:
                        self._end(number)
                    case {"give": "metrics"}:
                        self._tell({"metrics": "" if self._metrics is None else self._metrics.text()[0].decode()})
                    case {"metrics of all": texts}:
                        self._given.put(texts)
        self._end(signal.SIGTERM)  # the parent has gone

    def _end(self, number: int) -> None:
        # Whoever ends a service may signal each of its processes: a second signal would end this one at once.
        if not self._is_ending():
            os.kill(os.getpid(), number)
