from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from mcp.shared.auth import OAuthToken

from bridge import HttpTransport, OAuthLogin, ServerConfig
from bridge.client import Connection
from bridge.client.auth.challenge import RequestSigner
from bridge.client.auth.dpop import ProofKey
from bridge.client.auth.errors import SignInError
from bridge.client.auth.login import Login
from bridge.client.auth.sign_in import SignIn
from bridge.client.auth.store import LoginStore
from bridge.errors import ServerAuthError
from tests.client.auth.conftest import DEADLINE_SECONDS, log_in, stored_login
from tests.client.auth.proofs import claims_of
from tests.server.http_server import modern, modern_headers, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.auth.authority import Authority
    from tests.client.auth.proofs import Judge
    from tests.client.auth.resource import Resource

pytestmark = pytest.mark.anyio
URL = "https://mcp.example.com/mcp"
LOGIN = Login(server_url=URL, tokens=OAuthToken(access_token="token"), proof_key=ProofKey.generated())


async def sums(url: str, *, count: int = 1, protocol: Any = "auto", **said: Any) -> list[Any]:
    """Add some numbers, over one connection."""
    config = ServerConfig(name="guarded", transport=HttpTransport(url, **said), protocol=protocol)
    found = []
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Connection(config) as connection:
            for number in range(count):
                answer = await connection.call_tool("add", {"a": number, "b": 1})
                found.append(answer["structuredContent"]["result"])
    return found


# --- proofs ----------------------------------------------------------------------------------------------------------


async def test_every_request_has_a_proof_of_its_own(resource: Resource, judge: Judge) -> None:
    await log_in(resource.url)
    assert await sums(resource.url, count=3) == [1, 2, 3]
    assert judge.faults == []
    assert len(judge.proofs) == len(resource.requests) > 3


async def test_the_stream_of_a_session_and_its_end_have_proofs_too(resource: Resource, judge: Judge) -> None:
    await log_in(resource.url)
    assert await sums(resource.url, protocol="legacy") == [1]
    assert judge.faults == []
    assert {proof["htm"] for proof in judge.proofs} == {"POST", "GET", "DELETE"}


async def test_proofs_name_the_address_for_messages_over_sse(resource: Resource, judge: Judge) -> None:
    await log_in(resource.sse_url)
    assert await sums(resource.sse_url, kind="sse") == [1]
    assert judge.faults == []
    assert {proof["htm"] for proof in judge.proofs} == {"POST", "GET"}
    assert len({proof["htu"] for proof in judge.proofs}) == 2


async def test_a_token_that_is_not_bound_goes_alone(resource: Resource) -> None:
    await log_in(resource.url)
    assert await sums(resource.url) == [1]
    assert {(sent["authorization"].split()[0], "dpop" in sent) for sent in resource.requests} == {("Bearer", False)}


async def test_another_process_goes_on_with_the_key(authority: Authority, resource: Resource, judge: Judge) -> None:
    await log_in(resource.url)
    command = [sys.executable, "-m", "bridge", "call", resource.url, "add", "a=1", "b=2"]
    with anyio.fail_after(DEADLINE_SECONDS):
        done = await anyio.run_process(command)
    assert done.stdout.decode().strip() == "3"
    assert (authority.grants, judge.faults) == (["authorization_code"], [])


async def test_a_request_that_is_sent_again_with_a_token_that_is_not_bound_has_no_proof() -> None:
    signature, sent = RequestSigner(), httpx2.Request("POST", URL)
    assert "DPoP" in signature.put(sent, LOGIN).headers
    signature.put(sent, LOGIN.model_copy(update={"proof_key": None}))
    assert (sent.headers["Authorization"], "DPoP" in sent.headers) == ("Bearer token", False)


# --- who has the token alone -----------------------------------------------------------------------------------------

PING = modern(request("tools/list"))


CHANGES: dict[str, Callable[[dict[str, str], str], dict[str, str]]] = {
    "jti": lambda headers, token: {"authorization": f"DPoP {token}", "dpop": headers["dpop"]},
    "ath": lambda headers, token: {"authorization": f"DPoP {token}", "dpop": headers["of another token"]},
    "htu": lambda headers, token: {"authorization": f"DPoP {token}", "dpop": headers["elsewhere"]},
    "htm": lambda headers, token: {"authorization": f"DPoP {token}", "dpop": headers["of a GET"]},
    "signature": lambda headers, token: {"authorization": f"DPoP {token}", "dpop": headers["forged"]},
    "no proof": lambda headers, token: {"authorization": f"DPoP {token}"},
}


@pytest.mark.parametrize("fault", CHANGES)
async def test_who_has_seen_a_request_cannot_make_another_one(resource: Resource, judge: Judge, fault: str) -> None:
    await log_in(resource.url)
    await sums(resource.url)
    login = await stored_login(resource.url)
    key, token, url = login.proof_key, login.access_token or "", httpx2.URL(resource.url)
    assert key is not None
    good = key.proof("POST", url, token=token)
    head, _, signature = good.rpartition(".")
    seen = {
        "dpop": resource.requests[-1]["dpop"],
        "of another token": key.proof("POST", url, token="another"),
        "elsewhere": key.proof("POST", url.copy_with(path="/other"), token=token),
        "of a GET": key.proof("GET", url, token=token),
        "forged": f"{head}.{signature[::-1]}",
    }
    assert (await posted(resource.url, CHANGES[fault](seen, token))).status_code == 401
    assert judge.faults == [fault]
    assert (await posted(resource.url, {"authorization": f"DPoP {token}", "dpop": good})).status_code == 200


async def test_a_bound_token_is_no_good_without_its_key(resource: Resource, judge: Judge) -> None:
    await log_in(resource.url)
    token = (await stored_login(resource.url)).access_token or ""
    other = ProofKey.generated().proof("POST", httpx2.URL(resource.url), token=token)
    for headers in ({"authorization": f"Bearer {token}"}, {"authorization": f"DPoP {token}", "dpop": other}):
        assert (await posted(resource.url, headers)).status_code == 401


async def posted(url: str, headers: dict[str, str]) -> httpx2.Response:
    async with httpx2.AsyncClient() as http:
        return await http.post(url, json=PING, headers=modern_headers(PING) | headers)


# --- nonces ----------------------------------------------------------------------------------------------------------


async def test_a_request_is_sent_again_with_the_nonce_that_a_server_asks_for(
    authority: Authority, resource: Resource, judge: Judge
) -> None:
    judge.nonce = "first"
    await log_in(resource.url)
    assert await sums(resource.url, count=3) == [1, 2, 3]
    assert judge.faults == ["nonce"], "it is asked for once"
    assert authority.grants == ["authorization_code"], "and costs no renewal"


async def test_a_nonce_that_comes_with_an_answer_is_in_the_next_proof(resource: Resource, judge: Judge) -> None:
    judge.nonce, judge.nonces = "first", ["second", "third"]
    await log_in(resource.url)
    await sums(resource.url, count=3)
    assert judge.faults == ["nonce"]
    assert [proof["nonce"] for proof in judge.proofs][:4] == ["first", "second", "third", "third"]


class Server:
    """Run a server that sends the given responses in order, and records its requests."""

    def __init__(self, *answers: httpx2.Response) -> None:
        self._answers = list(answers)
        self.proofs: list[str] = []

    def __call__(self, asked: httpx2.Request) -> httpx2.Response:
        self.proofs.append(asked.headers["DPoP"])
        return self._answers.pop(0)


def refusal(error: str, nonce: str | None = None) -> httpx2.Response:
    headers = {"WWW-Authenticate": f'DPoP error="{error}"'} | ({"DPoP-Nonce": nonce} if nonce else {})
    return httpx2.Response(401, headers=headers)


async def asked(server: Server) -> httpx2.Response:
    signing = SignIn(URL, OAuthLogin())
    await LoginStore().save(signing.key, LOGIN)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(server), auth=signing) as http:
        return await http.post(URL, json={})


@pytest.mark.usefixtures("state_folder")
async def test_a_server_that_wants_one_nonce_after_another_is_given_up() -> None:
    server = Server(refusal("use_dpop_nonce", "one"), refusal("use_dpop_nonce", "two"))
    with pytest.raises(SignInError, match="it rejects the nonce in the proof"):
        await asked(server)
    assert [claims_of(proof).get("nonce") for proof in server.proofs] == [None, "one"]


@pytest.mark.usefixtures("state_folder")
@pytest.mark.parametrize(
    ("error", "said"), [("use_dpop_nonce", "rejects the nonce"), ("invalid_dpop_proof", "refuses the proof")]
)
async def test_a_proof_that_is_refused_is_no_reason_to_renew_the_token(error: str, said: str) -> None:
    server = Server(refusal(error))
    with pytest.raises(SignInError, match=said):
        await asked(server)
    assert len(server.proofs) == 1


async def test_a_refused_proof_is_told_with_what_may_be_wrong(
    authority: Authority, resource: Resource, judge: Judge
) -> None:
    await log_in(resource.url)
    judge.refuses = True
    with pytest.raises(
        ServerAuthError, match=r"(?s)refuses the proof.*invalid_dpop_proof.*hint: check this machine's clock"
    ):
        await sums(resource.url)
    assert authority.grants == ["authorization_code"]


# --- what goes into a request ----------------------------------------------------------------------------------------


def test_nothing_is_put_into_a_request_without_a_token() -> None:
    for login in (None, LOGIN.renewed(None)):
        signed = RequestSigner().put(httpx2.Request("POST", URL), login)
        assert not {"authorization", "dpop"} & set(signed.headers)
