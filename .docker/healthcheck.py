"""Whether the server of this container is alive: done when ``/healthz`` answers 200."""

import os
import sys
from http.client import HTTPConnection

PORT = os.environ.get("BRIDGE_ADMIN_PORT") or os.environ.get("BRIDGE_PORT") or "8000"
connection = HTTPConnection("127.0.0.1", int(PORT), timeout=3)
connection.request("GET", "/healthz")
sys.exit(connection.getresponse().status != 200)  # noqa: PLR2004 - OK
