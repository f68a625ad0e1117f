"""Requests for the differential tests: every valid form, and mutations."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.server import http_mutations as fuzz
from tests.server.differential_tools import OTHER_CALLS, PLAIN_CALLS, TALKING_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.server.http_mutations import Draft

SESSION = "5e55" * 8
"""Placeholder for the ID of the session that each server opened."""
_SESSIONS = fuzz.Sessions(SESSION, "", "")
_VERSION_KEY, _INFO_KEY, _CAPABILITIES_KEY = fuzz.META
_RAW = re.compile(rb'"raw:(.*?)(?<!\\)"')


# --- valid -----------------------------------------------------------------------------------------------------------

ENVELOPES: tuple[dict[str, Any], ...] = (
    {},
    {"progressToken": 7},
    {_INFO_KEY: {"name": "é", "version": "", "title": "T", "description": "D", "websiteUrl": "https://example.org"}},
    {_CAPABILITIES_KEY: {"sampling": {}, "roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}}},
)
PLAIN_PARAMS: dict[str, tuple[dict[str, Any], ...]] = {
    "tools/call": tuple({"name": name, "arguments": arguments} for name, arguments in PLAIN_CALLS),
    "tools/list": ({}, {"cursor": None}),
    "resources/list": ({}, {"cursor": None}),
    "resources/templates/list": ({},),
    "resources/read": tuple(
        {"uri": uri} for uri in ("test://text", "test://bytes", "test://by/name", "test://by/broken")
    ),
    "prompts/list": ({},),
    "prompts/get": ({"name": "greeting", "arguments": {"whom": "é"}}, {"name": "greeting"}),
    "completion/complete": (
        {"ref": {"type": "ref/prompt", "name": "greeting"}, "argument": {"name": "tone", "value": "f"}},
        {"ref": {"type": "ref/resource", "uri": "test://by/{name}"}, "argument": {"name": "name", "value": ""}},
    ),
}


def plain_drafts() -> list[Draft]:
    """Valid requests that are answered without a message before."""
    calls = [(method, params) for method, each in PLAIN_PARAMS.items() for params in each]
    modern = [fuzz.modern(method, ENVELOPES[0], **params) for method, params in calls]
    modern += [fuzz.modern("tools/call", meta, **PLAIN_PARAMS["tools/call"][0]) for meta in ENVELOPES]
    modern += [fuzz.modern("server/discover"), replace(modern[0], target="/mcp/")]
    handshake = [_in_session(method, params) for method, params in calls]
    handshake += [
        _in_session("ping", {}),
        _in_session("tools/call", {"name": "picture"}),
        _in_session("tools/call", {"name": "picture", "arguments": None, "_meta": {"progressToken": "p"}}),
    ]
    for draft in handshake[::5]:
        draft.headers = [header for header in draft.headers if header[0] != "MCP-Protocol-Version"]
    return modern + handshake


def talking_drafts() -> list[Draft]:
    """Valid requests whose functions talk to the client."""
    asking: dict[str, Any] = {_CAPABILITIES_KEY: {"elicitation": {}}}
    drafts = [fuzz.modern("tools/call", asking, name="ask", arguments={})]
    for name, arguments, meta in TALKING_CALLS:
        drafts.append(fuzz.modern("tools/call", meta, name=name, arguments=arguments))
        drafts.append(_in_session("tools/call", {"name": name, "arguments": arguments, "_meta": meta}))
    return [*drafts, _in_session("tools/call", {"name": "note", "arguments": {"text": "é"}})]


def other_drafts() -> list[Draft]:
    """Further valid requests, and invalid ones."""
    calls = [("tools/call", {"name": name, "arguments": arguments}) for name, arguments in OTHER_CALLS]
    calls += [
        ("ping", {}),
        ("resources/read", {"uri": "file:///x"}),
        ("prompts/get", {"name": "x"}),
        ("unheard/of", {}),
    ]
    modern = [fuzz.modern(method, **params) for method, params in calls]
    mirrored = fuzz.modern("tools/call", name="mirrored", arguments={"region": "here"})
    mirrored.headers.append(("Mcp-Param-Region", b"here"))
    session = [
        *(_in_session(method, params) for method, params in calls if method != "ping"),
        _in_session("logging/setLevel", {"level": "info"}),
        fuzz.handshake(_SESSIONS, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        fuzz.handshake(_SESSIONS, {"jsonrpc": "2.0", "method": "notifications/initialized"}),
        fuzz.handshake(fuzz.Sessions("0" * 32, "", ""), fuzz.request("tools/list")),
        fuzz.handshake(fuzz.Sessions("", "", ""), fuzz.request("tools/list")),
    ]
    return [*modern, mirrored, *session, fuzz.initialize()]


def ending() -> Draft:
    """Ends the session."""
    return fuzz.without_body("DELETE", "/mcp", MCP_Protocol_Version=fuzz.HANDSHAKE, Mcp_Session_Id=SESSION)


def _in_session(method: str, params: dict[str, Any]) -> Draft:
    return fuzz.handshake(_SESSIONS, fuzz.request(method, **params))


# --- nearly valid ----------------------------------------------------------------------------------------------------


def under(key: str, *values: Any) -> tuple[dict[str, Any], ...]:
    """Return each of the values, under a key."""
    return tuple({key: value} for value in values)


ABSENT = object()
IDS: tuple[Any, ...] = (
    *(0, -1, 2**53 + 1, 2**70, 10**400, "", "1", "é", "\ud800", "\u0000", 1.0, 1.5, True, None, [], {}, ABSENT),
    *("raw:-0", "raw:1E2", "raw:" + "9" * 5000, "raw:NaN"),
)
IMPLEMENTATIONS: tuple[Any, ...] = (
    *(None, {}, [], "x", {"name": "n"}, {"name": "n", "version": 1}, {"name": "n", "version": None}),
    *({"name": "n", "version": "1"} | more for more in under("icons", [], [{"src": 5}], None)),
    *({"name": "n", "version": "1"} | more for more in under("title", None, 1, "x")),
    {"name": "n", "version": "1", "websiteUrl": "not an address", "x": "y"},
)
CAPABILITIES: tuple[Any, ...] = (
    *(None, [], "x", True, {"x": {}}, {"experimental": {"x": 1}}, {"tasks": {"requests": {"tools": {"call": {}}}}}),
    *under("sampling", None, True, {"tools": {}}, {"x": {"y": 1}}),
    *under("roots", *under("listChanged", True, False, None, 1, 0, 1.0, "true", "x", {}, [])),
    *under("elicitation", *under("form", {}, None, 1, {"x": [1]}), []),
    *(under(name, {"x": {"y": 1}})[0] for name in ("experimental", "extensions", "tasks", "roots")),
)
TOKENS: tuple[Any, ...] = (1, True, False, 1.0, 1.5, None, "", "x", [], {}, 2**70, "raw:NaN", "\ud800")
ARGUMENTS: tuple[Any, ...] = (
    *(None, {}, [], "x", 1, True, ABSENT, {"a": None}, {"a": [1]}, {"a": True, "b": 1}, {"": 1}, {"a": 1.5, "b": 2}),
    *under("value", "\ud800", "raw:NaN", "raw:-Infinity", "raw:1e999", "raw:-0.0", 2**70, 10**400, "\ufeff"),
    *under("value", "raw:" + "[" * 150 + "]" * 150, "raw:" + "[" * 250 + "]" * 250),
    *under("text", "\ud800", 5, True, None, 2**70, "raw:1E5", ["x"], "x" * 70_000),
    {"point": {"x": "1", "y": None, "z": []}, "by": {}},
)
ODD: tuple[Any, ...] = (None, {}, [], [1], "", "x", 0, 1, True, "raw:NaN")

PLACES: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = (
    (("id",), IDS),
    (("jsonrpc",), ("2.0 ", "1.0", 2.0, None, ABSENT)),
    (
        ("method",),
        ("tools/list", "tools/call", "ping", "server/discover", "initialize", "Tools/List", "", None, ABSENT),
    ),
    (("params",), (None, {}, [], ABSENT)),
    *(((key,), ODD) for key in ("extra", "result", "error")),
    *((("params", key), ODD) for key in ("extra", "task", "inputResponses", "requestState", "cursor")),
    (("params", "name"), ("add", "mirror", "by-hand", "unheard-of", "ADD", "add ", "\ud800", 5, None, ABSENT)),
    *[(("params", "arguments"), ARGUMENTS)] * 3,
    (("params", "_meta"), (*ODD, ABSENT)),
    *[(("params", "_meta", "progressToken"), (*TOKENS, ABSENT))] * 2,
    (("params", "_meta", "traceparent"), ODD),
    (("params", "_meta", "io.modelcontextprotocol/logLevel"), ("info", "loud", *ODD)),
    (("params", "_meta", _VERSION_KEY), (fuzz.MODERN, fuzz.HANDSHAKE, "2099-01-01", *ODD, ABSENT)),
    (("params", "_meta", _INFO_KEY), (*IMPLEMENTATIONS, ABSENT)),
    *[(("params", "_meta", _CAPABILITIES_KEY), (*CAPABILITIES, ABSENT))] * 2,
)


def nudge(random: Random, draft: Draft) -> bool:
    """Set another value at a place that is checked."""
    try:
        message = json.loads(draft.body)
    except (ValueError, RecursionError):
        return False
    path, values = random.choice(PLACES)
    place = message
    for key in path[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else None
    if isinstance(place, dict):
        place.pop(path[-1], None)
        if (value := random.choice(values)) is not ABSENT:
            place[path[-1]] = value
    draft.body = _written(message, ensure_ascii=random.random() < 0.5)
    return False


def _written(message: Any, *, ensure_ascii: bool) -> bytes:
    text = json.dumps(message, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass")
    return _RAW.sub(lambda found: found[1], text)


def rewrite_body(random: Random, draft: Draft) -> bool:
    """Write the same message in another way, or nearly the same."""
    body = draft.body
    draft.body = random.choice(
        (
            b" \r\n\t" + body + b"\n",
            body.replace(b": ", b" :\n"),
            body.replace(b"tools/", b"\\u0074ools\\/"),
            body.replace(b'"id": 1', b'"id": 2, "id": 1'),
            body.replace(b'"id": 1', b'"id": null, "id": 1'),
            body.replace(b'"name"', b'"name": "talk", "name"'),
            body.replace(b'"arguments"', b'"arguments": [], "arguments"'),
            body.replace(b'"params"', b'"params": 5, "params"'),
            b"\xef\xbb\xbf" + body,
            body + b"\x00",
            body.decode("utf-8", "replace").encode("utf-16"),
            body.decode("utf-8", "replace").encode("utf-32-le"),
            body.replace(b"{", b"{/**/", 1),
            body.replace(b"}", b",}", 1),
            body.replace(b'"', b"'"),
        )
    )
    return False


HEADER_VALUES: dict[str, tuple[bytes, ...]] = {
    "Accept": (
        *(
            b"*/*",
            b"application/json",
            b"text/event-stream",
            b"application/*, text/*",
            b"text/*, application/json",
            b"",
        ),
        *(
            b"APPLICATION/JSON, Text/Event-Stream",
            b"application/json;q=0,text/event-stream;q=0.1",
            b"application/json;",
        ),
        *(b" application/json ,\ttext/event-stream ;x=y,", b"application/json text/event-stream", b"*/*;q=0", b"*"),
    ),
    "Content-Type": (
        *(b"application/json; charset=utf-8", b"application/json;charset=utf-16", b"Application/JSON", b"text/plain"),
        *(b"application/json;", b"application/json, text/plain", b"application/jsonx", b"application/json ; x", b""),
    ),
    "MCP-Protocol-Version": (
        *(fuzz.MODERN.encode(), fuzz.HANDSHAKE.encode(), b"2025-06-18", b"2025-03-26", b"2024-11-05", b"2099-01-01"),
        *(b"", b"2026-07-28, 2026-07-28"),
    ),
    "Mcp-Method": (b"tools/call", b"tools/list", b"TOOLS/CALL", b"server/discover", b"ping", b"", b"tools/call,"),
    "Mcp-Name": (
        *(
            b"add",
            b"ADD",
            b"unheard-of",
            b"talk",
            b"",
            b'"add"',
            b"=?base64?%s?=" % b64encode(b"add"),
            b"=?base64?YWR=?=",
        ),
        *(b"add, add", b"=?base64??="),
    ),
    "Mcp-Session-Id": (SESSION.upper().encode(), b"0" * 32, b"", b"\xe9", b"%s, x" % SESSION.encode()),
    "Mcp-Param-Region": (b"here", b"there", b""),
    "Mcp-Param-A": (b"1", b"2"),
    "Content-Encoding": (b"gzip", b"identity"),
    "Origin": (b"http://localhost:3000", b"https://evil.example", b"null", b""),
    "Host": (b"127.0.0.1:1", b"LOCALHOST", b"evil.example"),
    "Last-Event-ID": (b"1",),
    "Authorization": (b"Bearer x",),
    "Connection": (b"close",),
    "Expect": (b"100-continue",),
}


def set_header(random: Random, draft: Draft) -> bool:
    """Give an important header another value; add it, or repeat it."""
    name = random.choice(tuple(HEADER_VALUES))
    value = random.choice(HEADER_VALUES[name])
    if random.random() < 0.85:
        draft.headers = [header for header in draft.headers if header[0].lower() != name.lower()]
    draft.headers.insert(random.randrange(len(draft.headers) + 1), (name, value))
    return False


def drop_header(random: Random, draft: Draft) -> bool:
    if draft.headers:
        del draft.headers[random.randrange(len(draft.headers))]
    return False


def respell_headers(random: Random, draft: Draft) -> bool:
    """Change the case of names, and the space around values: the same request."""
    case = random.choice((str.upper, str.lower, str.swapcase))
    space = random.choice((b"", b" ", b"\t", b"  \t "))
    draft.headers = [(case(name), space + value + space) for name, value in draft.headers]
    return False


def chunk_body(random: Random, draft: Draft) -> bool:
    """Send the body in chunks: the same request."""
    chunks, body = b"", draft.body
    while body:
        length = random.randrange(1, len(body) + 1)
        chunks += b"%x\r\n%b\r\n" % (length, body[:length])
        body = body[length:]
    draft.framed = b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return False


BODY_SPOILERS: tuple[Callable[[Random, Draft], bool], ...] = (
    *(nudge,) * 12,
    *(rewrite_body, fuzz.spoil_json) * 2,
    *(fuzz.spoil_bytes, fuzz.recode_body, fuzz.replace_body),
)
SPOILERS = (
    *BODY_SPOILERS,
    *(set_header,) * 6,
    *(respell_headers, drop_header, fuzz.spoil_header, fuzz.add_header),
    *(fuzz.change_method, fuzz.change_target, fuzz.change_host),
)


def spoiled_body(random: Random, draft: Draft) -> bytes:
    """The body of a request with up to three mutations."""
    draft = replace(draft)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
        random.choice(BODY_SPOILERS)(random, draft)
    return draft.body


def spoiled(random: Random, draft: Draft) -> Draft:
    """A request with up to three mutations, in one piece or in chunks."""
    draft = replace(draft, headers=list(draft.headers))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
        random.choice(SPOILERS)(random, draft)
    if random.random() < 0.1:
        chunk_body(random, draft)
    return draft
