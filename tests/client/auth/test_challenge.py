from __future__ import annotations

import httpx2
import pytest

from bridge.client.auth.challenge import Challenge, parse_challenge, request_challenge

REQUEST = httpx2.Request("POST", "https://mcp.example.com/mcp")
URL = "https://mcp.example.com/.well-known/oauth-protected-resource"


def answer(status: int, said: str | None = None) -> httpx2.Response:
    return httpx2.Response(status, headers={"WWW-Authenticate": said} if said else {}, request=REQUEST)


@pytest.mark.parametrize(
    ("response", "challenge"),
    [
        (answer(200), None),
        (answer(200, 'Bearer error="insufficient_scope"'), None),
        (answer(403), None),
        (answer(403, 'Bearer error="invalid_token"'), None),
        (answer(401), Challenge()),
        (answer(401, f'Bearer resource_metadata="{URL}", scope="a b"'), Challenge(scope="a b", metadata_url=URL)),
        (
            answer(403, 'Bearer error="insufficient_scope", scope="a"'),
            Challenge(is_step_up=True, scope="a", error="insufficient_scope"),
        ),
        (answer(401, 'Bearer error="insufficient_scope"'), Challenge(error="insufficient_scope")),
        (answer(401, "DPoP"), Challenge(takes_proofs=True)),
        (answer(401, 'dpop algs="RS256 ES256"'), Challenge(takes_proofs=True)),
        (answer(401, 'DPoP algs="RS256"'), Challenge()),
        (answer(401, 'Bearer error_description="no Bearer, DPoP is better"'), Challenge()),
        (answer(401, 'Bearer scope="a", DPoP algs="ES256"'), Challenge(scope="a", takes_proofs=True)),
        (
            answer(401, 'Bearer error="invalid_token", DPoP error="use_dpop_nonce"'),
            Challenge(error="invalid_token", takes_proofs=True, proof_error="use_dpop_nonce"),
        ),
    ],
)
def test_what_an_answer_asks_for(response: httpx2.Response, challenge: Challenge | None) -> None:
    assert parse_challenge(response) == challenge


@pytest.mark.parametrize(
    "challenge",
    [
        Challenge(),
        Challenge(scope="a b", metadata_url=URL),
        Challenge(scope="\u00ed"),
        Challenge(is_step_up=True, scope="a", metadata_url=URL, error="insufficient_scope"),
    ],
)
def test_a_challenge_can_be_an_answer_again(challenge: Challenge) -> None:
    assert parse_challenge(challenge.response(REQUEST)) == challenge


def test_what_a_program_asks_for_stands_in_the_place_of_what_the_server_names() -> None:
    assert parse_challenge(Challenge(scope="a").response(REQUEST, ("b", "c"))) == Challenge(scope="b c")


def test_what_a_server_wants_more_stands_beside_what_a_program_asks_for() -> None:
    said = parse_challenge(Challenge(is_step_up=True, scope="a").response(REQUEST, ("b",)))
    assert said == Challenge(is_step_up=True, scope="b a", error="insufficient_scope")


@pytest.mark.parametrize(
    ("statuses", "challenge"),
    [
        ({"POST": 401, "GET": 405}, Challenge(scope="a")),  # it has no streams of GET
        ({"POST": 200, "GET": 401}, Challenge(scope="a")),  # anybody may discover it
        ({"POST": 404, "GET": 405}, None),
    ],
)
@pytest.mark.anyio
async def test_the_challenge_of_either_request_is_found(statuses: dict[str, int], challenge: Challenge | None) -> None:
    methods: list[str | None] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        methods.append(request.headers.get("mcp-method"))
        return httpx2.Response(statuses[request.method], headers={"WWW-Authenticate": 'Bearer scope="a"'})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(respond)) as http:
        assert await request_challenge(http, REQUEST.url, {"x-tenant": "7"}) == challenge
    assert methods[0] == "server/discover"
