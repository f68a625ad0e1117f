from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bridge.server.auth import IssuerUnavailableError
from bridge.server.auth.issuer import MAX_ANSWER_BYTES, Issuer

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/redirect", "answered with HTTP status 302"),
        ("/long", f"answered more than {MAX_ANSWER_BYTES} bytes"),
        ("/text", "did not answer with JSON"),
        ("/list", "did not answer with a JSON object"),
        ("/nothing", "answered with HTTP status 404"),
    ],
)
async def test_an_answer_that_is_none_is_not_believed(serving: Callable[..., str], path: str, message: str) -> None:
    followed: list[str] = []

    async def good(request: Request) -> Response:
        followed.append(request.url.path)
        return JSONResponse({"keys": []})

    answers = {
        "/redirect": RedirectResponse("/good", 302),
        "/long": JSONResponse({"keys": ["x" * MAX_ANSWER_BYTES]}),
        "/text": Response("keys"),
        "/list": JSONResponse([]),
    }
    routes = [Route(each, answer, methods=["GET"]) for each, answer in answers.items()]
    origin = serving(Starlette(routes=[Route("/good", good), *routes]))
    issuer = Issuer(origin)
    assert await issuer.get(f"{origin}/good") == {"keys": []}
    with pytest.raises(IssuerUnavailableError, match=message):
        await issuer.get(origin + path)
    await issuer.aclose()
    assert followed == ["/good"]
