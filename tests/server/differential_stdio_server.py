"""A server over stdio for the differential test, with the fast path or without; at its end it prints the fast IDs."""

from __future__ import annotations

import logging
import sys
from typing import Any

from bridge.protocol.messages import is_request
from bridge.server.publisher import Publisher
from bridge.server.stdio.fast import FastStdio
from bridge.server.stdio.process import take_standard_streams
from bridge.server.stdio.server import serve_stdio
from tests.server.differential_tools import features

_took = FastStdio.handles
_fast = 0


def _counted(self: FastStdio, message: dict[str, Any]) -> bool:
    global _fast  # noqa: PLW0603 - one server in this process
    was_taken = _took(self, message)
    _fast += was_taken and is_request(message)
    return was_taken


def main() -> None:
    streams = take_standard_streams()
    logging.basicConfig(level=logging.CRITICAL)
    FastStdio.handles = _counted  # type: ignore[method-assign]  # counted where it is decided
    serve_stdio(Publisher(features(), name="tests"), streams, fast_path="--fast-path" in sys.argv)
    sys.stderr.write(f"\nfast: {_fast}\n")


if __name__ == "__main__":
    main()
