from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge import ClientCredentials, ConfigError, HttpTransport, OAuthLogin
from bridge.client import FileAssertion, IdentityAssertion
from bridge.client.config.loading import load_config, parse_config

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"
ENVIRON = {"SECRET": "secret-from-a-variable", "EMPTY": ""}


def transport_of(entry: dict[str, Any], folder: Path | None = None) -> HttpTransport:
    config = parse_config({"mcpServers": {"one": {"url": URL} | entry}}, environ=ENVIRON, workspace_folder=folder)
    transport = config.servers["one"].transport
    assert isinstance(transport, HttpTransport)
    return transport


def problems_of(entry: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        transport_of(entry)
    return [f"{problem.key}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("entry", "grant"),
    [
        ({}, None),
        ({"auth": "oauth"}, OAuthLogin()),
        ({"auth": {}}, OAuthLogin()),
        ({"auth": {"type": "oauth", "scopes": "a b"}}, OAuthLogin(scopes=("a", "b"))),
        (
            {"auth": {"client_id": "me", "redirect_uri": "http://127.0.0.1:1/x"}},
            OAuthLogin(client_id="me", redirect_uri="http://127.0.0.1:1/x"),
        ),
        (
            {"oauth": {"clientId": "me", "callbackPort": 8765, "scopes": "a b"}},
            OAuthLogin(client_id="me", redirect_uri="http://localhost:8765/callback", scopes=("a", "b")),
        ),
        (
            {"auth": {"CLIENT_ID": "me", "CLIENT_SECRET": "${env:SECRET}", "scopes": ["a"]}},
            OAuthLogin(client_id="me", client_secret="secret-from-a-variable", scopes=("a",)),
        ),
        (
            {"auth": {"clientMetadataUrl": "https://example.com/client.json", "issuer": ISSUER}},
            OAuthLogin(client_metadata_url="https://example.com/client.json", issuer=ISSUER),
        ),
        (
            {"auth": {"type": "client_credentials", "clientId": "me", "clientSecret": "${SECRET}", "issuer": ISSUER}},
            ClientCredentials(client_id="me", client_secret="secret-from-a-variable", issuer=ISSUER),
        ),
        (
            {
                "auth": {
                    "type": "workload_identity",
                    "clientId": "me",
                    "issuer": ISSUER,
                    "assertionFile": "/var/run/token",
                    "scopes": "a",
                }
            },
            IdentityAssertion(client_id="me", issuer=ISSUER, assertion=FileAssertion("/var/run/token"), scopes=("a",)),
        ),
    ],
)
def test_what_is_said_is_a_grant(entry: dict[str, Any], grant: object) -> None:
    assert transport_of(entry).auth == grant


@pytest.mark.parametrize("auth", ["${SECRET}", {"token": "${SECRET}"}, {"type": "bearer", "token": "${env:SECRET}"}])
def test_a_token_goes_with_every_request_and_is_shown_nowhere(auth: Any) -> None:
    transport = transport_of({"auth": auth})
    assert (transport.auth, transport.headers) == (None, {"Authorization": "Bearer secret-from-a-variable"})
    assert "secret-from" not in repr(transport)
    assert transport.scrub("said secret-from-a-variable") == "said ***"


def test_a_key_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("the key", encoding="utf-8")
    auth = {"type": "client_credentials", "clientId": "me", "privateKeyFile": "key.pem", "issuer": ISSUER}
    assert transport_of({"auth": auth | {"signingAlgorithm": "ES256"}}, tmp_path).auth == ClientCredentials(
        client_id="me", private_key="the key", signing_algorithm="ES256", issuer=ISSUER
    )


def test_a_secret_of_a_grant_is_shown_nowhere() -> None:
    transport = transport_of({"auth": {"clientId": "me", "clientSecret": "${SECRET}"}})
    assert "secret-from" not in repr(transport)
    assert transport.scrub("said secret-from-a-variable") == "said ***"


@pytest.mark.parametrize(
    ("entry", "problems"),
    [
        ({"auth": "${EMPTY}"}, ["auth: is empty: give a token, or 'oauth' for a login"]),
        (
            {"auth": {"type": "client_credentials"}},
            ["auth: client_credentials needs 'clientId', 'issuer', 'clientSecret'"],
        ),
        (
            {"auth": {"type": "client_credentials", "clientId": "a", "clientSecret": "b", "issuer": "login"}},
            ["auth.issuer: must be the URL of the authorization server"],
        ),
        (
            {"auth": {"type": "workload_identity", "clientSecret": "b"}},
            ["auth: workload_identity needs 'clientId', 'issuer', 'assertionFile'"],
        ),
        (
            {"auth": {"type": "workload_identity", "clientId": "a", "issuer": "login", "assertionFile": "b"}},
            ["auth.issuer: must be the URL of the authorization server"],
        ),
        ({"auth": {"clientSecret": "b"}}, ["auth: needs a 'clientId' with the secret"]),
        ({"auth": {"token": "b", "issuer": ISSUER}}, ["auth.issuer: is not used for 'bearer': remove it"]),
        (
            {"auth": {"redirectUri": "https://elsewhere.example/callback"}},
            ["auth.redirectUri: must be http on this machine, such as http://localhost:8765/callback"],
        ),
        (
            {"auth": {"clientMetadataUrl": "http://example.com/client"}},
            ["auth.clientMetadataUrl: must be the https URL of a document"],
        ),
        (
            {"auth": "oauth", "headers": {"authorization": "Bearer x"}},
            ["auth: is given together with an 'Authorization' header: keep one of them"],
        ),
        ({"auth": "oauth", "oauth": {"clientId": "me"}}, ["oauth: contradicts 'auth': keep one of them"]),
    ],
)
def test_what_cannot_work_is_a_problem(entry: dict[str, Any], problems: list[str]) -> None:
    assert problems_of(entry) == problems


def test_a_variable_that_is_missing_is_told_once_and_names_the_key() -> None:
    assert [text.partition(":")[0] for text in problems_of({"auth": {"clientId": "${MISSING}"}})] == ["auth.clientId"]


def test_a_file_that_is_missing_is_told() -> None:
    auth = {"type": "client_credentials", "clientId": "me", "privateKeyFile": "/no/such/key.pem", "issuer": ISSUER}
    assert problems_of({"auth": auth}) == [
        "auth.privateKeyFile: cannot read '/no/such/key.pem': No such file or directory"
    ]


def test_what_is_not_known_is_ignored_with_a_warning() -> None:
    entry = {"url": URL, "oauth": {"authServerMetadataUrl": "https://x/y", "clientId": "me"}}
    config = parse_config({"mcpServers": {"one": entry}})
    assert config.warnings == ("server 'one', 'oauth.authServerMetadataUrl': unknown, ignored",)


def test_auth_beside_a_command_has_no_use() -> None:
    config = parse_config({"mcpServers": {"one": {"command": "x", "auth": "oauth"}}})
    assert config.warnings == ("server 'one', 'auth': has no effect with 'command', ignored",)


def test_a_server_of_a_file_knows_what_bridge_login_is_to_be_given(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"one": {"url": "https://h/mcp"}}}', encoding="utf-8")
    transport = load_config(path).servers["one"].transport
    assert isinstance(transport, HttpTransport)
    assert transport.login_target == f"{path}#one"
