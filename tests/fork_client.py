"""The program of `tests.forks.command`: asks for a fork that runs Python, passes signals on, and ends as the fork does.

It starts in a few milliseconds, because it imports little. Its arguments are the address of the fork server, and what
stands after ``python``.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

NUMBER_BYTES = 4
PASSED_ON = (signal.SIGTERM, signal.SIGINT)


def main() -> None:
    address, *arguments = sys.argv[1:]
    environment = [f"{name}={value}" for name, value in os.environ.items()]
    words = [str(len(arguments)), *arguments, os.getcwd(), *environment]  # noqa: PTH109 - importing pathlib takes longer
    message = b"\0".join(map(os.fsencode, words))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(message).to_bytes(NUMBER_BYTES, "big")], [0, 1, 2])
        connection.sendall(message)
        for stream in (0, 1, 2):  # whoever reads them meets the end when the fork ends
            os.close(stream)
        pid = int.from_bytes(connection.recv(NUMBER_BYTES), "big")
        for each in PASSED_ON:
            signal.signal(each, lambda number, _: os.kill(pid, number))
        code = int.from_bytes(connection.recv(NUMBER_BYTES), "big", signed=True)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
