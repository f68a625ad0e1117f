from __future__ import annotations

import pytest

from bridge.errors import DefinitionError
from bridge.gateway.forwarded_headers import forwarded_headers
from bridge.tools.context import InvocationContext


def test_only_what_is_allowed_is_handed_on() -> None:
    supply = forwarded_headers(["X-Tenant", "traceparent", "X-Absent"])
    assert supply is not None
    headers = {"x-tenant": "acme", "traceparent": "00-1-2-03", "authorization": "Bearer secret", "x-other": "1"}
    assert supply("any", InvocationContext(headers=headers)) == {"x-tenant": "acme", "traceparent": "00-1-2-03"}


def test_nothing_is_handed_on_unless_it_is_allowed() -> None:
    assert forwarded_headers([]) is None


def test_what_no_header_can_hold_is_not_handed_on() -> None:
    supply = forwarded_headers(["x-tenant"])
    assert supply is not None
    for value in ("", "a\r\nAuthorization: b", " blank", "é"):
        assert supply("any", InvocationContext(headers={"x-tenant": value})) == {}


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "cookie",
        "Proxy-Authorization",
        "X-Api-Key",
        "X-Auth-Token",
        "x-amz-security-token",
        "Api-Secret",
        "X-Amzn-Oidc-Data",
        "DPoP",
        "X-SAML-Response",
        "X-Client-Assertion",
        "x-user-assertion",
        "X-Session-Id",
        "X-Forwarded-Client-Cert",
        "X-ARR-ClientCert",
    ],
)
def test_a_credential_is_never_handed_on(name: str) -> None:
    with pytest.raises(DefinitionError, match="carries credentials for this server, which are never forwarded"):
        forwarded_headers(["x-tenant", name])


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Mcp-Session-Id", "Connection", "Origin", "Accept"])
def test_what_belongs_to_one_connection_is_not_handed_on(name: str) -> None:
    with pytest.raises(DefinitionError, match="belongs to one connection"):
        forwarded_headers([name])


@pytest.mark.parametrize("name", ["", "x tenant", "x:y", "é"])
def test_what_is_no_header_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="is not a valid header name"):
        forwarded_headers([name])
