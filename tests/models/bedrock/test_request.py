"""Requests to Bedrock that are cancelled."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from threading import Event, current_thread
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import boto3
import pytest
from botocore.config import Config

from bridge.models.bedrock.model import BedrockChatModel
from bridge.models.bedrock.request import BlockingRequest, RequestAbandonedError
from tests.models.bedrock_wire import reply
from tests.models.provider import DEADLINE_SECONDS, Answer
from tests.models.requests import asking

if TYPE_CHECKING:
    from tests.models.provider import Provider

REQUEST = asking("Hello")

PROGRAM = """
import sys
import anyio, anyio.to_thread
from bridge.models.bedrock.model import BedrockChatModel
from bridge.service.chat_model import ChatRequest
from bridge.service.messages import UserMessage

async def main():
    model = BedrockChatModel("test", endpoint_url={url!r}, region_name="eu-central-1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model.chat, ChatRequest(messages=(UserMessage.of("Hello"),)))
        await anyio.to_thread.run_sync(sys.stdin.readline)
        tasks.cancel_scope.cancel()
    print("left")

anyio.run(main)
"""


async def leave(model: BedrockChatModel, provider: Provider) -> None:
    """Send a request, and cancel it when it has arrived."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model.chat, REQUEST)
        assert await anyio.to_thread.run_sync(provider.asked.wait, DEADLINE_SECONDS)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_what_nobody_waits_for_is_not_sent_again(provider: Provider) -> None:
    errors: list[type[Exception]] = []
    over = Event()

    def failed(exception: Exception, **_: Any) -> None:
        errors.append(type(exception))
        over.set()

    session = boto3.session.Session(region_name="eu-central-1")
    config = Config(retries={"mode": "standard", "total_max_attempts": 3})
    client = session.client("bedrock-runtime", endpoint_url=provider.url, config=config)
    client.meta.events.register("after-call.bedrock-runtime", lambda **_: over.set())
    client.meta.events.register("after-call-error.bedrock-runtime", failed)
    provider.will_answer(Answer(status=503, is_held=True), reply({"text": "Hi"}))
    await leave(BedrockChatModel("test", client=client), provider)
    provider.released.set()
    assert await anyio.to_thread.run_sync(over.wait, DEADLINE_SECONDS)
    assert errors == [RequestAbandonedError]
    assert len(provider.requests) == 1


def test_a_request_that_nobody_waits_for_keeps_no_process_from_ending(provider: Provider) -> None:
    provider.will_answer(Answer(is_held=True))
    command = [sys.executable, "-c", PROGRAM.format(url=provider.url)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert provider.asked.wait(DEADLINE_SECONDS)
            said, _ = process.communicate("leave\n", timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
            provider.released.set()
    assert (process.returncode, said) == (0, "left\n")
    assert len(provider.requests) == 1


@pytest.mark.anyio
async def test_all_that_is_done_for_one_request_is_done_in_one_thread_that_holds_up_nobody() -> None:
    def fail() -> None:
        raise ValueError("no")

    with BlockingRequest() as line:
        first, second = await line.run(current_thread), await line.run(current_thread)
        assert first is second
        assert first.daemon
        with pytest.raises(ValueError, match="no"):
            await line.run(fail)
    await anyio.to_thread.run_sync(partial(first.join, DEADLINE_SECONDS))
    assert not first.is_alive()
