"""A server over HTTP whose sessions expire soon, which is an option of the app and not of the command."""

from __future__ import annotations

import socket
import sys

import uvicorn

from bridge import ToolBox
from bridge.server import http_app
from bridge.server.server import Server
from tests.benchmarks.tools import add


def main(idle_seconds: float) -> None:
    """Serve until the process is ended, and print the address as ``bridge serve`` does."""
    app = http_app(Server(ToolBox([add]), name="idle"), session_idle_seconds=idle_seconds)
    config = uvicorn.Config(app, lifespan="on", ws="none", log_config=None, access_log=False)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        sys.stderr.write(f"serving idle at http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
        uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main(float(sys.argv[1]))
