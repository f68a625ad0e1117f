"""The server that the official conformance suite tests: ``python tests/conformance/server.py --port 3001``.

It is written as any user of the package would write it. ``--speed fast`` runs on uvloop and httptools.
"""

import argparse
import socket
import sys

import uvicorn
from fixtures import TOOLS  # type: ignore[import-not-found]  # it stands beside this file

from bridge.server import Publisher, http_app

SPEEDS = {"plain": ("asyncio", "h11"), "fast": ("uvloop", "httptools")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3001, help="0 for a free one")
    parser.add_argument("--speed", choices=SPEEDS, default="plain", help="the event loop and the HTTP parser")
    options = parser.parse_args()
    loop, http = SPEEDS[options.speed]
    app = http_app(TOOLS, publisher=Publisher(TOOLS, name="conformance", version="1.0"))
    config = uvicorn.Config(app, loop=loop, http=http, log_level="warning", timeout_graceful_shutdown=3)
    with socket.create_server(("127.0.0.1", options.port)) as listener:
        sys.stderr.write(f"serving conformance at http://localhost:{listener.getsockname()[1]}/mcp\n")
        sys.stderr.flush()
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
