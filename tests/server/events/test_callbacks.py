"""Callbacks of webhooks: allowed addresses, the challenge, TLS, and the reasons that callers get."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bridge import DefinitionError
from bridge.events import verify_webhook
from bridge.protocol.versions import CALLBACK_FAILED, INVALID_PARAMS, RESOURCE_EXHAUSTED
from bridge.server import EventOptions
from bridge.server.events import webhooks
from bridge.server.events.callbacks import Callbacks
from tests.server.events.hooks import BOB, SECRET, served
from tests.server.events.receiver import Receiver, new_secret, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.types import Json


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


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


@pytest.mark.parametrize(
    ("delivery", "words"),
    [
        ({"url": "http://example.com/hook"}, "must begin with https"),
        ({"url": "https://127.0.0.1/hook"}, "not a public one"),
        ({"url": "https://localhost/hook"}, "not a public one"),
        ({"url": "https://[::1]/hook"}, "not a public one"),
        ({"url": "https://[::ffff:10.0.0.1]/hook"}, "not a public one"),
        ({"url": "https://[64:ff9b::a00:1]/hook"}, "not a public one"),
        ({"url": "https://[64:ff9b:1::a00:1]/hook"}, "not a public one"),
        ({"url": "https://[::127.0.0.1]/hook"}, "not a public one"),
        ({"url": "https://[::ffff:0:a00:1]/hook"}, "not a public one"),
        ({"url": "https://[2002:a00:1::1]/hook"}, "not a public one"),
        ({"url": "https://[fec0::1]/hook"}, "not a public one"),
        ({"url": "https://[3fff::1]/hook"}, "not a public one"),
        ({"url": "https://[5f00::1]/hook"}, "not a public one"),
        ({"url": "https://[ff0e::1]/hook"}, "not a public one"),
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


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:4700::1111]", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]"])
def test_public_addresses_may_be_callbacks(host: str) -> None:
    assert Callbacks().problem_of(f"https://{host}/hook") is None


def test_the_challenges_of_a_host_are_counted_however_its_url_is_written(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_CHALLENGES_A_MINUTE", 2)
    with receiving() as other, served(receiver.url, other.url) as (client, _):
        assert "id" in client.subscribe(f"{receiver.url}?1")
        assert "id" in client.subscribe(f"{other.url}/2")
        for url in (f"{receiver.url}?3", f"{receiver.url}/4", f"{other.url}?5"):
            refused = client.subscribe(url, BOB)
            assert (refused["code"], refused["data"]["limit"]) == (RESOURCE_EXHAUSTED, "verifications_per_minute")
        assert len(receiver.challenges) == len(other.challenges) == 1


def test_a_callback_that_does_not_listen_is_named_by_a_reason_alone() -> None:
    with receiving() as receiver:
        url = receiver.url
    with served(url) as (client, _):
        refused = client.subscribe(url)
        assert (refused["code"], refused["data"]) == (CALLBACK_FAILED, {"reason": "connection_refused"})
        assert url not in refused["message"]


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


def test_origins_of_callbacks_are_checked() -> None:
    for wrong in ("hooks.internal", "https://hooks.internal/path", "ftp://x", "https://u:p@x"):
        with pytest.raises(DefinitionError, match="origin of callbacks"):
            EventOptions(webhooks=True, callback_origins=(wrong,))
    EventOptions(callback_origins=("https://hooks.internal:8443", "http://[::1]:80/"))
    with pytest.raises(DefinitionError, match="webhooks must be True or False"):
        EventOptions(webhooks="yes")  # type: ignore[arg-type]  # that is tested


@pytest.mark.anyio
async def test_a_name_with_several_addresses_is_reached_at_any(receiver: Receiver) -> None:
    port = receiver.url.rpartition(":")[2]
    origin = f"http://two.example:{port}"

    async def resolve(*_: Any, **__: Any) -> Any:
        return [(2, 1, 6, "", (address, int(port))) for address in ("127.0.0.9", "127.0.0.1")]

    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(30):
        patch.setattr(anyio, "getaddrinfo", resolve)
        await Callbacks([origin]).post(f"{origin}/hook", b"{}", {})
    assert receiver.next().headers["host"] == origin.removeprefix("http://")
