"""Real HTTP requests to an MCP server, and mutations that make them malformed."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
BOTH_KINDS = "application/json, text/event-stream"

Headers = list[tuple[str, bytes]]


@dataclass(slots=True)
class Draft:
    """A request that is not yet written."""

    method: str
    target: str
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    first_line: bytes | None = None
    """Request line, instead of the one of method and target."""
    framed: bytes | None = None
    """Everything after the other headers, instead of the body and its framing headers."""
    is_whole: bool = True
    """True if the server receives everything that the framing announces, and has to respond."""

    @property
    def raw(self) -> bytes:
        """The bytes of a request."""
        first = self.first_line or f"{self.method} {self.target} HTTP/1.1".encode()
        lines = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in self.headers)
        rest = self.framed
        if rest is None:
            rest = b"Content-Length: %d\r\n\r\n" % len(self.body) + self.body
        return first + b"\r\n" + lines + rest


@dataclass(frozen=True, slots=True)
class Sessions:
    """Paths of requests of the handshake era."""

    session_id: str
    doomed_session_id: str
    """Paths of a DELETE, which keep the other sessions open."""
    messages_target: str


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def post(target: str, message: Any, **headers: str) -> Draft:
    named: Headers = [(name.replace("_", "-"), value.encode()) for name, value in headers.items()]
    common: Headers = [("Host", b"localhost"), ("Content-Type", b"application/json"), ("Accept", BOTH_KINDS.encode())]
    return Draft("POST", target, [*common, *named], json.dumps(message).encode())


def modern(method: str, _meta: Any = None, **params: Any) -> Draft:
    headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": method}
    if (name := params.get("name") or params.get("uri")) is not None:
        headers["Mcp_Name"] = name
    return post("/mcp", request(method, **params, _meta=META | (_meta or {})), **headers)


def initialize() -> Draft:
    info = {"name": "fuzz", "version": "1"}
    return post("/mcp", request("initialize", protocolVersion=HANDSHAKE, capabilities={}, clientInfo=info))


def handshake(sessions: Sessions, message: Any) -> Draft:
    return post("/mcp", message, MCP_Protocol_Version=HANDSHAKE, Mcp_Session_Id=sessions.session_id)


def without_body(method: str, target: str, **headers: str) -> Draft:
    draft = post(target, None, **headers)
    return replace(draft, method=method, body=b"")


MESSAGES = (
    request("tools/list"),
    request("tools/call", name="add", arguments={"a": 1, "b": 2}),
    request("tools/call", name="add", arguments={"a": "one"}, _meta={"progressToken": "p"}),
    request("tools/call", name="unheard_of", arguments={}),
    request("ping"),
    request("logging/setLevel", level="info"),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "id": 7, "result": {}},
)


def good_drafts(sessions: Sessions) -> list[Draft]:
    """Requests as clients of both eras and all transports send them over HTTP."""
    return [
        modern("tools/list"),
        modern("tools/call", name="add", arguments={"a": 1, "b": 2}),
        modern("tools/call", name="add", arguments={"a": 1, "b": 2}, _meta={"progressToken": 1}),
        replace(modern("server/discover"), target="/mcp/"),
        modern("subscriptions/listen", notifications={"toolsListChanged": True}),
        initialize(),
        *(handshake(sessions, message) for message in MESSAGES),
        *(post(sessions.messages_target, message) for message in MESSAGES),
        without_body("GET", "/sse"),
        without_body("GET", "/mcp", MCP_Protocol_Version=HANDSHAKE, Mcp_Session_Id=sessions.session_id),
        without_body("DELETE", "/mcp", MCP_Protocol_Version=HANDSHAKE, Mcp_Session_Id=sessions.doomed_session_id),
    ]


# --- spoiling --------------------------------------------------------------------------------------------------------

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**64, 10**400, "", "x", "tools/call", "\u0000", "\ud800", "é" * 500),
    *([], [1], {}, {"_meta": None}, META, [[[[{}]]]]),
)
ODD_TEXTS = (
    *(b"", b" ", b"x", b"0", b"\xff\xfe", b"\xc3\xa9", b"a" * 5000, b"*/*;q=0", b"text/html", b"null"),
    *(MODERN.encode(), HANDSHAKE.encode(), b"1999-01-01", b"tools/list", b"  add\t", b"=?base64?!!?=", b"utf-16"),
)
HEADER_NAMES = (
    *("Host", "Origin", "Accept", "Content-Type", "Content-Encoding", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"),
    *("Mcp-Session-Id", "Mcp-Param-Region", "Last-Event-ID", "Authorization", "Expect", "Cookie", "X-" + "y" * 300),
)
ODD_BODIES = (
    *(b"", b"null", b"[]", b"{}", b'"text"', b"{", b"NaN", b"9" * 5000, b"[" * 100_000, b'{"a":' * 5000, b"\xff\xfe"),
    *(b"\x00" * 100, b'{"jsonrpc":"2.0","id":1,"method":"ping"}garbage', b'{"jsonrpc":"1.0","id":1,"method":"ping"}'),
)
TARGETS = (
    "/",
    "/mcp//",
    "/MCP",
    "/mcp/x",
    "/messages",
    "/%00",
    "/..%2fmcp",
    "*",
    "http://localhost/none",
    "/" + "a" * 9000,
)
"""Paths where nothing is served."""
SESSION_TARGETS = ("/messages/?session_id=", "/messages/?session_id=%s" % ("0" * 32), "/messages/?session_id=é%ff")
FIRST_LINES = (b"", b"POST", b"POST /mcp", b"POST /mcp HTTP/9.9", b"\x16\x03\x01\x02\x00\x01", b"P\x00ST /mcp HTTP/1.1")


def spoil_json(random: Random, draft: Draft) -> bool:
    """Put an unusual value at some place of the message."""
    try:
        message = {"": json.loads(draft.body)}
    except (ValueError, RecursionError):
        return False
    place: Any = message
    key: Any = ""
    while isinstance(place[key], dict | list) and place[key] and random.random() < 0.8:
        place = place[key]
        key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
    if random.random() < 0.3 and place is not message:
        del place[key]
    else:
        place[key] = deepcopy(random.choice(ODD_VALUES))
    draft.body = json.dumps(message[""], ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    return False


def spoil_bytes(random: Random, draft: Draft) -> bool:
    """Cut, repeat or overwrite a part of the body."""
    start, end = sorted(random.randrange(len(draft.body) + 1) for _ in range(2))
    middle = random.choice((b"", draft.body[start:end] * 2, random.randbytes(random.randrange(1, 9))))
    draft.body = draft.body[:start] + middle + draft.body[end:]
    return False


def replace_body(random: Random, draft: Draft) -> bool:
    draft.body = random.choice(ODD_BODIES)
    return draft.method == "POST"


def recode_body(random: Random, draft: Draft) -> bool:
    """Write the same message in another way: with a byte order mark, in UTF-16, twice, or in a batch."""
    text = draft.body.decode("utf-8", "replace")
    rewritten = (b"\xef\xbb\xbf" + draft.body, text.encode("utf-16"), draft.body * 2, b"[" + draft.body + b"]")
    draft.body = random.choice(rewritten)
    return False


def spoil_header(random: Random, draft: Draft) -> bool:
    """Drop a header, repeat it, or give it another value."""
    place = random.randrange(len(draft.headers))
    name, value = draft.headers[place]
    kept: tuple[Headers, ...] = ([], [(name, value)] * 2, [(name.swapcase(), random.choice(ODD_TEXTS))])
    draft.headers[place : place + 1] = random.choice(kept)
    draft.headers = draft.headers or [("X-Last", b"1")]
    return False


def add_header(random: Random, draft: Draft) -> bool:
    value = b"100-continue" if (name := random.choice(HEADER_NAMES)) == "Expect" else random.choice(ODD_TEXTS)
    draft.headers.insert(random.randrange(len(draft.headers) + 1), (name, value))
    return False


def change_host(random: Random, draft: Draft) -> bool:
    host = random.choice((b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example:80", b"", b"a b", b"["))
    draft.headers = [(name, host if name == "Host" else value) for name, value in draft.headers]
    return True


def break_header(random: Random, draft: Draft) -> bool:
    broken = random.choice((("no colon\r\nX", b"1"), ("X\x00Y", b"1"), ("X", b"a\x00b"), ("", b"nameless")))
    draft.headers.append(broken)
    return True


def change_method(random: Random, draft: Draft) -> bool:
    # uvicorn with h11 cannot respond to a HEAD with broken chunks; `bridge serve` can.
    draft.method = random.choice(("PUT", "PATCH", "OPTIONS", "TRACE", "GET", "HEAD" if draft.framed is None else "GET"))
    return draft.method not in {"GET", "HEAD"}


def change_target(random: Random, draft: Draft) -> bool:
    draft.target = random.choice(TARGETS)
    return draft.target not in {"*", "/messages"}


def change_session(random: Random, draft: Draft) -> bool:
    """Post to an unknown session."""
    draft.target = random.choice(SESSION_TARGETS)
    return True


def break_first_line(random: Random, draft: Draft) -> bool:
    draft.first_line = random.choice(FIRST_LINES)
    return False


def break_framing(random: Random, draft: Draft) -> bool:
    """Announce one length and send another, or malformed chunks."""
    if draft.method == "HEAD":
        return False
    body, length = draft.body, len(draft.body)
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    head, whole = b"Content-Length: %d\r\n\r\n", True
    match random.randrange(9):
        case 0:
            draft.framed = chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (length, body) if length else chunked + b"0\r\n\r\n"
        case 1:
            draft.framed = chunked + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        case 2:
            draft.framed, whole = chunked + b"%x\r\n%s" % (length + 10, body), False
        case 3:
            draft.framed = chunked + b"zz\r\n" + body
        case 4:
            draft.framed, whole = head % (length + 10) + body, False
        case 5:
            draft.framed = head % max(0, length - 10) + body
        case 6:
            draft.framed = b"Content-Length: -1\r\n\r\n" + body
        case 7:
            draft.framed = b"Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (length, length + 1) + body
        case _:
            draft.framed, whole = head % (5 * 1024 * 1024) + body, False
    draft.is_whole = whole
    return False


SPOILERS: tuple[Callable[[Random, Draft], bool], ...] = (
    *(spoil_json,) * 6,
    *(spoil_header,) * 4,
    *(spoil_bytes,) * 3,
    *(replace_body, recode_body, add_header, change_host, break_header, change_method) * 2,
    *(change_target, change_session, break_first_line, break_framing),
)
"""Mutations of a request, the effective ones more often; each returns True if the request has to be refused."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request, and the expected properties of its response."""

    method: str
    raw: bytes
    must_be_answered: bool
    must_be_refused: bool
    must_be_taken: bool


def attempt(random: Random, sessions: Sessions) -> Attempt:
    """Return a request: one in ten is valid, the others are mutated up to three times."""
    draft = random.choice(good_drafts(sessions))
    # Many are sent at once, and no two running requests of a session have one ID.
    draft.body = draft.body.replace(b'"id": 1,', b'"id": %d,' % random.getrandbits(40), 1)
    spoilers = [random.choice(SPOILERS) for _ in range(random.choice((0, 1, 1, 1, 1, 1, 2, 2, 2, 3)))]
    verdicts = [spoil(random, draft) for spoil in spoilers]
    return Attempt(
        method=draft.method,
        raw=draft.raw,
        must_be_answered=draft.is_whole,
        must_be_refused=verdicts == [True],
        # A session has one stream of notifications, and ends once.
        must_be_taken=not verdicts and (draft.method == "POST" or draft.target == "/sse"),
    )
