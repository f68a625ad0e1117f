"""The server for the official conformance suite: ``python tests/conformance/server.py --port 3001``.

It is written as a user of the package would write it. ``--way uvloop`` runs on uvloop and httptools, ``--way redis``
also with sessions and tasks on the Redis at ``--redis-url``.
"""

import argparse
import socket
import sys

import uvicorn
from features import FEATURES  # type: ignore[import-not-found]  # it stands beside this file

from bridge.server import Server, http_app

WAYS = {"asyncio": ("asyncio", "h11"), "uvloop": ("uvloop", "httptools"), "redis": ("uvloop", "httptools")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3001, help="0 for a free one")
    parser.add_argument("--way", choices=WAYS, default="asyncio", help="the event loop and the HTTP parser")
    parser.add_argument("--redis-url", help="where sessions and tasks are")
    options = parser.parse_args()
    loop, http = WAYS[options.way]
    server = Server(FEATURES, name="conformance", version="1.0")
    sse = options.redis_url is None
    app = http_app(server, redis_url=options.redis_url, sse=sse)
    config = uvicorn.Config(app, loop=loop, http=http, log_level="warning", timeout_graceful_shutdown=3)
    with socket.create_server(("127.0.0.1", options.port)) as listener:
        sys.stderr.write(f"serving conformance at http://localhost:{listener.getsockname()[1]}/mcp\n")
        sys.stderr.flush()
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
