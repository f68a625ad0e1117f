"""Service manager: systemd's notifications (sd_notify), its watchdog, and sockets that it has bound (LISTEN_FDS).

The variables are removed from the environment when they are read, so that no child process uses them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from bridge.hosting.process import HostingError

_FIRST_DESCRIPTOR = 3
_SEND_SECONDS = 1.0
"""Maximum seconds to wait until a manager reads, if its queue is full."""
_ADMIN = "admin"
"""Name of the sockets of the admin port (``FileDescriptorName=``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceManager:
    """A service manager; without one, nothing is sent."""

    address: str | None = None
    """Address of the socket that receives notifications; an abstract one begins with ``@``."""
    watchdog_seconds: float | None = None
    """Seconds within which a sign of life is expected; None for never."""
    sockets: list[socket.socket] = field(default_factory=list)
    """Bound sockets, to listen on instead of a host and a port."""
    admin_sockets: list[socket.socket] = field(default_factory=list)
    """Those of the admin port, which are named ``admin``."""

    def notify(self, *assignments: str, wait_seconds: float = _SEND_SECONDS) -> None:
        """Send a notification, such as ``READY=1``; a manager that cannot be reached, or does not read, is ignored."""
        if self.address is None:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(wait_seconds)
            sender.sendto("\n".join(assignments).encode(), address)

    def ready(self, status: str) -> None:
        """Report that requests are served, or that a reload has ended, with a line about the state."""
        self.notify("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that a reload begins."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the shutdown begins."""
        self.notify("STOPPING=1")

    def sign_of_life(self) -> None:
        """Report that the process is not stuck, if that is expected."""
        if self.watchdog_seconds is not None:
            self.notify("WATCHDOG=1", wait_seconds=0)

    async def watch(self) -> None:
        """Send signs of life while the event loop runs, twice as often as expected; ends without a watchdog."""
        while self.watchdog_seconds is not None:
            self.sign_of_life()
            await asyncio.sleep(self.watchdog_seconds / 2)


@cache
def service_manager() -> ServiceManager:
    """Return the service manager of this process.

    Raises:
        HostingError: A socket that it has bound cannot be served.
    """
    given = {name: os.environ.pop(name, None) for name in _VARIABLES}
    pid = str(os.getpid())
    sockets: list[socket.socket] = []
    admin_sockets: list[socket.socket] = []
    if given["LISTEN_PID"] == pid:
        count = int(given["LISTEN_FDS"] or 0)
        names = (given["LISTEN_FDNAMES"] or "").split(":")
        for number in range(count):
            bound = _bound(_FIRST_DESCRIPTOR + number)
            is_admin = number < len(names) and names[number] == _ADMIN
            (admin_sockets if is_admin else sockets).append(bound)
    microseconds = given["WATCHDOG_USEC"] if given["WATCHDOG_PID"] in {None, pid} else None
    return ServiceManager(
        address=given["NOTIFY_SOCKET"],
        watchdog_seconds=None if microseconds is None else int(microseconds) / 1e6,
        sockets=sockets,
        admin_sockets=admin_sockets,
    )


_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def _bound(descriptor: int) -> socket.socket:
    try:
        made = socket.socket(fileno=descriptor)
    except OSError as error:
        raise HostingError(f"the file descriptor {descriptor} of the service manager is not a socket") from error
    made.set_inheritable(False)
    made.setblocking(False)
    if made.family not in {socket.AF_INET, socket.AF_INET6} or not made.getsockopt(
        socket.SOL_SOCKET, socket.SO_ACCEPTCONN
    ):
        raise HostingError(
            f"the socket {made.getsockname()!r} of the service manager cannot be served: "
            "its unit needs ListenStream= with a TCP port, and Accept=no"
        )
    return made
