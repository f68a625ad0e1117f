from __future__ import annotations

import re
from typing import Any

import pytest

from bridge import DefinitionError, ToolError, ToolExecutionResult, prompt, resource, tool
from bridge.errors import ServerRefusedError
from bridge.middleware import ErrorMaskingMiddleware
from bridge.testing import connected

pytestmark = pytest.mark.anyio


class KnownError(ToolError):
    """An error that clients may see."""


@tool
async def fail(how: str) -> ToolExecutionResult:
    if how == "result":
        return ToolExecutionResult.error("secret of another server")
    raise {"known": KnownError("known"), "tool": ToolError("a secret")}.get(how) or ValueError("a secret")


@resource("notes://today")
async def today() -> str:
    raise ToolError("a secret")


@prompt
async def review() -> str:
    raise ToolError("a secret")


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_clients_get_an_id_and_the_log_has_the_error_under_it(
    protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    masking = ErrorMaskingMiddleware(shown=(KnownError,))
    async with connected(fail, today, review, protocol=protocol, middleware=[masking]) as provider:
        assert (await provider.call("fail", {"how": "known"})).text == "known"
        texts = [(await provider.call("fail", {"how": how})) for how in ("tool", "result", "bug")]
        assert all(each.is_error for each in texts)
        messages = [each.text for each in texts]
        with pytest.raises(ServerRefusedError) as refused:
            await provider.resources.read("notes://today")
        messages.append(str(refused.value))
        with pytest.raises(ServerRefusedError) as refused:
            await provider.prompts.render("review")
        messages.append(str(refused.value))
    for message in messages:
        assert "secret" not in message
        found = re.search(r"its id in the server's log is (\w{8})", message)
        assert found is not None
        (record,) = [each for each in caplog.records if found[1] in each.getMessage()]
        assert "secret" in record.getMessage()


async def test_the_text_may_be_another() -> None:
    async with connected(fail, middleware=[ErrorMaskingMiddleware("Sorry.")]) as provider:
        assert (await provider.call("fail", {"how": "tool"})).text == "Sorry."
    with pytest.raises(DefinitionError, match="shown takes classes of exceptions, not 'x'"):
        ErrorMaskingMiddleware(shown=("x",))  # type: ignore[arg-type]
