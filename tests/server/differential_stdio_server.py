"""A server over stdio for the differential test: ours, or the SDK's as a reference."""

from __future__ import annotations

import logging
import sys

import anyio
from mcp.server.stdio import stdio_server

from bridge.server.server import Server
from bridge.server.stdio.process import take_standard_streams
from bridge.server.stdio.server import serve_stdio
from tests.server.differential_tools import features
from tests.server.sdk_reference import ReferenceServer


async def serve_reference(publisher: Server) -> None:
    server = ReferenceServer(publisher).server
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def main() -> None:
    logging.basicConfig(level=logging.CRITICAL)
    publisher = Server(features(), name="tests")
    if "--reference" in sys.argv:
        anyio.run(serve_reference, publisher)
    else:
        serve_stdio(publisher, take_standard_streams())


if __name__ == "__main__":
    main()
