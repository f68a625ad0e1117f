from __future__ import annotations

import pytest

from bridge.client.auth.errors import SignInError
from bridge.client.auth.server_validation import AllowedAddresses

PUBLIC = AllowedAddresses("https://mcp.example.com/mcp")
PRIVATE = (
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "127.0.0.1",
    "0.0.0.0",
    "localhost",
    "LOCALHOST.",
    "metadata.localhost",
    "[::1]",
    "[fe80::1]",
    "[fd00::1]",
    "[::ffff:169.254.169.254]",
    "127.1",
    "2852039166",
    "0xa9.0xfe.0xa9.0xfe",
)


@pytest.mark.parametrize("url", ["https://login.example.com/token", "https://9.9.9.9/", "https://[2606:4700::1]:8443/"])
def test_a_server_may_lead_to_any_public_host_over_https(url: str) -> None:
    PUBLIC.check(url)


@pytest.mark.parametrize("host", PRIVATE)
def test_a_public_server_may_not_lead_to_a_private_address(host: str) -> None:
    with pytest.raises(SignInError, match="a private network or of this machine"):
        PUBLIC.check(f"https://{host}:8443/token")


@pytest.mark.parametrize("server", PRIVATE)
def test_a_private_server_may_lead_to_another(server: str) -> None:
    AllowedAddresses(f"https://{server}/mcp").check("https://192.168.7.7/token")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]", "0.0.0.0"])
def test_a_server_of_this_machine_may_lead_to_another_without_encryption(host: str) -> None:
    AllowedAddresses("http://localhost:8000/mcp").check(f"http://{host}:9000/token")


@pytest.mark.parametrize("server", ["https://mcp.example.com/mcp", "http://127.0.0.1/mcp", "http://10.0.0.1/mcp"])
@pytest.mark.parametrize("host", ["login.example.com", "10.0.0.1", "mcp.example.com", "localhost.example.com"])
def test_nothing_goes_to_another_machine_without_encryption(server: str, host: str) -> None:
    with pytest.raises(SignInError, match="it must be https"):
        AllowedAddresses(server).check(f"http://{host}/token")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:alert(1)", "/token", "https://", "https://a:b", ""])
def test_what_is_not_on_the_web_is_refused(url: str) -> None:
    with pytest.raises(SignInError, match="not a valid HTTP URL"):
        PUBLIC.check(url)


def test_an_authorization_server_that_the_user_has_named_may_be_private_and_its_neighbours_may_not() -> None:
    reach = AllowedAddresses("https://mcp.example.com/mcp", issuer="https://10.0.0.1:8443/tenant")
    reach.check("https://10.0.0.1:8443/token")
    for neighbour in ("https://10.0.0.2:8443/token", "https://10.0.0.1:9200/token"):
        with pytest.raises(SignInError, match="private network"):
            reach.check(neighbour)


def test_what_may_be_secret_in_a_url_is_not_shown() -> None:
    with pytest.raises(SignInError) as caught:
        PUBLIC.check("http://somebody:password@login.example.com/token?key=of-somebody")
    assert "of-somebody" not in str(caught.value)
    assert "password" not in str(caught.value)
