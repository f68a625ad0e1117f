"""Check that the server of this container is alive: ``/healthz`` answers 200."""

import os
import sys
from http.client import HTTPConnection, HTTPException

PORT = os.environ.get("BRIDGE_ADMIN_PORT") or os.environ.get("BRIDGE_PORT") or "8000"
try:
    connection = HTTPConnection("127.0.0.1", int(PORT), timeout=3)
    connection.request("GET", "/healthz")
    status = connection.getresponse().status
except (OSError, HTTPException, ValueError, OverflowError) as error:
    sys.exit(f"the server at port {PORT!r} is not alive: {' '.join(str(error).split())}")
if status != 200:  # noqa: PLR2004 - OK
    sys.exit(f"the server at port {PORT!r} is not alive: /healthz is answered {status}")
