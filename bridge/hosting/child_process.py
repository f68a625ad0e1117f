"""Sockets and channel handed to a child; its command line.

Inheritance: what a process that binds sockets hands down to children that run the same command line.

Secrets on a command line, which every user of the machine sees: a child gets them in its environment instead.

A worker's side of the channel to its parent; see `bridge.hosting.workers`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from dataclasses import dataclass, field
from functools import cache
from queue import Empty, Queue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from bridge.hosting.process import HostingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.telemetry.prometheus import PrometheusMetrics

_VARIABLE = "BRIDGE_INHERITANCE"

_SECRETS = {
    "--api-key": "BRIDGE_API_KEY",
    "--oauth-client-secret": "BRIDGE_OAUTH_CLIENT_SECRET",
    "--state-keys": "BRIDGE_STATE_KEYS",
    "--redis-url": "BRIDGE_REDIS_URL",
}

_REPEATABLE = frozenset({"--api-key", "--state-keys"})

_METRICS_SECONDS = 10.0
"""How long the parent may take to ask all workers."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedSockets:
    """What one child gets."""

    sockets: list[socket.socket]
    """Where to listen."""
    admin_sockets: list[socket.socket] = field(default_factory=list)
    """Where to tell of itself."""
    channel: socket.socket | None = None
    """How a worker and its parent talk; None for a child that is no worker, and ends only to start again."""
    opened: socket.socket | None = None
    """Where such a child writes a byte when it serves; the parent sees the end of it where the child has ended."""
    is_late: bool = False
    """Whether others listen already, so that connections have time until all is open here."""

    @property
    def descriptors(self) -> list[int]:
        """What has to stay open in the child."""
        told = [each for each in (self.channel, self.opened) if each is not None]
        return [each.fileno() for each in (*self.sockets, *self.admin_sockets, *told)]

    def to_text(self) -> str:
        """What stands in the child's environment."""
        return json.dumps(
            {
                "sockets": [each.fileno() for each in self.sockets],
                "admin_sockets": [each.fileno() for each in self.admin_sockets],
                "channel": None if self.channel is None else self.channel.fileno(),
                "opened": None if self.opened is None else self.opened.fileno(),
                "is_late": self.is_late,
            }
        )


@cache
def inherited_sockets() -> InheritedSockets | None:
    """What this process was given; None where it was started by somebody else. Its own children are not given it."""
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    given: dict[str, Any] = json.loads(text)
    return InheritedSockets(
        sockets=[_opened(number) for number in given["sockets"]],
        admin_sockets=[_opened(number) for number in given["admin_sockets"]],
        channel=None if given["channel"] is None else _opened(given["channel"]),
        opened=None if given["opened"] is None else _opened(given["opened"]),
        is_late=given["is_late"],
    )


def child_command(inheritance: InheritedSockets, more: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command line of a child, which is this process's own without secrets, and the child's environment.

    Args:
        inheritance: What the child gets; whoever starts it leaves its descriptors open.
        more: What else the environment has to say.
    """
    arguments, secrets = without_secrets(sys.argv[1:])
    environment = {**os.environ, **more, **secrets, _VARIABLE: inheritance.to_text()}
    return [sys.executable, "-m", "bridge", *arguments], environment


def require_inheritable_sockets(option: str) -> None:
    """See that the platform can hand sockets down.

    Raises:
        HostingError: It cannot.
    """
    if sys.platform == "win32":
        raise HostingError(f"{option} hands sockets down to another process, which Windows does not do")


def _opened(number: int) -> socket.socket:
    made = socket.socket(fileno=number)
    made.set_inheritable(False)
    return made


def without_secrets(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """A command line for a child.

    Args:
        arguments: This process's own, without the program.

    Returns:
        The arguments without those that are secret, and what the child's environment has to say instead.
    """
    kept: list[str] = []
    found: dict[str, list[str]] = {}
    rest = iter(arguments)
    for argument in rest:
        name, sign, value = argument.partition("=")
        if argument == "--":
            kept += [argument, *rest]  # another program's
        elif name in _SECRETS:
            found.setdefault(name, []).append(value if sign else next(rest, ""))
        else:
            kept.append(argument)
    environment = {
        _SECRETS[name]: ",".join(values) if name in _REPEATABLE else values[-1] for name, values in found.items()
    }
    return kept, environment


class WorkerChannel:
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
