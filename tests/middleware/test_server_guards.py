from __future__ import annotations

import pytest

from bridge import resource, tool
from bridge.errors import ServerRefusedError
from bridge.middleware import CircuitBreakerMiddleware, RateLimitMiddleware, RetryMiddleware
from bridge.testing import connected

pytestmark = pytest.mark.anyio


class Flaky:
    """Fails as often as the test wants, in each of its functions."""

    def __init__(self, failures: int) -> None:
        self.failures, self.runs = failures, 0

    def _run(self) -> str:
        self.runs += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionError("lost")
        return f"run {self.runs}"

    @tool
    async def call(self) -> str:
        return self._run()

    @resource("notes://today")
    async def read(self) -> str:
        return self._run()


async def test_a_server_repeats_reads_and_the_tools_that_are_named() -> None:
    flaky = Flaky(1)
    retry = RetryMiddleware(attempts=2, first_wait_seconds=0)
    async with connected(flaky, middleware=[retry]) as provider:
        assert (await provider.resources.read("notes://today"))[0].content == "run 2"
        flaky.failures = 1
        assert (await provider.call("call")).is_error
    flaky = Flaky(1)
    async with connected(flaky, middleware=[RetryMiddleware(tools=["call"], first_wait_seconds=0)]) as provider:
        assert (await provider.call("call")).text == "run 2"


async def test_a_server_breaks_the_circuit_of_what_fails_and_of_nothing_else() -> None:
    flaky = Flaky(2)
    breaker = CircuitBreakerMiddleware(failures=2, recovery_seconds=3600)
    async with connected(flaky, middleware=[breaker]) as provider:
        texts = [(await provider.call("call")).text for _ in range(3)]
        assert texts[2] == "'call' does not work at present; try again in 3600 seconds"
        assert (await provider.resources.read("notes://today"))[0].content == "run 3"


async def test_a_server_limits_the_rate_of_all_requests() -> None:
    limit = RateLimitMiddleware(2, per_seconds=3600, key=lambda context: "" if context.caller is None else "known")
    async with connected(Flaky(0), middleware=[limit]) as provider:  # which lists the tools
        assert (await provider.call("call")).text == "run 1"
        assert "'call' was called too often; try again in " in (await provider.call("call")).text
        with pytest.raises(ServerRefusedError, match="'notes://today' was called too often"):
            await provider.resources.read("notes://today")
