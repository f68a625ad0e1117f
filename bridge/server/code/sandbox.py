"""Sandboxes: a process for each script, without environment, files and network."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import Process

    from bridge.server.code.limits import CodeLimits
    from bridge.types import Json

_PROGRAM = str(Path(__file__).with_name("sandbox_process.py"))
_ROOT = Path(_PROGRAM).anchor
_PACKAGES = ("pydantic_monty", "typing_extensions")
_START_SECONDS = 30.0
_REAP_SECONDS = 5.0
_MESSAGE_FACTOR = 8
"""Maximum length of a message, in multiples of the memory of the script: a value may be longer as JSON."""


def folders_of_packages() -> list[str]:
    """Return the folders from which the process imports its packages."""
    found = []
    for package in _PACKAGES:
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            found.append(str(origin.parents[1] if origin.name == "__init__.py" else origin.parent))
    return list(dict.fromkeys(found))


class SandboxError(Exception):
    """The process of a sandbox cannot be started, has ended, or sends no message any more."""


class Sandbox:
    """A process that runs one script.

    Args:
        process: The process.
        limits: The limits of the script.
    """

    def __init__(self, process: Process, limits: CodeLimits) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)
        self._max_bytes = limits.max_memory_bytes * _MESSAGE_FACTOR
        # The limits of the process end it before; its start takes long on a loaded machine.
        self._seconds = _START_SECONDS + 3 * limits.max_seconds

    async def send(self, message: Json) -> None:
        """Send a message.

        Raises:
            SandboxError: The process has ended.
        """
        try:
            with anyio.fail_after(self._seconds):
                await self._stdin.send(to_json(message) + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
            raise await self._ended() from None

    async def receive(self) -> Json:
        """Wait for the next message.

        Raises:
            SandboxError: The process has ended, or exceeds its limits.
        """
        try:
            with anyio.fail_after(self._seconds):
                line = await self._stdout.receive_until(b"\n", self._max_bytes)
        except TimeoutError:
            raise SandboxError("did not end in time") from None
        except anyio.DelimiterNotFound:
            raise SandboxError("passed a value that is too large") from None
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise await self._ended() from None
        message: Json = from_json(line)
        return message

    async def _ended(self) -> SandboxError:
        with anyio.move_on_after(_REAP_SECONDS):
            await self._process.wait()
        code = self._process.returncode
        return SandboxError("ended unexpectedly" if code is None else f"ended unexpectedly (exit code {code})")


@asynccontextmanager
async def sandbox(limits: CodeLimits) -> AsyncIterator[Sandbox]:
    """Start the process of a script in this block; afterwards it has ended.

    Args:
        limits: The limits of the script.

    Raises:
        SandboxError: It cannot be started.
    """
    command = [sys.executable, "-I", _PROGRAM]
    environment = {key: os.environ[key] for key in ("SYSTEMROOT",) if sys.platform == "win32" and key in os.environ}
    try:
        with anyio.CancelScope(shield=True):  # a cancelled start would leave an unknown process
            process = await anyio.open_process(
                command, env=environment, cwd=_ROOT, stderr=DEVNULL, start_new_session=True
            )
    except OSError as error:
        raise SandboxError(f"could not be started: {error}") from error
    try:
        yield Sandbox(process, limits)
    finally:
        _kill(process)
        with anyio.CancelScope(shield=True), anyio.move_on_after(_REAP_SECONDS):
            await process.aclose()


def _kill(process: Process) -> None:
    """Kill the process with the interpreter's own."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":  # pragma: no cover - groups are POSIX's
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
