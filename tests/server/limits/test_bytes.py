"""Limits of the bytes of results in a period, of single callers and of teams."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge import prompt, resource
from bridge.errors import DefinitionError
from bridge.protocol.versions import CAPABILITIES_KEY
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth, JwtVerifier, KeyFile
from bridge.server.auth.keys import KeyFileError
from bridge.server.features import Features
from bridge.server.limits import CallerLimits, Limits, Rate, guard
from bridge.tools.function import tool
from bridge.tools.task import TaskPolicy
from bridge.tools.toolbox import ToolBox
from bridge.wire.extension import TASKS
from tests.processes import serving as process
from tests.server import http_server as http
from tests.server.auth.conftest import issuer
from tests.server.auth.guarded import ADA, BOB, bearer, talking
from tests.server.auth.issuer import AUDIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.auth.issuer import Issuer

__all__ = ["issuer"]  # a fixture
CARL = "carl-carl-carl-carl-carl"
LIMIT = Rate(4000, 1_000_000)
SECONDS_OF_A_BYTE = 250


@pytest.fixture(autouse=True)
def _refusals_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "HOLD_SECONDS", 0)


@tool
async def letters(count: int) -> str:
    """Return letters."""
    return "x" * count


@contextmanager
def served(auth: Any, limits: Limits, *tools: Any, http_kind: str = "direct") -> Iterator[str]:
    app = http_app(Server(ToolBox(*(tools or (letters,))), name="tests", limits=limits), auth=auth)
    with http.serving(app, http=http_kind) as origin:
        yield origin


def call(count: int) -> dict[str, Any]:
    return http.call("letters", {"count": count})


ERAS = pytest.mark.parametrize("kind", ["modern", "handshake"])
HTTP_KINDS = pytest.mark.parametrize("http_kind", ["direct", "h11"])


def check_refusal(response: httpx.Response, limit: str, who: str, least_excess_bytes: int) -> None:
    assert response.status_code == 429
    error = response.json()["error"]
    assert error["message"].startswith(f"too many bytes of results: {who} has 3.9 KiB in 11.6 d; try again in")
    assert error["data"]["limit"] == limit
    seconds = error["data"]["retryAfterSeconds"]
    assert int(response.headers["retry-after"]) == seconds
    assert least_excess_bytes <= seconds / SECONDS_OF_A_BYTE <= least_excess_bytes + 1000


@HTTP_KINDS
@ERAS
def test_requests_of_a_key_are_refused_after_the_result_that_exceeds_its_bytes(kind: str, http_kind: str) -> None:
    keys = ApiKeys(ApiKey("ada", ADA, limits=CallerLimits(bytes=LIMIT)), ApiKey("bob", BOB))
    with (
        served(keys, Limits(of_callers=True), http_kind=http_kind) as origin,
        talking(kind, origin, ADA) as ada,
        talking(kind, origin, BOB) as bob,
    ):
        assert [ada.send(call(count)).status_code for count in (3000, 10_000)] == [200, 200]
        check_refusal(ada.send(call(1)), "bytes", "a caller", 9000)
        check_refusal(ada.send(http.request("tools/list")), "bytes", "a caller", 9000)
        assert [bob.send(call(count)).status_code for count in (10_000, 10_000)] == [200, 200]


@HTTP_KINDS
@ERAS
def test_members_of_a_team_share_its_bytes_and_others_have_their_own(kind: str, http_kind: str) -> None:
    keys = ApiKeys(ApiKey("ada", ADA, team="data"), ApiKey("bob", BOB, team="data"), ApiKey("carl", CARL, team="ops"))
    with (
        served(keys, Limits(team_bytes={"data": LIMIT}), http_kind=http_kind) as origin,
        talking(kind, origin, ADA) as ada,
        talking(kind, origin, BOB) as bob,
        talking(kind, origin, CARL) as carl,
    ):
        assert [each.send(call(3000)).status_code for each in (ada, bob)] == [200, 200]
        for each in (ada, bob):
            check_refusal(each.send(call(1)), "--team-bytes", "the team 'data'", 2000)
        assert [carl.send(call(10_000)).status_code for _ in range(2)] == [200, 200]


@ERAS
def test_the_bytes_of_all_callers_are_replaced_by_those_of_a_key(kind: str) -> None:
    keys = ApiKeys(ApiKey("ada", ADA, limits=CallerLimits(bytes=Rate(100_000, 600))), ApiKey("bob", BOB))
    with served(keys, Limits(byte_rate=LIMIT, of_callers=True)) as origin:
        for token, expected in ((ADA, [200, 200]), (BOB, [200, 429])):
            with talking(kind, origin, token) as peer:
                assert [peer.send(call(5000)).status_code for _ in range(2)] == expected


@resource("note://letters/{count}", completions={"count": lambda text, *_: [text * 3000]})
async def page(count: int) -> str:
    """Read letters."""
    return "x" * count


@prompt
async def essay(count: str) -> str:
    """Write about letters."""
    return "x" * int(count)


@HTTP_KINDS
@ERAS
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "note://letters/10000"}),
        ("prompts/get", {"name": "essay", "arguments": {"count": "10000"}}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": "note://letters/{count}"},
                "argument": {"name": "count", "value": "123"},
            },
        ),
    ],
    ids=["read", "prompt", "completion"],
)  # fmt: skip
def test_reads_prompts_and_completions_count(method: str, params: Any, kind: str, http_kind: str) -> None:
    keys = ApiKeys(ApiKey("ada", ADA, limits=CallerLimits(bytes=LIMIT)), ApiKey("bob", BOB, team="data"))
    limits = Limits(of_callers=True, team_bytes={"data": LIMIT})
    app = http_app(Server(Features.of(page, essay), name="tests", limits=limits), auth=keys)
    with http.serving(app, http=http_kind) as origin:
        for token, limit, who in ((ADA, "bytes", "a caller"), (BOB, "--team-bytes", "the team 'data'")):
            with talking(kind, origin, token) as peer:
                first = peer.send(http.request(method, params))
                assert (first.status_code, "error" in first.json()) == (200, False), first.text
                check_refusal(peer.send(call(1)), limit, who, len(first.content) - 5000)


def test_the_result_of_a_task_counts() -> None:
    @tool(task=TaskPolicy())
    async def letters(count: int) -> str:
        """Return letters."""
        return "x" * count

    keys = ApiKeys(ApiKey("ada", ADA, team="data"))
    with served(keys, Limits(team_bytes={"*": LIMIT}), letters) as origin, talking("modern", origin, ADA) as ada:
        message = http.modern(call(10_000))
        message["params"]["_meta"][CAPABILITIES_KEY] = {"extensions": {TASKS.id: {}}}
        answer = httpx.post(f"{origin}/mcp", json=message, headers=http.modern_headers(message) | bearer(ADA))
        assert answer.json()["result"]["resultType"] == "task", answer.text
        while (response := ada.send(http.request("tools/list"))).status_code == 200:
            pass
        check_refusal(response, "--team-bytes", "the team 'data'", 6000)


def test_a_claim_of_tokens_limits_the_bytes_of_their_bearers(issuer: Issuer) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE), limits_claim="limits")
    with served(auth, Limits(of_callers=True)) as origin:
        for limits, expected in (({"bytes": "4KiB/300h"}, [200, 429]), ({"bytes": "1MiB/300h"}, [200, 200])):
            with talking("modern", origin, issuer.token(sub=str(limits), limits=limits)) as peer:
                assert [peer.send(call(5000)).status_code for _ in range(2)] == expected


def test_bytes_in_a_period_are_read_with_their_units() -> None:
    for text, expected in (
        ("50MiB/1h", Rate(50 * 2**20, 3600)),
        ("2.5MB/60", Rate(2_500_000, 60)),
        ("100/1m", Rate(100, 60)),
        (" 1kib/30s ", Rate(1024, 30)),
    ):
        assert Rate.read_bytes(text) == expected
    for text in ("", "50MiB", "MiB/1h", "50MiX/1h", "0MiB/1h", "-1/1h", "50MiB/0", "50MiB/soon", f"{'9' * 400}YiB/1h"):
        with pytest.raises(DefinitionError, match="such as 50MiB/1h, not"):
            Rate.read_bytes(text)


def test_a_line_of_a_key_limits_bytes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"ada {ADA} bytes=50MiB/1h\n", encoding="utf-8")
    assert KeyFile(path).has_limits
    path.write_text(f"ada {ADA} bytes=much\n", encoding="utf-8")
    with pytest.raises(KeyFileError, match="bytes= is a size and a time, such as 50MiB/1h"):
        KeyFile(path)


@pytest.mark.slow
def test_bytes_of_keys_and_teams_on_the_command_line(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"ada {ADA} bytes=10B/300h\nbob {BOB} team=data\ncarl {CARL}\n", encoding="utf-8")
    options = ("--transport", "http", "--port", "0", "--api-keys", str(keys), "--team-bytes", "data=10B/300h")
    with process("-m", "bridge", "serve", "servers/calculator.py", *options) as server:
        for token, limit in ((ADA, "bytes"), (BOB, "--team-bytes"), (CARL, None)):
            with talking("modern", server.origin, token) as peer:
                first, second = (peer.send(http.call("add", {"a": 1, "b": 2})) for _ in range(2))
            assert first.status_code == 200
            found = second.json()["error"]["data"]["limit"] if second.status_code == 429 else None
            assert found == limit
