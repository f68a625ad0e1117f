"""Webhooks of a real server over HTTP to a real receiver: challenge, signatures, retries, bounds, access, restarts."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bridge import Caller, DefinitionError, Server
from bridge.errors import WireError
from bridge.events import EventType, event, verify_webhook
from bridge.events.event_type import Feed
from bridge.protocol.versions import (
    CALLBACK_FAILED,
    FORBIDDEN,
    INVALID_PARAMS,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNSUPPORTED,
)
from bridge.server import EventOptions, SqliteTaskStore, TaskOptions
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.http.app import http_app
from tests.redis_server import RedisServer
from tests.server.events.receiver import Receiver, new_secret, receiving
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.types import Json

ADA, BOB, EVE = (f"{name}-{name}-{name}-{name}-{name}" for name in ("ada", "bob", "eve"))
KEYS = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB), ApiKey("eve", EVE, tools=("other",)))
SECRET = new_secret()
_ids = itertools.count(1)


@event("number")
async def number(payload: dict[str, int], least: int = 0) -> bool:
    """A number has come."""
    return payload["value"] >= least


OTHER = EventType(name="other")


class Client:
    """Sends requests of the modern era, each with a credential."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, method: str, params: Json, key: str | None = ADA) -> Json:
        """Return the result or the error."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        }
        message = {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": {**params, "_meta": meta}}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        answer: Json = httpx.post(f"{self._url}/mcp", json=message, headers=headers, timeout=30).json()
        return answer.get("result") or {"code": answer["error"]["code"], **answer["error"]}

    def subscribe(self, url: str, key: str | None = ADA, secret: str = SECRET, **more: Any) -> Json:
        """Subscribe to numbers."""
        delivery = {"mode": "webhook", "url": url, "secret": secret}
        return self.ask("events/subscribe", {"name": "number", "delivery": delivery, **more}, key)

    def unsubscribe(self, url: str, key: str | None = ADA, **more: Any) -> Json:
        """End a subscription to numbers."""
        return self.ask("events/unsubscribe", {"name": "number", "delivery": {"url": url}, **more}, key)


@contextmanager
def served(
    *origins: str, auth: Any = KEYS, store: Any = None, redis_url: str | None = None, **options: Any
) -> Iterator[tuple[Client, Server]]:
    """Serve events over HTTP."""
    events = EventOptions(webhooks=True, callback_origins=origins, retry_seconds=0.01, **options)
    types = [replace(number, feed=Feed()), OTHER]  # as another process has it
    server = Server(types, name="hooks", events=events, tasks=TaskOptions(store=store))
    with serving(http_app(server, auth=auth, redis_url=redis_url)) as url:
        yield Client(url), server


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return the file of a certificate for localhost and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    start = datetime.now(UTC) - timedelta(days=1)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = tmp_path / "localhost.pem"
    file.write_bytes(private + signed.public_bytes(Encoding.PEM))
    return file


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def test_a_callback_is_challenged_and_then_gets_signed_events(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        (listed, _) = client.ask("events/list", {})["events"]
        assert listed["delivery"] == ["poll", "push", "webhook"]
        url = f"{receiver.url}/hook?x=1"
        begun = client.subscribe(url, arguments={"least": 2})
        assert begun["id"].startswith("sub_")
        assert begun["truncated"] is False
        (challenge,) = receiver.challenges
        verify_webhook(SECRET, challenge.headers, challenge.body)
        assert challenge.path == "/hook?x=1"
        assert challenge.headers["webhook-id"].startswith("msg_verification_")
        server.emit("number", {"value": 1})
        server.emit("number", {"value": 2}, event_id="upstream-2")
        received = receiver.next()
        verify_webhook(SECRET, received.headers, received.body)
        with pytest.raises(WireError, match="not signed with this secret"):
            verify_webhook(new_secret(), received.headers, received.body)
        with pytest.raises(WireError, match="not signed with this secret"):
            verify_webhook(SECRET, received.headers, received.body + b" ")
        with pytest.raises(WireError, match="not within 300 seconds"):
            verify_webhook(SECRET, {**received.headers, "webhook-timestamp": "1700000000"}, received.body)
        assert received.headers["x-mcp-subscription-id"] == begun["id"]
        assert received.headers["webhook-id"] == "upstream-2"
        assert received.headers["content-type"] == "application/json"
        assert received.headers["host"] == receiver.url.removeprefix("http://")
        event_ = received.json
        assert {**event_, "timestamp": "", "cursor": ""} == {
            "eventId": "upstream-2",
            "name": "number",
            "timestamp": "",
            "data": {"value": 2},
            "cursor": "",
        }
        assert client.unsubscribe(url, arguments={"least": 2})["resultType"] == "complete"
        assert client.unsubscribe(url, arguments={"least": 2})["code"] == NOT_FOUND
        server.emit("number", {"value": 3})
        assert client.subscribe(f"{receiver.url}/other")["id"] != begun["id"]
        server.emit("number", {"value": 4})
        assert receiver.next().path == "/other"


def test_a_repeated_subscription_is_the_same_and_is_not_challenged_again(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        one = client.subscribe(receiver.url)
        server.emit("number", {"value": 1})
        delivered = receiver.next_event()
        two = client.subscribe(receiver.url, cursor="ignored while it lasts")
        assert two["id"] == one["id"]
        assert two["deliveryStatus"]["active"] is True
        assert two["deliveryStatus"]["lastError"] is None
        assert two["cursor"] in {one["cursor"], delivered["cursor"]}
        assert len(receiver.challenges) == 1
        server.emit("number", {"value": 2})
        assert receiver.next_event()["data"] == {"value": 2}


def test_a_new_secret_is_challenged_and_signs_beside_the_former_one(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        secret = new_secret()
        client.subscribe(receiver.url, secret=secret)
        assert len(receiver.challenges) == 2
        server.emit("number", {"value": 1})
        received = receiver.next()
        assert len(received.headers["webhook-signature"].split()) == 2
        for each in (SECRET, secret):
            verify_webhook(each, received.headers, received.body)


def test_a_delivery_is_repeated_with_a_fresh_signature_until_it_is_taken(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        receiver.statuses += [500, 302, 404, 200]
        receiver.location = f"{receiver.url}/elsewhere"
        server.emit("number", {"value": 1})
        server.emit("number", {"value": 2})
        attempts = [receiver.next() for _ in range(4)]
        for each in attempts:
            verify_webhook(SECRET, each.headers, each.body)
            assert (each.path, each.json["data"]) == ("/", {"value": 1})  # a redirect is not followed
        assert len({each.headers["webhook-id"] for each in attempts}) == 1
        assert receiver.next_event()["data"] == {"value": 2}


def test_an_event_that_is_too_large_for_a_callback_is_given_up_at_once(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        receiver.statuses += [413]
        for value in (1, 2):
            server.emit("number", {"value": value})
        assert [receiver.next_event()["data"]["value"] for _ in range(2)] == [1, 2]


def test_a_callback_that_is_gone_ends_the_subscription(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        receiver.statuses += [410]
        server.emit("number", {"value": 1})
        receiver.next()
        while "deliveryStatus" in client.subscribe(receiver.url):
            """The subscription still lasts."""
        server.emit("number", {"value": 2})
        assert receiver.next_event()["data"] == {"value": 2}


def test_deliveries_that_keep_failing_are_suspended_until_the_caller_asks_again(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        client.subscribe(receiver.url)
        receiver.statuses += [503] * 6
        server.emit("number", {"value": 1})
        assert [receiver.next_event()["data"]["value"] for _ in range(6)] == [1] * 6
        found: Json = {}
        while found.get("deliveryStatus", {}).get("active", True):
            found = client.subscribe(receiver.url)
            if not receiver.is_empty:  # it was suspended, and goes on
                break
        server.emit("number", {"value": 2})
        assert [receiver.next_event()["data"]["value"] for _ in range(2)] == [1, 2]
        if "deliveryStatus" in found and not found["deliveryStatus"]["active"]:
            assert found["deliveryStatus"]["lastError"] == "http_5xx"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"challenge": "another"}, "challenge_failed"),
        ({"challenge": 7}, "challenge_failed"),
        ([], "challenge_failed"),
        ("é", "challenge_failed"),
        (204, "challenge_failed"),
        (302, "http_4xx"),
        (404, "http_4xx"),
        (500, "http_5xx"),
    ],
)
def test_a_callback_that_fails_the_challenge_gets_no_events(receiver: Receiver, answer: Any, reason: str) -> None:
    with served(receiver.url) as (client, server):
        receiver.passes_challenge = lambda _: answer
        refused = client.subscribe(receiver.url)
        assert (refused["code"], refused["data"]) == (CALLBACK_FAILED, {"reason": reason})
        server.emit("number", {"value": 1})
        receiver.passes_challenge = lambda challenge: {"challenge": challenge}
        client.subscribe(receiver.url)
        server.emit("number", {"value": 2})
        assert receiver.next_event()["data"] == {"value": 2}


def test_a_callback_that_does_not_listen_is_named_by_a_reason_alone() -> None:
    with receiving() as receiver:
        url = receiver.url
    with served(url) as (client, _):
        refused = client.subscribe(url)
        assert (refused["code"], refused["data"]) == (CALLBACK_FAILED, {"reason": "connection_refused"})
        assert url not in refused["message"]


@pytest.mark.parametrize(
    ("delivery", "words"),
    [
        ({"url": "http://example.com/hook"}, "must begin with https"),
        ({"url": "https://127.0.0.1/hook"}, "not a public one"),
        ({"url": "https://localhost/hook"}, "not a public one"),
        ({"url": "https://[::1]/hook"}, "not a public one"),
        ({"url": "https://[::ffff:10.0.0.1]/hook"}, "not a public one"),
        ({"url": "https://[64:ff9b::a00:1]/hook"}, "not a public one"),
        ({"url": "https://169.254.169.254/latest"}, "not a public one"),
        ({"url": "https://10.1.2.3/"}, "not a public one"),
        ({"url": "https://user:pass@example.com/"}, "neither credentials nor a fragment"),
        ({"url": "ftp://example.com/"}, "must be an absolute URL"),
        ({"url": "/hook"}, "must be an absolute URL"),
        ({"url": "https://example.com/" + "x" * 3000}, "text of up to 2048 characters"),
        ({"url": 7}, "text of up to 2048 characters"),
        ({"url": "https://example.com/", "mode": "mail"}, "mode 'webhook'"),
        ({"url": "https://example.com/", "secret": "secret"}, "begins with 'whsec_'"),
        ({"url": "https://example.com/", "secret": "whsec_!"}, "and base64"),
        ({"url": "https://example.com/", "secret": new_secret(23)}, "24 to 64 bytes, not 23"),
        ({"url": "https://example.com/", "secret": new_secret(65)}, "24 to 64 bytes, not 65"),
        ({"url": "https://example.com/", "secret": None}, "begins with 'whsec_'"),
    ],
)
def test_callbacks_and_secrets_are_checked_before_any_request(delivery: Json, words: str) -> None:
    with served() as (client, _):
        refused = client.ask(
            "events/subscribe", {"name": "number", "delivery": {"mode": "webhook", "secret": SECRET, **delivery}}
        )
        assert refused["code"] == INVALID_PARAMS
        assert words in refused["message"]


def test_a_name_with_a_private_address_is_refused_when_it_is_resolved(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    import anyio  # noqa: PLC0415 - only here

    answers = [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::ffff:192.168.0.1"]]

    async def resolve(host: str, port: int, **_: Any) -> Any:
        assert host == "rebound.example"
        return [(2, 1, 6, "", (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(anyio, "getaddrinfo", resolve)
    port = receiver.url.rpartition(":")[2]
    with served() as (client, _):
        for _ in range(3):
            refused = client.subscribe(f"https://rebound.example:{port}/hook")
            assert (refused["code"], refused["data"]) == (CALLBACK_FAILED, {"reason": "connection_refused"})
    assert (answers, receiver.challenges) == ([], [])


def test_a_callback_over_tls_is_called_by_its_name_and_its_certificate_is_checked(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving(certificate) as receiver:
        with served(receiver.url) as (client, _):
            refused = client.subscribe(receiver.url)
            assert (refused["code"], refused["data"]) == (CALLBACK_FAILED, {"reason": "tls_error"})
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with served(receiver.url) as (client, server):
            assert "id" in client.subscribe(receiver.url)
            server.emit("number", {"value": 1})
            received = receiver.next()
            assert received.headers["host"] == receiver.url.removeprefix("https://")
            verify_webhook(SECRET, received.headers, received.body)


def test_replicas_share_webhooks_and_each_event_is_delivered_once(receiver: Receiver, redis: RedisServer) -> None:
    with (
        served(receiver.url, redis_url=redis.url) as (one, first),
        served(receiver.url, redis_url=redis.url) as (two, second),
    ):
        begun = one.subscribe(receiver.url)
        cursor = two.ask("events/poll", {"name": "number"})["cursor"]
        first.emit("number", {"value": 1})
        second.emit("number", {"value": 2})
        assert sorted(receiver.next_event()["data"]["value"] for _ in range(2)) == [1, 2]
        assert two.subscribe(receiver.url)["id"] == begun["id"]
        for client in (one, two):
            found = client.ask("events/poll", {"name": "number", "cursor": cursor})
            assert sorted(each["data"]["value"] for each in found["events"]) == [1, 2]
        assert two.unsubscribe(receiver.url)["resultType"] == "complete"
        assert one.unsubscribe(receiver.url)["code"] == NOT_FOUND
        assert receiver.is_empty


def test_only_authenticated_callers_have_webhooks_and_only_if_the_server_has_them(receiver: Receiver) -> None:
    with served(receiver.url, auth=None) as (client, _):
        (listed, _) = client.ask("events/list", {}, None)["events"]
        assert listed["delivery"] == ["poll", "push"]
        assert client.subscribe(receiver.url, None)["code"] == FORBIDDEN
        assert client.unsubscribe(receiver.url, None)["code"] == FORBIDDEN
    server = Server(number, name="none")
    with serving(http_app(server, auth=KEYS)) as url:
        refused = Client(url).subscribe(receiver.url)
        assert (refused["code"], refused["data"]) == (UNSUPPORTED, {"feature": "deliveryMode", "value": "webhook"})
    assert receiver.challenges == []


def test_callers_have_subscriptions_of_their_own_and_see_what_they_may(receiver: Receiver) -> None:
    with served(receiver.url) as (client, server):
        ada, bob = client.subscribe(receiver.url, ADA), client.subscribe(receiver.url, BOB)
        assert ada["id"] != bob["id"]
        assert len(receiver.challenges) == 2  # nobody's verification counts for another
        assert client.subscribe(receiver.url, EVE)["code"] == NOT_FOUND
        assert [each["name"] for each in client.ask("events/list", {}, EVE)["events"]] == ["other"]
        assert client.unsubscribe(receiver.url, EVE)["code"] == NOT_FOUND
        server.emit("number", {"value": 1}, caller=Caller("bob", issuer="key"))
        assert receiver.next().headers["x-mcp-subscription-id"] == bob["id"]
        server.emit("number", {"value": 2})
        both = [receiver.next() for _ in range(2)]
        assert {each.headers["x-mcp-subscription-id"] for each in both} == {ada["id"], bob["id"]}
        assert {each.json["data"]["value"] for each in both} == {2}


def test_subscriptions_are_bounded_and_shared_by_the_callers(receiver: Receiver) -> None:
    with served(receiver.url, max_subscriptions=4) as (client, _):
        for path in "ab":
            assert "id" in client.subscribe(f"{receiver.url}/{path}")
        refused = client.subscribe(f"{receiver.url}/c")
        assert (refused["code"], refused["data"]) == (RESOURCE_EXHAUSTED, {"limit": "subscriptions", "max": 4})
        assert "id" in client.subscribe(f"{receiver.url}/a")
        assert "id" in client.subscribe(f"{receiver.url}/c", BOB)
        client.unsubscribe(f"{receiver.url}/a")
        assert "id" in client.subscribe(f"{receiver.url}/d", BOB)


def test_times_are_granted_within_bounds(receiver: Receiver) -> None:
    def seconds(**params: Any) -> float:
        granted = client.subscribe(receiver.url, **params)["refreshBefore"]
        return (datetime.fromisoformat(granted) - datetime.now(UTC)).total_seconds()

    with served(receiver.url, max_subscription_seconds=7200) as (client, _):
        for params, most in (({}, 3600), ({"ttlMs": 1}, 60), ({"ttlMs": 600_000}, 600), ({"ttlMs": 10**12}, 7200)):
            assert most - 60 < seconds(**params) <= most
        assert 7100 < seconds(ttlMs=None) <= 7200
        assert client.subscribe(receiver.url, ttlMs="7")["code"] == INVALID_PARAMS


def test_webhooks_go_on_after_a_restart_with_the_file(receiver: Receiver, tmp_path: Path) -> None:
    with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept")) as (client, server):
        begun = client.subscribe(receiver.url)
        server.emit("number", {"value": 1})
        assert receiver.next_event()["data"] == {"value": 1}
        receiver.statuses += [503] * 1000
        server.emit("number", {"value": 2})
        receiver.next()
    while not receiver.is_empty:
        receiver.next()
    receiver.statuses.clear()
    with served(receiver.url, store=SqliteTaskStore(tmp_path / "kept")) as (client, server):
        received = receiver.next()  # without a request of its caller
        assert (received.json["data"], received.headers["x-mcp-subscription-id"]) == ({"value": 2}, begun["id"])
        server.emit("number", {"value": 3})
        assert receiver.next_event()["data"] == {"value": 3}
        assert client.unsubscribe(receiver.url)["resultType"] == "complete"


def test_a_subscription_begins_after_a_cursor_and_says_if_events_are_missing(receiver: Receiver) -> None:
    with served(receiver.url, max_events=3) as (client, server):
        cursor = client.ask("events/poll", {"name": "number"})["cursor"]
        server.emit("number", {"value": 1})
        assert client.subscribe(receiver.url, cursor=cursor)["truncated"] is False
        assert receiver.next_event()["data"] == {"value": 1}
        for value in range(2, 8):
            server.emit("number", {"value": value})
        assert client.subscribe(f"{receiver.url}/late", cursor=cursor)["truncated"] is True
        kinds: list[Any] = []
        while len(kinds) < 4:
            received = receiver.next()
            if received.path == "/late":
                kinds.append(received.json.get("type") or received.json["data"]["value"])
        assert kinds == ["gap", 5, 6, 7]


def test_origins_of_callbacks_are_checked() -> None:
    for wrong in ("hooks.internal", "https://hooks.internal/path", "ftp://x", "https://u:p@x"):
        with pytest.raises(DefinitionError, match="origin of callbacks"):
            EventOptions(webhooks=True, callback_origins=(wrong,))
    EventOptions(callback_origins=("https://hooks.internal:8443", "http://[::1]:80/"))
    with pytest.raises(DefinitionError, match="webhooks must be True or False"):
        EventOptions(webhooks="yes")  # type: ignore[arg-type]  # that is tested
