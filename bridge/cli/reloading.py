"""Reloading: one process that watches files, and a child that serves and is started again when they change.

The sockets are bound once and handed down, so that the port stays the same and no connection is refused meanwhile.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from bridge.cli.failures import say
from bridge.cli.inheritance import Inheritance, command_of_child, must_be_possible
from bridge.cli.listening import RELOAD_GRACEFUL_SECONDS
from bridge.cli.targets import FileTarget
from bridge.errors import MissingExtraError, TargetError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from bridge.cli.targets import LocalTarget

_CHECK_MILLISECONDS = 200
_KILL_SECONDS = RELOAD_GRACEFUL_SECONDS + 4


def serve_again_and_again(targets: Sequence[LocalTarget], sockets: list[socket.socket]) -> None:
    """Run this command line in a child, anew whenever Python files beside a target change.

    A child that ends by itself, because a file has a mistake, is started again at the next change.

    Raises:
        MissingExtraError: ``watchfiles`` is not installed.
        TargetError: A module cannot be found.
        CommandError: The platform cannot do it.
    """
    must_be_possible("--reload")
    directories = sorted({directory for target in targets for directory in _directories(target)})
    stop = Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    changes = _changes(directories, stop)
    child = _start(sockets)
    try:
        for _ in changes:
            say("files changed; starting again")
            _end(child)
            child = _start(sockets)
    finally:
        _end(child)
        signal.signal(signal.SIGTERM, before)


def _directories(target: LocalTarget) -> list[str]:
    if isinstance(target, FileTarget):
        path = target.path.resolve()
        return [str(path if path.is_dir() else path.parent)]
    name = target.module.partition(".")[0]
    spec = PathFinder.find_spec(name, [str(Path.cwd()), *sys.path])
    if spec is None:
        raise TargetError(f"there is no module {name!r}")
    if spec.submodule_search_locations:
        return [str(Path(place).resolve()) for place in spec.submodule_search_locations]
    return [str(Path(spec.origin or "").resolve().parent)]


def _changes(directories: list[str], stop: Event) -> Iterator[object]:
    try:
        from watchfiles import PythonFilter, watch  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("--reload", "watchfiles", "reload") from error
    return watch(*directories, watch_filter=PythonFilter(), stop_event=stop, rust_timeout=_CHECK_MILLISECONDS)


def _start(sockets: list[socket.socket]) -> subprocess.Popen[bytes]:
    inheritance = Inheritance(sockets=sockets)
    # Python takes compiled code for current that was written in the second of a change of the same length.
    command, environment = command_of_child(inheritance, {"PYTHONDONTWRITEBYTECODE": "1"})
    return subprocess.Popen(command, env=environment, pass_fds=inheritance.descriptors)  # noqa: S603 - this very command


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
