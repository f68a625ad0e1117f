from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import DefinitionError
from bridge.tools.search.ranking import ToolRanking
from bridge.tools.specification import ToolSpecification

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio

TOOLS = [
    ToolSpecification(name="get_weather", description="Forecast."),
    ToolSpecification(name="umbrella", description="Buy one."),
    ToolSpecification(name="send_mail", description="Send a message."),
]
TOPICS = {"időjárás": (1.0, 0.0), "weather": (0.9, 0.1), "umbrella": (0.8, 0.3), "mail": (0.0, 1.0)}


def embed(texts: Sequence[str]) -> list[tuple[float, float]]:
    return [next((TOPICS[topic] for topic in TOPICS if topic in text.lower()), (0.5, 0.5)) for text in texts]


async def ranked(query: str, limit: int = 5, **options: Any) -> list[str]:
    ranking = ToolRanking(**options)
    ranking.update(TOOLS)
    return await ranking.search(query, limit=limit)


async def test_words_alone_rank_without_embeddings() -> None:
    assert await ranked("mail") == ["send_mail"]
    assert await ranked("időjárás") == []


async def test_embeddings_find_what_words_do_not() -> None:
    assert await ranked("időjárás", 2, embed=embed) == ["get_weather", "umbrella"]


async def test_words_and_embeddings_are_fused_by_reciprocal_rank() -> None:
    # By words the mail is the only one; by embeddings it is the last of three.
    assert await ranked("mail about the időjárás", embed=embed) == ["send_mail", "get_weather", "umbrella"]
    assert (await ranked("mail about the időjárás", embed=embed, words=False))[0] == "get_weather"


async def test_a_tool_of_the_queried_name_is_the_first() -> None:
    assert (await ranked("umbrella", embed=lambda texts: [(1.0, 0.0) for _ in texts]))[0] == "umbrella"


async def test_less_similar_tools_are_left_out() -> None:
    assert await ranked("időjárás", embed=embed, min_similarity=0.95) == ["get_weather"]


async def test_queries_may_have_a_function_of_their_own() -> None:
    asked: list[list[str]] = []

    async def embed_query(texts: Sequence[str]) -> list[tuple[float, float]]:
        asked.append([*texts])
        return [(0.0, 1.0)]

    assert (await ranked("Post", embed=embed, embed_query=embed_query))[0] == "send_mail"
    assert asked == [["Post"]]


async def test_vectors_of_tools_are_computed_once() -> None:
    asked: list[int] = []

    def counted(texts: Sequence[str]) -> list[tuple[float, float]]:
        asked.append(len(texts))
        return embed(texts)

    ranking = ToolRanking(counted)
    ranking.update(TOOLS[:2])
    await ranking.search("a", limit=1)
    ranking.update(TOOLS)
    await ranking.search("b", limit=1)
    await ranking.search("c", limit=1)
    assert asked == [3, 2, 1]


@pytest.mark.parametrize(
    "options", [{"embed": "model"}, {"embed": embed, "embed_query": 5}, {"embed": embed, "min_similarity": 2}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        ToolRanking(**options)
