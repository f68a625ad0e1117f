"""Signatures of webhooks (Standard Webhooks): HMAC-SHA256 over the identifier, the time and the body of a message."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING

from bridge.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SUBSCRIPTION_HEADER = "X-MCP-Subscription-Id"
"""Header with the identifier of the subscription, by which a receiver finds the secret."""
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of all secrets
"""Beginning of a secret; the rest is base64."""
MIN_KEY_BYTES = 24
"""Minimum bytes of a secret."""
MAX_KEY_BYTES = 64
"""Maximum bytes of a secret."""
TOLERANCE_SECONDS = 300.0
"""Difference in seconds between the time of a message and now, from which it is refused."""


def key_of(secret: object) -> bytes:
    """Return the bytes of a secret: ``whsec_`` and base64 of 24 to 64 bytes.

    Raises:
        WireError: It is none; the message does not have it.
    """
    if not isinstance(secret, str) or not secret.startswith(SECRET_PREFIX):
        raise WireError(f"a secret is text that begins with {SECRET_PREFIX!r}")
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (Base64Error, ValueError):
        raise WireError(f"a secret is {SECRET_PREFIX!r} and base64") from None
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise WireError(f"a secret has {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes, not {len(key)}")
    return key


def signed_headers(secrets: Iterable[str], message_id: str, body: bytes, subscription: str) -> dict[str, str]:
    """Return the headers of a message, signed now with each of the secrets."""
    timestamp = str(int(time()))
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(key_of(secret), message_id, timestamp, body) for secret in secrets),
        SUBSCRIPTION_HEADER: subscription,
    }


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes) -> None:
    """Check that a received webhook was signed with a secret, and recently.

    Args:
        secret: The secret that was given in ``events/subscribe``.
        headers: Headers of the request, by names in any case.
        body: The body as it was received.

    Raises:
        WireError: It was not; the message says why.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp = lower.get("webhook-id", ""), lower.get("webhook-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(time() - int(timestamp)) > TOLERANCE_SECONDS:
        raise WireError(f"the time of the webhook is {timestamp!r}, which is not within {TOLERANCE_SECONDS:g} seconds")
    expected = _signature(key_of(secret), message_id, timestamp, body)
    given = lower.get("webhook-signature", "").split()
    if not any(hmac.compare_digest(expected.encode(), each.encode(errors="replace")) for each in given):
        raise WireError("the webhook is not signed with this secret")


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{b64encode(hmac.new(key, signed, sha256).digest()).decode()}"
