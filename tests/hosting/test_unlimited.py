from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.hosting.admin_pages import FullAccessRequired
from bridge.server.auth import VerifiedToken
from bridge.server.auth.access import Access
from bridge.server.auth.credentials import RequestUser
from bridge.server.auth.identity import current_user
from tests.server.auth.guarded import ADA

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


@pytest.mark.anyio
async def test_a_page_for_those_who_may_use_all_tools_asks_others_for_more() -> None:
    sent: list[Message] = []

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the page was shown")

    async def receive() -> Message:
        raise AssertionError("a body was read")

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": "GET", "path": "/status"}
    token = VerifiedToken(token=ADA, client_id="ada", scopes=[], tools=("add",))
    reset = current_user.set(RequestUser(token, Access(tools=("add",))))
    try:
        await FullAccessRequired(page)(scope, receive, send)
    finally:
        current_user.reset(reset)
    assert sent[0]["status"] == 403
    assert dict(sent[0]["headers"])[b"www-authenticate"].startswith(b'Bearer error="insufficient_scope"')
