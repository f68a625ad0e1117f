"""Restart on file changes, and reloading of configurations.

With reload, a parent process watches files and replaces a serving child when they change. The sockets are bound once
and inherited, so no connection is refused. The old child serves until the new one does; files with errors are only
logged.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import anyio

from bridge.errors import BridgeError, MissingExtraError
from bridge.hosting.child_process import child_command, require_inheritable_sockets
from bridge.hosting.process import print_message
from bridge.hosting.serve import RELOAD_GRACEFUL_SECONDS
from bridge.hosting.service_manager import service_manager
from bridge.signals import hangup_signals, has_terminal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
    from types import ModuleType

    from bridge.hosting.child_process import InheritedSockets

_CHECK_MILLISECONDS = 200
_KILL_SECONDS = RELOAD_GRACEFUL_SECONDS + 4
_logger = logging.getLogger("bridge.hosting")
_DEBOUNCE_MILLISECONDS = 400
_STEP_MILLISECONDS = 50
_MAX_LINKS = 40


def run_with_reload(directories: Sequence[str], sockets: InheritedSockets) -> None:
    """Run this command line in a child, and again whenever Python files near a target change.

    A child that cannot start prints the reason and ends; the previous one continues.

    Raises:
        MissingExtraError: ``watchfiles`` is not installed.
        HostingError: The platform does not support it.
    """
    require_inheritable_sockets("--reload")
    stop, is_wanted = Event(), Event()
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: stop.set())}
    for number in hangup_signals():
        wanted = stop if has_terminal() else is_wanted
        before[number] = signal.signal(number, lambda *_, wanted=wanted: wanted.set())
    changes = _watchfiles().watch(
        *directories,
        watch_filter=_watchfiles().PythonFilter(),
        stop_event=stop,
        rust_timeout=_CHECK_MILLISECONDS,
        yield_on_timeout=True,
    )
    children = _Children(sockets)
    try:
        children.start()
        for changed in changes:
            children.replace()
            service_manager().sign_of_life()
            if changed or is_wanted.is_set():
                is_wanted.clear()
                print_message("files changed; restarting")
                children.start()
    finally:
        children.end()
        for number, previous in before.items():
            signal.signal(number, previous)


class _Children:
    """The serving child and its starting replacement."""

    def __init__(self, sockets: InheritedSockets) -> None:
        self._sockets = sockets
        self._serving: subprocess.Popen[bytes] | None = None
        self._starting: subprocess.Popen[bytes] | None = None
        self._opened: socket.socket | None = None
        """Socket on which the starting child reports that it serves."""

    def start(self) -> None:
        """Start a child; a child that is still starting is ended."""
        self._end_starting()
        self._opened, theirs = socket.socketpair()
        with theirs:
            inheritance = replace(self._sockets, opened=theirs, is_late=self._is_served())
            # Cached bytecode may be stale after two changes of equal length within a second.
            command, environment = child_command(inheritance, {"PYTHONDONTWRITEBYTECODE": "1"})
            self._starting = subprocess.Popen(  # noqa: S603 - this program's own command line
                command, env=environment, pass_fds=inheritance.descriptors
            )

    def replace(self) -> None:
        """End the old child when the new one serves; keep it if the new one has failed."""
        if self._opened is None or not select.select([self._opened], [], [], 0)[0]:
            return
        if self._opened.recv(1):
            before, self._serving, self._starting = self._serving, self._starting, None
            service_manager().ready("serving")
            if before is not None:
                _end(before)
        elif self._is_served():
            print_message("the changed files cannot be served; the previous ones stay in use", "error")
        self._end_starting()

    def end(self) -> None:
        """End all children."""
        self._end_starting()
        if self._serving is not None:
            _end(self._serving)

    def _is_served(self) -> bool:
        return self._serving is not None and self._serving.poll() is None

    def _end_starting(self) -> None:
        if self._opened is not None:
            self._opened.close()
        if self._starting is not None:
            _end(self._starting)
        self._opened = self._starting = None


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def watch(files: Callable[[], Collection[Path]], directories: Collection[str] = ()) -> AsyncGenerator[object, None]:
    """Watch files, and Python files in directories; changes in quick succession are reported once.

    A file that does not exist yet is watched too, and links on the way to a file, which may be replaced.

    Args:
        files: Returns the files; it is called again after each change, which may have named others.
        directories: The directories.

    Raises:
        MissingExtraError: ``watchfiles`` is not installed.
    """
    return _changes(_watchfiles().awatch, files, directories)


async def _changes(
    awatch: Callable[..., AsyncGenerator[object, None]],
    files: Callable[[], Collection[Path]],
    directories: Collection[str],
) -> AsyncGenerator[object, None]:
    while True:
        wanted = _on_the_way_to(files())
        changes = awatch(
            *sorted({*directories, *(str(Path(each).parent) for each in wanted)}),
            watch_filter=lambda _, path, wanted=wanted: (
                path in wanted or (path.endswith(".py") and _is_within(path, directories))
            ),
            debounce=_DEBOUNCE_MILLISECONDS,
            step=_STEP_MILLISECONDS,
            recursive=bool(directories),
        )
        async with aclosing(changes):
            async for changed in changes:
                yield changed
                if _on_the_way_to(files()) != wanted:
                    break


def _on_the_way_to(files: Collection[Path]) -> set[str]:
    """Return the files with the links that lead to them; of a missing folder, its place instead of what is in it."""
    found = set()
    for file in files:
        path = Path(os.path.normpath(file.absolute()))
        for _ in range(_MAX_LINKS):
            way = (*reversed(path.parents), path)
            place = next((each for each in way if each.is_symlink() or not each.exists()), path)
            found.add(str(place))
            if not place.is_symlink():
                break
            path = Path(os.path.normpath(place.parent / place.readlink() / path.relative_to(place)))
    return found


def _is_within(path: str, directories: Collection[str]) -> bool:
    return any(Path(path).is_relative_to(directory) for directory in directories)


def _watchfiles() -> ModuleType:
    try:
        return import_module("watchfiles")
    except ModuleNotFoundError as error:
        raise MissingExtraError("--reload", "watchfiles", "reload") from error


async def apply_changes(changes: AsyncIterator[object], apply: Callable[[], Awaitable[None]]) -> None:
    """Call a function after each change, until cancelled.

    Its errors are logged, and the previous configuration stays in use.
    """
    async for _ in changes:
        with suppress(BridgeError):  # it is logged
            await Reloading(apply)()


class Reloading:
    """Reloads a configuration, one time after another; the service manager is notified.

    Args:
        apply: Replaces the configuration as a whole, or raises a `BridgeError` and changes nothing.
    """

    def __init__(self, apply: Callable[[], Awaitable[None]]) -> None:
        self._apply = apply
        self._lock = anyio.Lock()
        self.loaded_at = datetime.now(UTC)
        """Time of the last success."""
        self.error: str | None = None
        """Reason for which the last attempt changed nothing; None after a success."""

    async def __call__(self) -> None:
        """Reload the configuration.

        Raises:
            BridgeError: It cannot be used; the previous one stays in use.
        """
        async with self._lock:
            service_manager().reloading()
            try:
                await self._apply()
            except BridgeError as error:
                self.error = str(error)
                _logger.error("the changed configuration is not used: %s", error)  # noqa: TRY400 - no traceback needed
                raise
            else:
                self.loaded_at, self.error = datetime.now(UTC), None
                print_message("reloaded the configuration")
            finally:
                service_manager().ready("the configuration is not used; see the log" if self.error else "reloaded")

    def status(self) -> dict[str, Any]:
        """Return the time of the last success, and why the last attempt changed nothing, as JSON."""
        return {"loadedAt": self.loaded_at.isoformat(timespec="seconds"), "error": self.error}
