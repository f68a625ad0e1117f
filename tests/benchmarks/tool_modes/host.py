"""A host and its model: it reads all definitions and all earlier results in every request."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bridge.text import estimated_tokens
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.tool_modes.tasks import Step


def _named(step: Step) -> list[str]:
    """Return the tools that calls name, and that a search has to have found."""
    named = [str(arguments["name"]) for name, arguments in step if name == "call_tool"]
    for name, arguments in step:
        if name == "run_code":
            named += re.findall(r"(?:calculator|database|files)_\w+(?=\()", arguments["code"])
    return named


class Host:
    """A conversation with one question.

    Args:
        url: URL of the server.
        question: The question.

    Attributes:
        first_tokens: Estimated tokens of the first request: the definitions and the question.
        read_tokens: Estimated tokens of all requests.
        requests: Number of requests of the model, with the one that writes the answer.
        calls: Number of calls.
        seconds: Duration of the calls.
    """

    def __init__(self, url: str, question: str) -> None:
        self._client = TaskClient(url.removesuffix("/mcp"), capabilities={})
        listed = self._client.send("tools/list", {})["tools"]
        # Hosts give their model the name, the description and the schema of the arguments.
        read = [{key: each.get(key) for key in ("name", "description", "inputSchema")} for each in listed]
        self._context = estimated_tokens(json.dumps(read, ensure_ascii=False)) + estimated_tokens(question)
        self.first_tokens = self.read_tokens = self._context
        self.requests = 1
        self.calls = 0
        self.seconds = 0.0

    def follow(self, steps: Sequence[Step], answer: str) -> None:
        """Make the calls of all steps; those of one step run together.

        Raises:
            AssertionError: A call has failed, or the results have not the answer.
        """
        results: list[str] = []
        known: list[str] = []
        with self._client, ThreadPoolExecutor(max_workers=12) as threads:
            for step in steps:
                for name in _named(step):
                    assert name in "\n".join(known), f"{name} was not found"
                begun = perf_counter()
                results = list(threads.map(self._call, step))
                self.seconds += perf_counter() - begun
                self.calls += len(step)
                texts = [json.dumps(arguments) for _, arguments in step] + results
                known += results
                self._context += sum(map(estimated_tokens, texts))
                self.read_tokens += self._context
                self.requests += 1
        if len(results) == 1:
            assert answer in results[0], (answer, results)
        else:  # the model counts
            assert str(max(result.count("ERROR") for result in results)) == answer

    def _call(self, call: tuple[str, Any]) -> str:
        name, arguments = call
        result = self._client.send("tools/call", {"name": name, "arguments": arguments})
        text = "\n".join(block["text"] for block in result["content"])
        assert not result.get("isError"), (call, text)
        return text
