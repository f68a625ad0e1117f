"""A server for the differential test, with the fast path or without; each response has its path in a header."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from typing import TYPE_CHECKING

import uvicorn

from bridge.hosting import connection, plain_calls
from bridge.hosting.plain_calls import headers_of
from bridge.hosting.serve import http_protocol
from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.http.fast import FastHttp
from bridge.server.limits import Limits, Rate
from tests.server.differential_tools import features

if TYPE_CHECKING:
    from starlette.types import Message

    from bridge.hosting.reply import Header
    from bridge.server.http.requests import Request

_answered = FastHttp.answered
KEYS = (
    ApiKey("whole", "whole-whole-whole-whole"),
    ApiKey("part", "part-part-part-part-part", tools=("add", "mi*", "move", "talk")),
    ApiKey("narrow", "narrow-narrow-narrow-narrow", scopes=frozenset()),
)


async def _marked(self: FastHttp, request: Request) -> bool:
    send = request.send

    async def mark(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"x-fast", b"1")]}
        await send(message)

    request.send = mark
    try:
        return await _answered(self, request)
    finally:
        request.send = send


def _marked_headers(session_id: str | None) -> tuple[Header, ...]:
    return (*headers_of(session_id), (b"x-fast", b"1"))


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
    parser.add_argument("--fast-path", action="store_true")
    parser.add_argument("--auth", action="store_true")
    parser.add_argument("--limits", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    FastHttp.answered = _marked  # type: ignore[method-assign]  # the answers are marked where they are made
    auth = None if not options.auth else Auth(ApiKeys(*KEYS), tool_scopes={"mo*": ["moving"]})
    app = http_app(
        features(), name="tests", fast_path=options.fast_path, auth=auth, limits=LIMITS if options.limits else None
    )
    http = options.http
    if http == "direct":
        for module in (connection, plain_calls):
            module.headers_of = _marked_headers  # type: ignore[attr-defined]  # as above
        http = http_protocol(app.pre_asgi_handler(lambda: True))
    config = uvicorn.Config(app, http=http, ws="none", log_config=None, timeout_graceful_shutdown=1)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        sys.stderr.write(f"serving tests at http://127.0.0.1:{listener.getsockname()[1]}\n")
        sys.stderr.flush()
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
