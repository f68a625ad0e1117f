"""Child processes: inherited sockets, the channel to the parent, and the command line without secrets.

Other users of the machine can see command lines, so a child gets secrets in its environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from queue import Empty, Queue, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from bridge.hosting.process import HostingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.server.server import Server

_VARIABLE = "BRIDGE_INHERITANCE"

_SECRETS = {
    "--api-key": "BRIDGE_API_KEY",
    "--admin-key": "BRIDGE_ADMIN_KEY",
    "--oauth-client-secret": "BRIDGE_OAUTH_CLIENT_SECRET",
    "--state-keys": "BRIDGE_STATE_KEYS",
    "--redis-url": "BRIDGE_REDIS_URL",
}

_REPEATABLE = frozenset({"--api-key", "--admin-key", "--state-keys"})

_ANSWERS_SECONDS = 10.0
"""Seconds that the parent may take to collect the answers of all workers."""
_METRICS = "metrics"

_MAX_UPDATES = 1000
"""Maximum number of resources whose updates wait for the parent; those of further ones are not shared."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedSockets:
    """Listening sockets, and channels to its parent, that a child process inherits."""

    sockets: list[socket.socket]
    """Listening sockets."""
    admin_sockets: list[socket.socket] = field(default_factory=list)
    """Listening sockets of the admin port."""
    channel: socket.socket | None = None
    """Channel between a worker and its parent; None for a child that is restarted on reload."""
    opened: socket.socket | None = None
    """Socket on which such a child reports that it serves; the parent reads its end when the child has ended."""
    is_late: bool = False
    """True if other processes already listen, so that this one may accept connections later."""
    is_reload: bool = False
    """True if it is to replace another process, and has to end if its configuration has problems."""

    @property
    def is_successor(self) -> bool:
        """True if this process takes the place of another one."""
        return self.is_reload or (self.is_late and self.opened is not None)

    @property
    def descriptors(self) -> list[int]:
        """File descriptors that the child inherits."""
        return [number for numbers in self._numbers().values() for number in numbers]

    def to_text(self) -> str:
        """Serialise for the child's environment."""
        return json.dumps({**self._numbers(), "is_late": self.is_late, "is_reload": self.is_reload})

    def _numbers(self) -> dict[str, list[int]]:
        channels = {"channel": self.channel, "opened": self.opened}
        return {
            "sockets": [each.fileno() for each in self.sockets],
            "admin_sockets": [each.fileno() for each in self.admin_sockets],
            **{name: [] if channel is None else [channel.fileno()] for name, channel in channels.items()},
        }


@cache
def inherited_sockets() -> InheritedSockets | None:
    """Sockets that this process inherited; None if it has none. The variable is removed from the environment."""
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    given: dict[str, Any] = json.loads(text)
    is_late, is_reload = given.pop("is_late"), given.pop("is_reload")
    opened = {name: [_opened(number) for number in numbers] for name, numbers in given.items()}
    return InheritedSockets(
        sockets=opened["sockets"],
        admin_sockets=opened["admin_sockets"],
        channel=next(iter(opened["channel"]), None),
        opened=next(iter(opened["opened"]), None),
        is_late=is_late,
        is_reload=is_reload,
    )


def child_command(inheritance: InheritedSockets, more: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Build the command line and environment of a child; secrets move to the environment.

    The descriptors of ``inheritance`` must be passed to the child; ``more`` are additional environment variables.
    """
    arguments, secrets = without_secrets(sys.argv[1:])
    environment = {**os.environ, **more, **secrets, _VARIABLE: inheritance.to_text()}
    return [sys.executable, "-m", "bridge", *arguments], environment


def require_inheritable_sockets(option: str) -> None:
    """Check that the platform supports passing sockets to a child.

    Raises:
        HostingError: It does not.
    """
    if sys.platform == "win32":
        raise HostingError(f"{option} passes sockets to a child process, which Windows does not support")


def _opened(number: int) -> socket.socket:
    made = socket.socket(fileno=number)
    made.set_inheritable(False)
    return made


def without_secrets(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Move secrets of a command line to environment variables."""
    kept: list[str] = []
    found: dict[str, list[str]] = {}
    rest = iter(arguments)
    for argument in rest:
        name, sign, value = argument.partition("=")
        if argument == "--":
            kept += [argument, *rest]  # arguments of another program
        elif name in _SECRETS:
            found.setdefault(name, []).append(value if sign else next(rest, ""))
        else:
            kept.append(argument)
    environment = {
        _SECRETS[name]: ",".join(values) if name in _REPEATABLE else values[-1] for name, values in found.items()
    }
    return kept, environment


class WorkerChannel:
    """A worker's end of the channel to its parent.

    Args:
        channel: The socket.
        is_ending: Returns True if this process is shutting down.
        metrics: Collects the metrics of this process; None if metrics are off.
    """

    def __init__(
        self, channel: socket.socket, is_ending: Callable[[], bool], metrics: Callable[[], tuple[bytes, str]] | None
    ) -> None:
        self._channel = channel
        self._is_ending = is_ending
        self.answers: dict[str, Callable[[Any], Any]] = {}
        """Functions that answer questions to all workers, by topic. They run in threads of their own."""
        if metrics is not None:
            self.answers[_METRICS] = lambda _: metrics()[0].decode()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writing = Lock()
        self._asking = Lock()
        self._given: Queue[Mapping[str, Any]] = Queue()
        self._updates: SimpleQueue[str] = SimpleQueue()
        self._waiting: set[str] = set()
        """The URIs in ``_updates``."""
        self._notify: Callable[[str], None] = _ignore
        self._numbers = count()
        self._reloads: dict[int, Callable[[str | None], object]] = {}
        """Receive the outcomes of the reloads that this worker has asked for, by number."""
        Thread(target=self._listen, name="bridge-worker", daemon=True).start()

    def opened(self, processes: int, profiles: Mapping[str, str]) -> None:
        """Report that requests are served.

        Called in the event loop, of which signs of life are sent from now on.

        Args:
            processes: Number of servers that this process starts as processes.
            profiles: Paths of the profiles by name.
        """
        self._loop = asyncio.get_running_loop()
        self._tell({"say": "opened", "processes": processes, "profiles": profiles})

    async def reload(self) -> None:
        """Let new workers replace all of them, and wait until those serve; this one then drains.

        Raises:
            HostingError: They could not start; the log has the reason.
        """
        loop = asyncio.get_running_loop()
        reloaded: asyncio.Future[str | None] = loop.create_future()

        def end(error: str | None) -> None:
            if not reloaded.done():
                reloaded.set_result(error)

        number = next(self._numbers)
        self._reloads[number] = lambda error: loop.call_soon_threadsafe(end, error)
        self._tell({"give": "reload", "number": number})
        if (error := await reloaded) is not None:
            raise HostingError(error)

    def share_updates(self, server: Server) -> None:
        """Notify the clients of all workers of new content of resources, whichever worker announces it.

        Updates are sent in a thread of their own, so that no event loop waits for the parent.
        """
        from bridge.server.changes import Change  # noqa: PLC0415 - only for servers with resources

        def follow() -> None:
            if (box := server.features.resources) is not None:
                box.on_update(self._share)

        follow()
        server.on_features(follow)
        if server.features.resources is not None:
            self._notify = lambda uri: server.changes.notify(Change("resources", uri))
            Thread(target=self._send_updates, name="bridge-worker-updates", daemon=True).start()

    def _share(self, uri: str) -> None:
        if uri not in self._waiting and len(self._waiting) < _MAX_UPDATES:
            self._waiting.add(uri)
            self._updates.put(uri)

    def _send_updates(self) -> None:
        with suppress(OSError):  # the parent has ended
            while True:
                uri = self._updates.get()
                self._waiting.discard(uri)  # before it is sent, so that an update from now on is sent, too
                self._tell({"updated": uri})

    def text(self, accept: str = "") -> tuple[bytes, str]:  # noqa: ARG002 - there is one format
        """Metrics of all workers (see `PrometheusMetrics.text`), with the label ``worker``."""
        from bridge.telemetry.prometheus import merge_expositions  # noqa: PLC0415 - an extra

        return merge_expositions(self.ask_all(_METRICS), label="worker").encode(), CONTENT_TYPE

    def ask_all(self, topic: str, question: Any = None) -> Mapping[str, Any]:
        """Return the answers of all workers that answer in time, by their numbers. Blocks; not for the event loop.

        Args:
            topic: Key of `answers`.
            question: The question, as JSON.
        """
        with self._asking:
            while not self._given.empty():  # late replies to an earlier question
                self._given.get()
            self._tell({"ask all": topic, "question": question})
            try:
                return self._given.get(timeout=_ANSWERS_SECONDS)
            except Empty:
                return {}

    def _tell(self, message: Mapping[str, Any]) -> None:
        with self._writing:
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        with self._channel.makefile("rb") as lines:
            for line in lines:
                match json.loads(line):
                    case {"end": number}:
                        self._end(number)
                    case {"ask": topic, "question": question, "number": number}:
                        # In a thread of its own: signs of life cannot wait for answers that take seconds.
                        Thread(target=self._reply, args=(topic, question, number), daemon=True).start()
                    case {"replies": replies}:
                        self._given.put(replies)
                    case {"give": "pulse"} if self._loop is not None:
                        with suppress(RuntimeError):  # it has been closed
                            self._loop.call_soon_threadsafe(self._tell, {"say": "pulse"})
                    case {"updated": uri}:
                        self._notify(uri)
                    case {"reloaded": error, "number": number}:
                        self._reloads.pop(number, _ignore)(error)
        self._end(signal.SIGTERM)  # the parent has ended

    def _reply(self, topic: str, question: Any, number: int) -> None:
        answer = self.answers.get(topic)
        with suppress(OSError):  # the parent has ended
            self._tell({"reply": number, "answer": None if answer is None else answer(question)})

    def _end(self, number: int) -> None:
        # A service manager may signal each process as well, and a second signal would end this one immediately.
        if not self._is_ending():
            os.kill(os.getpid(), number)


def _ignore(_news: str | None) -> None:
    """Do nothing: this worker has no resources, or shares its updates through Redis, or did not ask for a reload."""
