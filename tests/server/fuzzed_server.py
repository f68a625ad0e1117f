"""A server for the fuzz test, as a program may run one: all warnings and errors are logged, those of the SDK too."""

import argparse
import logging
import socket
import sys

import uvicorn

from bridge import InvocationContext, ToolBox, tool
from bridge.server import http_app


@tool
async def add(a: int, b: int, context: InvocationContext) -> int:
    """Add two numbers."""
    await context.progress(1, 1)
    return a + b


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", choices=("h11", "httptools"), default="h11")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    app = http_app(ToolBox(add))
    config = uvicorn.Config(app, http=parser.parse_args().http, ws="none", log_config=None, timeout_graceful_shutdown=1)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        sys.stderr.write(f"serving fuzz at http://127.0.0.1:{listener.getsockname()[1]}\n")
        sys.stderr.flush()
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
