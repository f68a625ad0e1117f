"""Servers in one process, each observed in its own way, so that they differ in nothing else.

Two processes that do the same differ by a tenth, because of the memory that they happen to get: more than what is
measured. The argument is a JSON object: how each server is observed, by name. The process prints another, with the port
of each, and the credential that it demands or null. For each line that it reads, it prints its processor seconds, after
all calls are counted and written.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import process_time, time
from typing import TYPE_CHECKING, Any

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bridge import ToolBox
from bridge.cli.serve.telemetry_options import TelemetryOptions, telemetry_enabled
from bridge.hosting import serve
from bridge.hosting import sockets as sockets_module
from bridge.hosting.serve import http_protocol
from bridge.hosting.server import BackgroundServer
from bridge.server.auth.auth import Auth
from bridge.server.auth.jwt import JwtVerifier
from bridge.server.auth.keys import ApiKey, ApiKeys
from bridge.server.http.app import http_app
from bridge.server.limits import Limits, Rate
from bridge.server.server import Server
from bridge.telemetry.writer import BATCH_SECONDS
from tests.benchmarks.tools import add

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.server.http.app import BridgeApp

_WRITTEN_SECONDS = 3 * BATCH_SECONDS


@contextmanager
def watched_app(
    name: str,
    *,
    metrics: bool = False,
    log: bool = False,
    audit_log: str | None = None,
    traced_share: float | None = None,
    limits: Mapping[str, int] | None = None,
    auth: Auth | None = None,
) -> Iterator[BridgeApp]:
    """Create an app that is observed as the arguments say.

    Args:
        name: Name of the server.
        metrics: Record metrics.
        log: Write a JSON line for each call.
        audit_log: Path of the audit log; None for none.
        traced_share: Share of the calls whose traces are recorded; None for no traces.
        limits: Limits of each caller: calls a second (``rate``) and at once (``concurrency``); None for none.
        auth: Authentication; None for none.
    """
    os.environ["OTEL_TRACES_SAMPLER_ARG"] = str(traced_share)
    options = TelemetryOptions(
        metrics=metrics,
        traces=traced_share is not None,
        log_format="json" if log else "text",
        log_calls="never",
        log_arguments=False,
        log_sample=1.0,
        redact=(),
        audit_log=None if audit_log is None else Path(audit_log),
        audit_log_max_bytes=2**30,
        audit_log_kept_files=0,
    )
    with telemetry_enabled(options, name):
        publisher = Server(ToolBox(add), name=name)
        rate, concurrency = (None if limits is None else limits.get(each) for each in ("rate", "concurrency"))
        of_callers = Limits(rate=None if rate is None else Rate(rate, 1), concurrency=concurrency)
        app = http_app(Server(publisher, name="bridge", limits=of_callers if limits else None), auth=auth)
        with _unobserved():
            yield app


def _demanded(kind: str | None) -> tuple[str | None, Auth | None]:
    """Create a key or a signed token, and the authentication that demands it."""
    if kind is None:
        return None, None
    if kind == "key":
        key = "k" * 32
        return key, Auth(ApiKeys(ApiKey("bench", key)))
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = {"iss": "bench", "aud": "bridge", "sub": "ada", "exp": int(time()) + 3600}
    return jwt.encode(claims, private, "RS256"), Auth(JwtVerifier("bench", "bridge", public_key=public))


@contextmanager
def _unobserved() -> Iterator[None]:
    """Build servers that are not observed in this block."""
    from bridge.telemetry import current  # noqa: PLC0415 - for this alone

    before = current.observer()
    current.enable(None)
    try:
        yield
    finally:
        current.enable(before)


async def main(variants: dict[str, dict[str, Any]]) -> None:
    """Serve each until standard input ends."""
    with ExitStack() as stack:
        servers: list[tuple[BackgroundServer, asyncio.Task[None]]] = []
        reached: dict[str, tuple[int, str | None]] = {}
        for name, watching in variants.items():
            credential, auth = _demanded(watching.pop("credential", None))
            app = stack.enter_context(watched_app(name, **watching, auth=auth))
            sockets = sockets_module.bind(sockets_module.resolve("127.0.0.1", 0))
            reached[name] = sockets[0].getsockname()[1], credential
            config = uvicorn.Config(
                app,
                http=http_protocol(app.pre_asgi_handler(lambda: True)),
                log_level="error",
                access_log=False,  # only what is answered before ASGI is measured
                proxy_headers=False,
                timeout_keep_alive=serve.KEEP_ALIVE_SECONDS,
            )
            server = BackgroundServer(config)
            servers.append((server, asyncio.create_task(server.serve(sockets))))
        serve.freeze_garbage_collector()
        _say(json.dumps(reached))
        while await asyncio.to_thread(sys.stdin.readline):
            await asyncio.sleep(_WRITTEN_SECONDS)
            _say(str(process_time()))
        for server, serving in servers:
            server.should_exit = True
            await serving


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
