"""An issuer of tokens: a real HTTP server with keys, metadata and introspection, and the tokens that it signs."""

from __future__ import annotations

import base64
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

if TYPE_CHECKING:
    from collections.abc import Iterator

AUDIENCE = "https://tools.example.org/mcp"
CLIENT = ("bridge", "s&cret:1")


class Issuer:
    """An HTTP server with given responses, and a record of its requests."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.gave_keys = threading.Event()
        self.answers_unheard_of = threading.Event()
        """True if introspection answers for foreign tokens; until then it lets such requests wait."""
        self.answers_unheard_of.set()
        self.keys: dict[str, Any] = {}
        self.active: dict[str, dict[str, Any]] = {}
        self.is_down = False
        self.metadata: dict[str, Any] = {}
        self.rotate("first")

    def rotate(self, *key_ids: str) -> None:
        """Replace the keys by new ones with these IDs."""
        self.keys = {key_id: rsa.generate_private_key(public_exponent=65537, key_size=2048) for key_id in key_ids}

    def elliptic(self, key_id: str) -> None:
        """Add a key on an elliptic curve."""
        self.keys[key_id] = ec.generate_private_key(ec.SECP256R1())

    @property
    def key_set(self) -> dict[str, Any]:
        """Return the public keys."""
        return {"keys": [self._public(key_id) | {"kid": key_id, "use": "sig"} for key_id in self.keys]}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a valid token; a change to None removes one."""
        now = int(time.time())
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "client_id": "app", "exp": now + 600, "nbf": now - 5}
        return {name: value for name, value in (good | changes).items() if value is not None}

    def token(
        self, key_id: str = "first", algorithm: str = "RS256", headers: dict[str, Any] | None = None, **changes: Any
    ) -> str:
        """Return a signed token."""
        return jwt.encode(
            self.claims(**changes), self.keys[key_id], algorithm, headers={"kid": key_id, **(headers or {})}
        )

    def answer(self, path: str, form: dict[str, list[str]], authorization: str | None) -> tuple[int, Any]:
        """Return the response to a request."""
        self.asked.append(path)
        if self.is_down:
            return 500, {}
        if path == "/keys":
            self.gave_keys.set()
            return 200, self.key_set
        if path == "/.well-known/oauth-authorization-server":
            return 200, {"issuer": self.url, "jwks_uri": f"{self.url}/keys"} | self.metadata
        if path == "/introspect":
            expected = base64.b64encode(b"bridge:s%26cret%3A1").decode()
            if authorization != f"Basic {expected}":
                return 401, {}
            if (token := form["token"][0]) not in self.active:
                self.answers_unheard_of.wait(60)
            return 200, self.active.get(token, {"active": False})
        return 404, {}

    def _public(self, key_id: str) -> dict[str, Any]:
        key = self.keys[key_id]
        family = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        found: dict[str, Any] = family.to_jwk(key.public_key(), as_dict=True)
        return found


def unsigned(claims: dict[str, Any], algorithm: str = "none", signature: str = "") -> str:
    """Return a token without a signature."""
    parts = [{"alg": algorithm, "typ": "JWT", "kid": "first"}, claims]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, signature])


@contextmanager
def issuing() -> Iterator[Issuer]:
    """Run an issuer in this block."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            self._answer(parse_qs(self.rfile.read(length).decode()))

        def _answer(self, form: dict[str, list[str]]) -> None:
            status, content = issuer.answer(self.path, form, self.headers.get("authorization"))
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join(10)
