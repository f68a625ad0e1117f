"""Embeddings of OpenAI, and of servers that speak its API, for the search for tools.

by_embedding(openai_embeddings("text-embedding-3-small"))
by_embedding(openai_embeddings("bge-m3", base_url="http://localhost:11434/v1"))  # Ollama
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import httpx2

from bridge.errors import ChatModelError, DefinitionError
from bridge.tools.checks import require_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bridge.types import Json

_OPENAI_URL = "https://api.openai.com/v1"
_MAX_TEXTS = 64
"""Texts of one request; OpenAI accepts 2,048, small servers less."""


def openai_embeddings(
    model_name: str, *, base_url: str | None = None, api_key: str | None = None, timeout_seconds: float = 60.0
) -> Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]:
    """Create a function that returns one vector for each text.

    Args:
        model_name: The provider's name of the model.
        base_url: Base URL of the API; ``OPENAI_BASE_URL`` by default, or else OpenAI's.
        api_key: API key; ``OPENAI_API_KEY`` by default. Not required with a base URL.
        timeout_seconds: Maximum duration of one request.

    Raises:
        DefinitionError: There is no API key for OpenAI, or the timeout is not positive.
    """
    require_seconds(timeout_seconds, "timeout_seconds", optional=False)
    url = (base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL).rstrip("/")
    key = api_key or os.environ.get("OPENAI_API_KEY")
    if key is None and url == _OPENAI_URL:
        raise DefinitionError("there is no API key; set OPENAI_API_KEY, or pass api_key=")
    headers = {} if key is None else {"authorization": f"Bearer {key}"}

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        async with httpx2.AsyncClient(timeout=timeout_seconds, headers=headers) as client:
            parts = [texts[start : start + _MAX_TEXTS] for start in range(0, len(texts), _MAX_TEXTS)]
            return [vector for part in parts for vector in await _embedded(client, url, model_name, part)]

    return embed


async def _embedded(client: httpx2.AsyncClient, url: str, model_name: str, texts: Sequence[str]) -> list[list[float]]:
    """Send one request.

    Raises:
        ChatModelError: The server cannot be reached, refused the request, or its response is malformed.
    """
    body = {"model": model_name, "input": list(texts), "encoding_format": "float"}
    try:
        response = await client.post(f"{url}/embeddings", json=body)
        response.raise_for_status()
        items: list[Json] = response.json()["data"]
        return [item["embedding"] for item in sorted(items, key=lambda item: item["index"])]
    except (httpx2.HTTPError, ValueError, LookupError, TypeError) as error:
        status = error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else None
        problem = str(error) or type(error).__name__
        raise ChatModelError(f"no embeddings of {model_name!r}: {problem}", provider=url, status=status) from error
