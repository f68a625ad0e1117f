"""The program of `tests.forks.command`: asks for a fork that runs Python, passes signals on, and ends as the fork does.

It starts in a few milliseconds, because it imports little. Its arguments are the address of the fork server, and what
stands after ``python``.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

TYPE_CHECKING = False  # importing typing takes longer
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NUMBER_BYTES = 4
PASSED_ON = (signal.SIGTERM, signal.SIGINT)


def start(
    connection: socket.socket,
    arguments: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    streams: Sequence[int],
) -> int:
    """Ask for a fork over a connection to the fork server; return its ID.

    Raises:
        EOFError: The fork server has ended.
    """
    environment = [f"{name}={value}" for name, value in env.items()]
    message = b"\0".join(map(os.fsencode, [str(len(arguments)), *arguments, cwd, *environment]))
    socket.send_fds(connection, [len(message).to_bytes(NUMBER_BYTES, "big")], streams)
    connection.sendall(message)
    return number(connection.recv(NUMBER_BYTES))


def number(data: bytes) -> int:
    """Read a number that the fork server or a client has sent.

    Raises:
        EOFError: It has ended.
    """
    if len(data) < NUMBER_BYTES:
        raise EOFError
    return int.from_bytes(data, "big", signed=True)


def main() -> None:
    address, *arguments = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is a fork
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        pid = start(connection, arguments, os.getcwd(), os.environ, (0, 1, 2))  # noqa: PTH109 - importing pathlib takes longer
        for stream in (0, 1, 2):  # whoever reads them meets the end when the fork ends
            os.close(stream)
        signalled, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)  # a signal right before a call that waits does not end it
        for each in PASSED_ON:
            signal.signal(each, lambda number, _: os.kill(pid, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        while connection.fileno() not in select.select([connection.fileno(), signalled], [], [])[0]:
            os.read(signalled, NUMBER_BYTES)
        code = number(connection.recv(NUMBER_BYTES))
    if code < 0:
        if -code != signal.SIGKILL:  # which cannot be handled
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
