"""An AI service that two replicas publish, with conversations in a shared Redis."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx

from tests.redis_server import redis_server
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, Modern, bearer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Start

SERVICE = '''
import os
from abc import abstractmethod
from typing import Annotated, Protocol

from bridge import AiMessage, ChatMemory, ChatResponse, MemoryId, UserMessage, ai_service, tool


class Clerk(Protocol):
    @tool("Ask the clerk.")
    @abstractmethod
    async def ask(self, question: str, customer: Annotated[str, MemoryId]) -> str: ...


class Parrot:
    """Says all that it was asked in a conversation."""

    async def chat(self, request):
        asked = [message.text for message in request.messages if isinstance(message, UserMessage)]
        return ChatResponse(message=AiMessage(" ".join(asked)))


clerk = ai_service(Clerk, chat_model=Parrot(), memory=ChatMemory(os.environ["BRIDGE_REDIS_URL"]))
'''


def test_a_caller_goes_on_with_a_conversation_at_another_replica(start: Start, directory: Path, tmp_path: Path) -> None:
    (directory / "clerk.py").write_text(SERVICE, encoding="utf-8")
    keys = directory / "keys"
    keys.write_text(f"ada {ADA}\nbob {BOB}\n", encoding="utf-8")
    serve = ("serve", "clerk.py", "--name", "clerk", "--transport", "http", "--port", "0")
    with redis_server(tmp_path) as redis, ExitStack() as stack:
        environment = {"BRIDGE_REDIS_URL": redis.url, "BRIDGE_API_KEYS": str(keys)}
        client = stack.enter_context(httpx.Client(timeout=30))
        origins = [stack.enter_context(start(*serve, env=environment)).url().removesuffix("/mcp") for _ in range(2)]

        def ask(origin: str, key: str, question: str) -> str:
            answer = Modern(client, origin, bearer(key)).ask(http.call("ask", {"question": question}))
            text: str = answer["result"]["content"][0]["text"]
            return text

        one, other = origins
        assert ask(one, ADA, "Who?") == "Who?"
        assert ask(other, ADA, "When?") == "Who? When?"
        assert ask(one, BOB, "Where?") == "Where?"
        assert ask(one, ADA, "Why?") == "Who? When? Why?"
