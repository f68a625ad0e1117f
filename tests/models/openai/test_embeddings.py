from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge import DefinitionError
from bridge.errors import ChatModelError
from bridge.models import openai_embeddings
from tests.models.provider import Answer, Received, json_answer

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio


def numbered(request: Received) -> Answer:
    """Return a vector for each text, in the reverse order."""
    texts: list[str] = request.body["input"]
    items = [{"index": index, "embedding": [float(text)]} for index, text in enumerate(texts)]
    return json_answer({"object": "list", "data": items[::-1]})


async def test_texts_become_vectors_in_their_order(provider: Provider) -> None:
    provider.answer_to = numbered
    embed = openai_embeddings("small", base_url=f"{provider.url}/v1/", api_key="secret")
    assert await embed(["3", "1", "2"]) == [[3.0], [1.0], [2.0]]
    (request,) = provider.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.body == {"model": "small", "input": ["3", "1", "2"], "encoding_format": "float"}


async def test_many_texts_are_several_requests(provider: Provider) -> None:
    provider.answer_to = numbered
    embed = openai_embeddings("small", base_url=provider.url)
    texts = [str(number) for number in range(150)]
    assert await embed(texts) == [[float(number)] for number in range(150)]
    assert [len(request.body["input"]) for request in provider.requests] == [64, 64, 22]
    assert "authorization" not in provider.requests[0].headers


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (json_answer({"error": "no"}, status=429), 429),
        (json_answer({"data": "none"}), None),
        (json_answer([]), None),
        (Answer(chunks=(b"<html>",)), None),
    ],
)
async def test_failures_are_errors_of_the_model(provider: Provider, answer: Answer, status: int | None) -> None:
    provider.will_answer(answer)
    with pytest.raises(ChatModelError, match="no embeddings of 'small'") as raised:
        await openai_embeddings("small", base_url=provider.url)(["1"])
    assert raised.value.status == status


async def test_a_server_that_is_down_is_an_error_of_the_model() -> None:
    with pytest.raises(ChatModelError):
        await openai_embeddings("small", base_url="http://127.0.0.1:9")(["1"])


@pytest.mark.parametrize(("options", "problem"), [({}, "OPENAI_API_KEY"), ({"timeout_seconds": 0}, "timeout_seconds")])
def test_wrong_settings_are_refused(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], problem: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(DefinitionError, match=problem):
        openai_embeddings("small", **options)
