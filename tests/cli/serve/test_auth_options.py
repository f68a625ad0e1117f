from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import ECAlgorithm

from bridge.testing import TokenSigner
from tests import forks
from tests.cli.test_serve_http import LIST, SERVE, post
from tests.server.auth.issuer import AUDIENCE, CLIENT, issuing

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Start

KEY = "0123456789abcdef0123456789abcdef"
INITIALIZE = LIST | {"method": "ping"}
HTTP = (*SERVE, "http")
OAUTH = ("--oauth-issuer", "https://login.example.org", "--resource-url", AUDIENCE)


def status(url: str, key: str | None = None) -> int:
    """Status of a request with a key; an accepted one has no session, which is 400."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return post(url, INITIALIZE, **headers)[0]


def test_a_key_of_the_environment_is_asked_for_and_nobody_is_warned(start: Start) -> None:
    with start(*HTTP, env={"BRIDGE_API_KEY": f"{KEY},{KEY}2"}) as process:
        url = process.url()
        assert [status(url, key) for key in (None, "x", KEY, KEY + "2")] == [401, 401, 400, 400]
    assert not [line for line in process.seen if "WARNING" in line]


def test_a_key_on_the_command_line_earns_a_warning(start: Start) -> None:
    with start(*HTTP, "--api-key", KEY) as process:
        process.line_with("every user of this machine can read --api-key in the list of processes")
        assert status(process.url(), KEY) == 400


def test_a_file_of_keys_is_followed_while_it_serves(start: Start, directory: Path) -> None:
    path = directory / "keys"
    path.touch(mode=0o600)
    path.write_text(f"ada {KEY}\n", encoding="utf-8")
    with start(*HTTP, "--api-keys", "keys") as process:
        url = process.url()
        assert status(url, KEY) == 400
        path.write_text(f"bob {KEY}-of-bob\n", encoding="utf-8")
        process.line_with("keys were read again from 'keys': bob")
        assert [status(url, key) for key in (KEY, f"{KEY}-of-bob")] == [401, 400]
        path.write_text("bob\n", encoding="utf-8")
        process.line_with("the previous keys stay in use")
        assert status(url, f"{KEY}-of-bob") == 400


def test_tokens_of_an_issuer_let_their_bearers_in(start: Start) -> None:
    with issuing() as issuer:
        options = ("--oauth-issuer", issuer.url, "--resource-url", AUDIENCE, "--required-scope", "tools")
        with start(*HTTP, *options, env={"BRIDGE_TOOL_SCOPE": "divide=maths"}) as process:
            url = process.url()
            assert status(url, issuer.token(scope="tools")) == 400
            assert status(url, issuer.token(scope="others")) == 403
            assert status(url, issuer.token(scope="tools", aud="https://other.example.org")) == 401


@pytest.mark.parametrize("is_set", [True, False])
def test_tokens_are_verified_by_a_key_in_a_file(start: Start, directory: Path, is_set: bool) -> None:
    signer = TokenSigner("my-app", "my-tools")
    content = signer.public_key
    if is_set:
        key = load_pem_public_key(content.encode())
        assert isinstance(key, EllipticCurvePublicKey)
        content = json.dumps({"keys": [ECAlgorithm.to_jwk(key, as_dict=True)]})
    (directory / "issuer.key").write_text(content, encoding="ascii")
    options = ("--oauth-issuer", "my-app", "--oauth-audience", "my-tools", "--required-scope", "tools")
    with start(*HTTP, *options, env={"BRIDGE_OAUTH_PUBLIC_KEY": "issuer.key"}) as process:
        url = process.url()
        assert status(url, signer.token("ada", scopes=["tools"])) == 400
        assert status(url, signer.token("ada")) == 403
        assert status(url, signer.token("ada", scopes=["tools"], aud="others")) == 401
        assert status(url, TokenSigner("my-app", "my-tools").token("ada", scopes=["tools"])) == 401


def test_tokens_that_only_the_issuer_can_read_are_asked_for(start: Start) -> None:
    with issuing() as issuer:
        issuer.active["t"] = {"active": True, "sub": "ada", "aud": AUDIENCE}
        options: tuple[str, ...] = ("--oauth-issuer", issuer.url, "--resource-url", AUDIENCE)
        options += ("--oauth-introspection-url", f"{issuer.url}/introspect", "--oauth-client-id", CLIENT[0])
        with start(*HTTP, *options, env={"BRIDGE_OAUTH_CLIENT_SECRET": CLIENT[1]}) as process:
            url = process.url()
            assert [status(url, token) for token in ("t", "u")] == [400, 401]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "0.0.0.0"), "without a key: set BRIDGE_API_KEY, --api-keys or --oauth-issuer"),
        (("--api-key", KEY, "--no-auth"), "--no-auth and keys or issuers exclude each other"),
        (("--api-key", "a b"), "a key is visible ASCII"),
        (("--api-key", f"{KEY},{KEY}"), "the keys of 'key-1' and 'key-2' are the same"),
        (
            ("--api-key", f"abc,{KEY}"),
            "key-1 of 2 is shorter than 16 characters and can be guessed; keys are separated",
        ),
        (("--api-key", ""), "--api-key is empty"),
        (("--api-key", " , "), "--api-key is empty"),
        (("--api-keys", ""), "--api-keys is empty"),
        (("--oauth-issuer", ""), "--oauth-issuer is empty"),
        (("--api-keys", "nowhere"), "the keys in 'nowhere' cannot be used: No such file or directory"),
        (("--api-keys", "calculator.py"), "the keys in 'calculator.py' cannot be used:"),
        (("--oauth-issuer", "https://x"), "--oauth-issuer needs --resource-url"),
        (("--resource-url", "https://x", "--oauth-jwks-url", "https://x/k"), "--oauth-jwks-url needs --oauth-issuer"),
        ((*OAUTH, "--oauth-introspection-url", "https://x/i"), "needs --oauth-client-id and --oauth-client-secret"),
        (("--oauth-issuer", "login", "--resource-url", AUDIENCE), "an issuer is an http(s) URL"),
        (("--tool-scope", "a=b"), "scopes need credentials: give --oauth-issuer"),
        (("--oauth-public-key", ""), "--oauth-public-key is empty"),
        (("--oauth-public-key", "calculator.py"), "--oauth-public-key needs --oauth-issuer"),
        ((*OAUTH, "--oauth-public-key", "calculator.py"), "public_key is not in PEM"),
        ((*OAUTH, "--oauth-public-key", "nowhere"), "cannot be read"),
        (("--oauth-issuer", "x", "--oauth-public-key", "calculator.py"), "--oauth-public-key needs --resource-url"),
        (
            (*OAUTH, "--oauth-public-key", "calculator.py", "--oauth-jwks-url", "https://x"),
            "--oauth-jwks-url and --oauth-public-key exclude each other",
        ),
        ((*OAUTH, "--tool-scope", "a"), "--tool-scope has the form TOOL=SCOPE"),
        ((*OAUTH, "--required-scope", 'a"b'), "a scope is visible ASCII"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_the_remedy(run: Run, options: tuple[str, ...], message: str) -> None:
    ended = run(*HTTP, *options)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert KEY not in ended.stderr


def test_keys_of_the_environment_that_are_none_are_refused(run: Run) -> None:
    ended = run(*HTTP, env={"BRIDGE_API_KEY": ","})
    assert (ended.returncode, "--api-key is empty" in ended.stderr) == (2, True)


def test_all_problems_of_a_file_of_keys_are_told_apart(run: Run, directory: Path) -> None:
    (directory / "keys").write_text("ada\nbob\n", encoding="utf-8")
    ended = run(*HTTP, "--api-keys", "keys")
    assert ended.returncode == 2
    assert "; line 2: there is no key after the name" in ended.stderr


def test_a_path_at_which_everybody_may_read_is_refused(run: Run) -> None:
    path = "/.well-known/oauth-protected-resource/mcp"
    ended = run(*HTTP, *OAUTH, "--path", path)
    assert ended.returncode == 2
    assert f"the path {path!r} is used by the metadata of the issuers of tokens" in ended.stderr


def test_tools_that_are_named_and_not_there_earn_a_warning(start: Start, directory: Path) -> None:
    path = directory / "keys"
    path.touch(mode=0o600)
    path.write_text(f"ada {KEY} tools=ad,divide\n", encoding="utf-8")
    with start(*HTTP, "--api-keys", "keys", "--tool-scope", "divid=w,shout=w") as process:
        process.line_with("no tool, resource or prompt matches 'divid' in the scopes")
        process.line_with("no tool, resource or prompt matches 'ad' in a key")
        process.url()
        assert len([line for line in process.seen if "no tool, resource or prompt matches" in line]) == 2


def test_tools_of_servers_behind_it_are_waited_for_before_any_is_missed(start: Start, directory: Path) -> None:
    (directory / "local.py").write_text("from bridge import tool\n\n@tool\ndef local() -> int:\n    return 1\n")
    behind = forks.entry("-m", "bridge", "serve", "calculator.py")
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"behind": behind}}))
    options = ("--transport", "http", "--port", "0", "--tool-scope", "divide=w,local=w,divid=w")
    with start("serve", "local.py", "mcp.json", *options, env={"BRIDGE_API_KEY": KEY}) as process:
        process.line_with("no tool, resource or prompt matches 'divid' in the scopes")
        assert len([line for line in process.seen if "no tool, resource or prompt matches" in line]) == 1


def test_a_key_satisfies_a_bind_that_others_reach(start: Start) -> None:
    with start(*HTTP, "--host", "0.0.0.0", env={"BRIDGE_API_KEY": KEY}) as process:
        assert process.url().startswith("http://")


def test_a_server_that_reloads_shows_its_key_to_nobody_but_in_its_own_command(start: Start) -> None:
    with start(*HTTP, "--reload", "--api-key", KEY) as process:
        url = process.url()
        assert status(url, KEY) == 400
        children = Path(f"/proc/{process.popen.pid}/task/{process.popen.pid}/children").read_text().split()
        assert children
        for child in children:
            assert KEY not in Path(f"/proc/{child}/cmdline").read_text()
