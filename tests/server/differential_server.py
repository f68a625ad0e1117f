"""A server for the differential tests: ours, or the SDK's as a reference."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from typing import Any

import uvicorn

from bridge.hosting.serve import http_protocol
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.limits import Limits, Rate
from tests.server.differential_tools import features
from tests.server.sdk_reference import Reference

KEYS = (
    ApiKey("whole", "whole-whole-whole-whole"),
    # The SDK announces resources and prompts to every caller, and ours to those who see some.
    ApiKey("part", "part-part-part-part-part", tools=("add", "mi*", "move", "talk", "text", "greeting")),
    ApiKey("narrow", "narrow-narrow-narrow-narrow", scopes=frozenset()),
)
LIMITS = Limits(
    rate=Rate(10**6, 1),
    concurrency=1000,
    max_streams=1000,
    tool_rates={"*": Rate(10**6, 1)},
    tool_concurrency={"*": 1000},
    max_result_bytes=10**7,
)
"""Maximum that the test does not reach."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", choices=("h11", "httptools", "direct"), required=True)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--auth", action="store_true")
    parser.add_argument("--limits", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    auth = None if not options.auth else Auth(ApiKeys(*KEYS), tool_scopes={"mo*": ["moving"]})
    server = Server(features(), name="tests", limits=LIMITS if options.limits else None)
    app = http_app(server, auth=auth)
    http: Any = options.http
    if options.reference:
        http = "h11"  # the other parser keeps white space around headers, which the SDK does not expect
    elif http == "direct":
        http = http_protocol(app.pre_asgi_handler(lambda: True))
    served = Reference(app, server) if options.reference else app
    config = uvicorn.Config(served, http=http, ws="none", log_config=None, timeout_graceful_shutdown=1)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        sys.stderr.write(f"serving tests at http://127.0.0.1:{listener.getsockname()[1]}\n")
        sys.stderr.flush()
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
