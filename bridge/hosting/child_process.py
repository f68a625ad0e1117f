"""Inheritance: what a process that binds sockets hands down to children that run the same command line."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from bridge.cli.secrets import without_secrets
from bridge.hosting.process import HostingError

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE = "BRIDGE_INHERITANCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
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
def inherited() -> Inheritance | None:
    """What this process was given; None where it was started by somebody else. Its own children are not given it."""
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    given: dict[str, Any] = json.loads(text)
    return Inheritance(
        sockets=[_opened(number) for number in given["sockets"]],
        admin_sockets=[_opened(number) for number in given["admin_sockets"]],
        channel=None if given["channel"] is None else _opened(given["channel"]),
        opened=None if given["opened"] is None else _opened(given["opened"]),
        is_late=given["is_late"],
    )


def command_of_child(inheritance: Inheritance, more: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command line of a child, which is this process's own without secrets, and the child's environment.

    Args:
        inheritance: What the child gets; whoever starts it leaves its descriptors open.
        more: What else the environment has to say.
    """
    arguments, secrets = without_secrets(sys.argv[1:])
    environment = {**os.environ, **more, **secrets, _VARIABLE: inheritance.to_text()}
    return [sys.executable, "-m", "bridge", *arguments], environment


def must_be_possible(option: str) -> None:
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
