from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import httpx2
import pytest
from mcp.client.auth import OAuthFlowError

from bridge.client.auth.errors import SignInError
from bridge.client.auth.loopback import listen_for_redirect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.client.auth.loopback import RedirectListener

pytestmark = pytest.mark.anyio
DEADLINE_SECONDS = 30
PAGE = "https://login.example/authorize?state=expected"


async def answered(
    do: Callable[[str], Awaitable[None]], redirect_uri: str | None = None, issuer: str | None = None
) -> tuple[str, str | None]:
    """Receive the callback while a browser makes requests; one issuer is allowed to answer."""

    async def show(url: str) -> None:
        await do(loopback.redirect_uri)

    def check_issuer(named: str | None) -> None:
        if issuer is not None and named != issuer:
            raise OAuthFlowError(f"{named} is not {issuer}")

    with anyio.fail_after(DEADLINE_SECONDS):
        async with listen_for_redirect(redirect_uri, show) as loopback:
            await loopback.show(PAGE, check_issuer)
            result = await loopback.answer()
    return result.code, result.iss


async def get(url: str) -> tuple[int, str]:
    async with httpx2.AsyncClient() as browser:
        answer = await browser.get(url)
    return answer.status_code, answer.text


async def test_what_the_browser_brings_is_heard() -> None:
    pages = []

    async def browse(uri: str) -> None:
        pages.append(await get(f"{uri}?code=the-code&state=expected&iss=https%3A%2F%2Flogin.example"))
        await anyio.sleep_forever()

    assert await answered(browse) == ("the-code", "https://login.example")


async def test_a_browser_that_fails_after_the_login_changes_nothing() -> None:
    async def show(url: str) -> None:
        loopback.receive("/callback?code=c&state=expected")
        raise OSError("the browser has ended")

    with anyio.fail_after(DEADLINE_SECONDS):
        async with listen_for_redirect(None, show) as loopback:
            await loopback.show(PAGE, lambda _: None)
            assert (await loopback.answer()).code == "c"


async def test_what_is_not_expected_is_refused_and_changes_nothing() -> None:
    statuses = []

    async def browse(uri: str) -> None:
        root = uri.removesuffix("/callback")
        for url in (f"{root}/favicon.ico", uri, f"{uri}?code=c&state=guessed", f"{uri}?state=expected"):
            statuses.append((await get(url))[0])  # noqa: PERF401 - one after the other
        await get(f"{uri}?code=c&state=expected")

    assert await answered(browse) == ("c", None)
    assert statuses == [404, 400, 400, 400]


async def test_a_refusal_ends_the_login_and_is_shown_as_text() -> None:
    async def browse(uri: str) -> None:
        status, page = await get(f"{uri}?error=access_denied&error_description=%3Cscript%3E&state=expected")
        assert (status, "<script>" in page, "&lt;script&gt;" in page) == (200, False, True)

    with pytest.raises(SignInError, match=r"the login was refused \(access_denied"):
        await answered(browse)


@pytest.mark.parametrize("answer", ["error=access_denied&error_description=call+555", "code=c"])
@pytest.mark.parametrize("named", ["&iss=https%3A%2F%2Fevil.example", ""])
async def test_an_answer_of_another_issuer_ends_the_login_and_nothing_of_it_is_told(answer: str, named: str) -> None:
    pages = []

    async def browse(uri: str) -> None:
        pages.append(await get(f"{uri}?{answer}&state=expected{named}"))
        await anyio.sleep_forever()

    with pytest.raises(SignInError, match="not from the expected authorization server") as caught:
        await answered(browse, issuer="https://login.example")
    ((status, page),) = pages
    assert status == 400
    for said in ("access_denied", "call 555", "evil"):
        assert said not in page + str(caught.value)


async def test_a_refusal_writes_nothing_on_a_terminal_but_its_one_line() -> None:
    async def browse(uri: str) -> None:
        await get(f"{uri}?error=access_denied&error_description=no%1B%5B2J%0Aroot%23+%E2%80%AE&state=expected")

    with pytest.raises(SignInError) as caught:
        await answered(browse)
    assert str(caught.value) == "the login was refused (access_denied: no[2Jroot# )"


async def test_what_is_no_request_of_a_browser_harms_nothing() -> None:
    async def browse(uri: str) -> None:
        url = httpx2.URL(uri)
        assert url.port is not None
        for words in (b"", b"nonsense\r\n\r\n", b"POST /callback HTTP/1.1\r\n\r\n", b"x" * 20_000):
            async with await anyio.connect_tcp(url.host, url.port) as stream:
                if words:
                    await stream.send(words)
                    assert b" 400 " in await stream.receive()
        await get(f"{uri}?code=c&state=expected")

    assert await answered(browse) == ("c", None)


async def test_a_page_that_cannot_be_shown_is_an_error() -> None:
    async def browse(uri: str) -> None:
        raise OSError("no display")

    with pytest.raises(SignInError, match="cannot be shown: no display"):
        await answered(browse)


async def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    async def nothing(url: str) -> None: ...

    async with listen_for_redirect(None, nothing) as first:
        port = httpx2.URL(first.redirect_uri).port
        with pytest.raises(SignInError, match=f"127.0.0.1 port {port}"):
            async with listen_for_redirect(f"http://127.0.0.1:{port}/callback", nothing):
                pass


async def test_localhost_is_listened_on_by_both_its_addresses() -> None:
    async def nothing(url: str) -> None: ...

    loopback: RedirectListener
    async with listen_for_redirect(None, nothing) as loopback:
        port = httpx2.URL(loopback.redirect_uri).port

    async def browse(uri: str) -> None:
        await get(f"http://127.0.0.1:{port}/back?code=c&state=expected")

    assert await answered(browse, f"http://localhost:{port}/back") == ("c", None)
