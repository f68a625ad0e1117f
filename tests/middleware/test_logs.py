from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from bridge import Caller, DefinitionError, InvocationContext, ToolError, prompt, resource, tool
from bridge.middleware import LoggingMiddleware, TimingMiddleware, method_of, target_of
from bridge.testing import connected

pytestmark = pytest.mark.anyio

if TYPE_CHECKING:
    from bridge.middleware import Request

KEY = "sk-" + "a" * 30


@tool
async def log_in(user: str, password: str, options: dict[str, Any]) -> str:
    return "in"


@tool
async def fail(text: str) -> str:
    raise (ToolError(text) if text else ValueError("a secret"))


@resource("notes://today")
async def today() -> str:
    return "buy milk"


@prompt(completions={"api_key": ["x"]})
async def review(topic: str, api_key: str = "") -> str:
    return f"Review {topic}"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the level and the text of each record, without the durations."""
    found = [each for each in caplog.records if each.name == "bridge.middleware"]
    return [(each.levelname, each.getMessage().rpartition(" in ")[0]) for each in found]


@pytest.fixture(autouse=True)
def _levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.middleware")


async def test_requests_are_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    ada = Caller("ada")
    async with connected(log_in, today, review, caller=ada, middleware=[LoggingMiddleware()]) as provider:
        caplog.clear()
        options = {"token": "t0p", "nested": [{"sessionId": "s3cret", "page": 2}], "note": f"my key is {KEY}"}
        await provider.call("log_in", {"user": "ada", "password": "hunter2", "options": options})
        await provider.resources.read("notes://today")
        await provider.prompts.render("review", {"topic": "tea", "api_key": "abc"})
        await provider.prompts.complete("review", "api_key", "abcd")
    shown = (
        '{"user":"ada","password":"***","options":{"token":"***","nested":[{"sessionId":"***","page":2}],"note":"***"}}'
    )
    assert lines(caplog) == [
        ("INFO", f"tools/call 'log_in' {shown} by 'ada': ok"),
        ("INFO", "resources/read 'notes://today' by 'ada': ok"),
        ("INFO", "prompts/list by 'ada': ok"),
        ("INFO", 'prompts/get \'review\' {"topic":"tea","api_key":"***"} by \'ada\': ok'),
        ("INFO", "completion/complete 'review' {\"api_key\":\"***\"} by 'ada': ok"),
    ]


async def test_failures_are_logged_with_their_kind(caplog: pytest.LogCaptureFixture) -> None:
    quiet = LoggingMiddleware(arguments=False)
    async with connected(fail, middleware=[quiet]) as provider:
        caplog.clear()
        for text in ("no\nsuch thing", ""):
            await provider.call("fail", {"text": text})
    assert lines(caplog) == [
        ("WARNING", "tools/call 'fail': error: 'no\\nsuch thing'"),
        ("ERROR", "tools/call 'fail': error: ValueError"),
    ]


async def test_long_arguments_and_own_secrets_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    own = LoggingMiddleware(is_secret=lambda name: name == "user", max_chars=40, logger=logging.getLogger("mine"))
    async with connected(log_in, middleware=[own]) as provider:
        with caplog.at_level(logging.INFO, "mine"):
            await provider.call("log_in", {"user": "ada", "password": "x" * 100, "options": {}})
    (line,) = [each.getMessage() for each in caplog.records if each.name == "mine" and "call" in each.getMessage()]
    assert line.startswith('tools/call \'log_in\' {"user":"***","password":"xxxxxxxxxxxxx')
    assert "x" * 40 not in line


async def test_durations_are_measured_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    measured: list[tuple[str, str | None, bool]] = []

    def report(request: Request, context: InvocationContext, seconds: float) -> None:
        measured.append((method_of(request), target_of(request), 0 <= seconds < 60))

    async with connected(fail, today, middleware=[TimingMiddleware(report), TimingMiddleware()]) as provider:
        measured.clear()
        caplog.clear()
        await provider.call("fail", {"text": "no"})
        await provider.resources.read("notes://today")
    assert measured == [("tools/call", "fail", True), ("resources/read", "notes://today", True)]
    texts = [each.getMessage() for each in caplog.records if each.name == "bridge.middleware"]
    assert [each.partition(" took ")[0] for each in texts] == ["tools/call 'fail'", "resources/read 'notes://today'"]
    assert all(each.endswith(" ms") for each in texts)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimingMiddleware(lambda: None),  # type: ignore[arg-type,misc]
        lambda: LoggingMiddleware(max_chars=0),
        lambda: LoggingMiddleware(is_secret=lambda: True),  # type: ignore[arg-type,misc]
    ],
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_wrong_settings_are_refused(make: Any) -> None:
    with pytest.raises(DefinitionError):
        make()
