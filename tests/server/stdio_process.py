"""A server over stdio as a process, and its pipes. Every wait has a deadline."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from tests import forks

if TYPE_CHECKING:
    from typing import Self

DEADLINE_SECONDS = 30.0
TOOLS = str(Path(__file__).with_name("stdio_tools.py"))
ROOT = Path(__file__).parents[2]
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}

Json = dict[str, Any]


def request(message_id: int | str, method: str, /, **params: Any) -> Json:
    """Return a request of the handshake era."""
    return {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}


def modern_request(message_id: int | str, method: str, /, **params: Any) -> Json:
    """Return a request of the modern era."""
    return request(message_id, method, **params | {"_meta": MODERN_META | params.get("_meta", {})})


def call(message_id: int | str, tool: str, /, **arguments: Any) -> Json:
    """Return a call in the modern era that wants progress."""
    meta = {"progressToken": message_id}
    return modern_request(message_id, "tools/call", name=tool, arguments=arguments, _meta=meta)


class StdioProcess:
    """A running server.

    Args:
        command: Arguments after ``python``; by default the tools beside this file, with ``settings``.
        settings: Arguments of those tools.
        stdin: Its standard input, instead of a pipe of this object.
        stdout: Its standard output, instead of a pipe of this object.
    """

    def __init__(
        self, *settings: str, command: list[str] | None = None, stdin: int | None = None, stdout: int | None = None
    ) -> None:
        self._log = TemporaryFile()  # noqa: SIM115 - closed with the process
        streams = (stdin, stdout, self._log.fileno())
        self.process = forks.popen(command or [TOOLS, *settings], cwd=ROOT, env=os.environ, streams=streams)
        self.input = -1 if self.process.stdin is None else self.process.stdin.fileno()
        self.output = -1 if self.process.stdout is None else self.process.stdout.fileno()
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.close_input()
        self.close_output()
        self._log.close()

    def send(self, *messages: Json | bytes) -> None:
        """Write messages, each a line; text is written unchanged."""
        lines = (m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages)
        self.send_raw(b"".join(line + b"\n" for line in lines))

    def send_raw(self, data: bytes) -> None:
        """Write bytes."""
        rest = memoryview(data)
        while rest:
            _, writable, _ = select.select([], [self.input], [], DEADLINE_SECONDS)
            assert writable, self._overdue("read")
            rest = rest[os.write(self.input, rest[: select.PIPE_BUF]) :]

    def receive(self) -> Json:
        """Return the next message."""
        line = self.receive_line()
        assert line, f"the server ended:\n{self.log()}"
        message: Json = json.loads(line)
        return message

    def receive_line(self) -> bytes:
        """Return the next line, with its newline; empty at the end."""
        end = time.monotonic() + DEADLINE_SECONDS
        while b"\n" not in self._received:
            readable, _, _ = select.select([self.output], [], [], max(0.0, end - time.monotonic()))
            assert readable, self._overdue("write a line")
            data = os.read(self.output, 65536)
            if not data:
                rest, self._received = self._received, b""
                return rest
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line + b"\n"

    def wait_for_output(self, fd: int | None = None) -> None:
        """Wait until there is output, and leave it unread."""
        readable, _, _ = select.select([self.output if fd is None else fd], [], [], DEADLINE_SECONDS)
        assert readable, self._overdue("write")

    def answer(self, message: Json | bytes, message_id: int | str | None = None) -> Json:
        """Send a message, and return the response, skipping notifications."""
        self.send(message)
        wanted = message["id"] if isinstance(message, dict) and "id" in message else message_id
        while True:
            received = self.receive()
            if "method" not in received and received["id"] == wanted:
                return received

    def initialize(self, **capabilities: Any) -> None:
        """Make the handshake of the handshake era."""
        client = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client}
        assert "result" in self.answer(request("initialize", "initialize", **params))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def start(self, tool: str, /, **arguments: Any) -> None:
        """Call a tool that reports that it runs, and return when it does."""
        self.send(call(tool, tool, **arguments))
        while self.receive().get("method") != "notifications/progress":
            pass

    def add(self) -> int:
        """Make a valid call in the modern era; return its result."""
        result: int = self.answer(call("good", "add", a=2, b=3))["result"]["structuredContent"]["result"]
        return result

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        try:
            return self.process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._overdue("end")) from None

    def close_input(self) -> None:
        """Close the server's input."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def close_output(self) -> None:
        """Stop reading."""
        if self.process.stdout is not None:
            self.process.stdout.close()

    def log(self) -> str:
        """Return the text that the server has written to standard error."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode()

    def complaints(self) -> list[str]:
        """Return the errors that the server has logged."""
        return [line for line in self.log().splitlines() if line.startswith(("ERROR", "CRITICAL", "Traceback"))]

    def _overdue(self, what: str) -> str:
        return f"the server did not {what} in time:\n{self.log()}"
