"""Thousands of malformed messages against one running server."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import settings

from tests.server.stdio_mutations import NOTHING, NULL, expected, seeds, spoiled
from tests.server.stdio_process import StdioProcess, modern_request, request

MESSAGES = 50 * settings().max_examples
BATCH = 100


@pytest.mark.parametrize("is_modern", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_line_gets_its_answer_and_only_one(seed: int, *, is_modern: bool) -> None:
    random = Random(seed)
    messages = seeds(is_modern=is_modern)
    awaited: Counter[object] = Counter()
    answered: Counter[object] = Counter()
    good = (modern_request if is_modern else request)("good", "tools/call", name="add", arguments={"a": 2, "b": 3})
    with StdioProcess() as server:
        if is_modern:
            server.add()
        else:
            server.initialize()
        for start in range(0, MESSAGES, BATCH):
            texts = [spoiled(random, number, messages) for number in range(start, start + BATCH)]
            awaited.update(expected(line) for text in texts for line in text.split(b"\n"))
            server.send(*texts, good)
            while (answer := server.receive())["id"] != "good":
                answered[NULL if answer["id"] is None else answer["id"]] += 1
            assert answer["result"]["structuredContent"] == {"result": 5}
        server.close_input()
        while line := server.receive_line():
            answer = json.loads(line)
            answered[NULL if answer["id"] is None else answer["id"]] += 1
        assert server.wait() == 0
        assert server.complaints() == []
    del awaited[NOTHING]
    assert answered == awaited
