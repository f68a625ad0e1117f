"""Results of remote tools: their text for a model, their data for code, and malformed results."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from bridge import (
    Audio,
    DefinitionError,
    File,
    Image,
    InvocationContext,
    ResourceLink,
    Text,
    ToolError,
    ToolExecutionRequest,
    ToolExecutionResult,
)
from bridge.client import CallOptions, McpToolProvider
from bridge.client.remote_tool import remote_tool
from bridge.errors import (
    OutcomeUnknownError,
    ServerError,
    ServerFailure,
    ServerRefusedError,
    ServerUnavailableError,
    WireError,
)
from tests.client.scripted import listed, scripted_config

pytestmark = pytest.mark.anyio

DATA = b64encode(b"\x00\x01").decode()
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
EVERY_KIND = [
    {"type": "text", "text": "hello", "annotations": {"audience": ["user"]}},
    {"type": "image", "data": DATA, "mimeType": "image/webp"},
    {"type": "audio", "data": DATA, "mimeType": "audio/ogg"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "inside", "mimeType": "text/plain"}},
    {"type": "resource_link", "uri": "file:///b", "name": "b", "size": 3},
]


class Answering:
    """A server that answers every call the same, and records its requests."""

    name = "there"

    def __init__(self, answer: dict[str, Any] | ServerError) -> None:
        self.answer = answer
        self.sent: list[Any] = []

    async def call_tool(self, name: str, arguments: Any, **options: Any) -> dict[str, Any]:
        self.sent.append((name, arguments, options))
        if isinstance(self.answer, ServerError):
            raise self.answer
        return self.answer

    async def task_result(self, task_id: str, **options: Any) -> dict[str, Any]:
        raise AssertionError("it makes no tasks")

    async def request(self, method: str, params: Any, **options: Any) -> dict[str, Any]:
        raise AssertionError("it is asked for nothing else")


async def result_of(answer: dict[str, Any], **tool: Any) -> ToolExecutionResult:
    executor = remote_tool(listed("f", **tool), Answering(answer)).executor
    return await executor.execute(ToolExecutionRequest("any_name"), InvocationContext())


async def test_arguments_are_sent_as_given_under_the_remote_name() -> None:
    server, context = Answering({"content": []}), InvocationContext()
    arguments = {"n": "not a number", "more": None}
    await remote_tool(listed("f", inputSchema=NUMBER), server).executor.execute(
        ToolExecutionRequest("f_here", arguments), context
    )
    assert server.sent == [("f", arguments, {"context": context, "options": CallOptions()})]


@pytest.mark.parametrize(
    ("hints", "repeatable"),
    [({"readOnlyHint": True}, True), ({"idempotentHint": True}, True), ({"destructiveHint": False}, False)],
)
async def test_a_tool_that_says_so_may_be_repeated(hints: dict[str, bool], repeatable: bool) -> None:
    server = Answering({"content": []})
    tool = remote_tool(listed("f", annotations=hints), server)
    await tool.executor.execute(ToolExecutionRequest("f"), InvocationContext())
    assert server.sent[0][2]["options"] == CallOptions(repeatable=repeatable)


async def test_every_kind_of_content_comes_as_it_is() -> None:
    assert (await result_of({"content": EVERY_KIND, "_meta": {"k": 1}})) == ToolExecutionResult(
        (
            Text("hello", annotations={"audience": ["user"]}),
            Image(b"\x00\x01", "image/webp"),
            Audio(b"\x00\x01", "audio/ogg"),
            File("file:///a", "inside", "text/plain"),
            ResourceLink("file:///b", "b", size_bytes=3),
        ),
        metadata={"k": 1},
    )


async def test_of_structured_content_a_model_reads_the_text_and_code_gets_both() -> None:
    answer = {"content": [{"type": "text", "text": "n is 1"}], "structuredContent": {"n": 1}}
    result = await result_of(answer, outputSchema=NUMBER)
    assert (result.model_text, result.text, result.structured_content) == ("n is 1", "n is 1", {"n": 1})


async def test_structured_content_without_text_is_read_by_a_model_as_json() -> None:
    result = await result_of({"content": [], "structuredContent": {"n": 1, "ü": "é"}})
    assert (result.model_text, result.content, result.structured_content) == ('{"n":1,"ü":"é"}', (), {"n": 1, "ü": "é"})


async def test_a_tool_that_failed_says_so_whatever_its_schema() -> None:
    answer = {"content": [{"type": "text", "text": "no"}], "isError": True}
    assert await result_of(answer, outputSchema=NUMBER) == ToolExecutionResult.error("no")


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({}, "returned a malformed result: a result without content"),
        ({"content": [{"type": "hologram"}]}, "returned a malformed result: content of an unknown type"),
        (
            {"content": [{"type": "image", "data": "%", "mimeType": "image/png"}]},
            "malformed result: expected base64",
        ),
        ({"content": []}, "returned no structured content, which its output schema requires"),
        (
            {"content": [], "structuredContent": {"n": "x"}},
            r"does not match its output schema: \['n'\]: 'x' is not of type",
        ),
        ({"content": [], "structuredContent": {}}, "does not match its output schema: 'n' is a required property"),
    ],
)
async def test_what_is_no_result_is_a_tool_error_that_names_server_and_tool(
    answer: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ToolError, match=f"^the tool 'f' of the server 'there' .*{complaint}"):
        await result_of(answer, outputSchema=NUMBER)


async def test_results_can_be_passed_on_unchecked() -> None:
    server = Answering({"content": [], "structuredContent": {"n": "x"}})
    tool = remote_tool(listed("f", outputSchema=NUMBER), server, validates_results=False)
    result = await tool.executor.execute(ToolExecutionRequest("f"), InvocationContext())
    assert result.structured_content == {"n": "x"}


@pytest.mark.parametrize("kind", [ServerUnavailableError, OutcomeUnknownError])
async def test_a_server_that_failed_is_a_tool_error_without_what_is_nobody_elses_business(kind: Any) -> None:
    failure = ServerFailure(server="there", phase="calling 'f'", reason="it broke", address="cmd", last_words=("oops",))
    error = kind(failure)
    with pytest.raises(ToolError, match=r"^the server 'there', calling 'f': it broke$") as caught:
        await remote_tool(listed("f"), Answering(error)).executor.execute(
            ToolExecutionRequest("f"), InvocationContext()
        )
    assert caught.value.__cause__ is error


async def test_a_refusal_is_a_result_to_a_caller_and_an_error_to_whoever_passes_it_on() -> None:
    error = ServerRefusedError(ServerFailure(server="there", phase="calling 'f'", reason="no"), -32602, "no")
    executor: Any = remote_tool(listed("f"), Answering(error)).executor
    with pytest.raises(ServerRefusedError):
        await executor.call({}, InvocationContext(), CallOptions(hands_on_questions=True))


@pytest.mark.parametrize("wire", [{"inputSchema": {}}, {"name": "f"}, {"name": "f", "inputSchema": {"type": "array"}}])
def test_what_is_no_tool_is_refused(wire: dict[str, Any]) -> None:
    with pytest.raises((WireError, DefinitionError)):
        remote_tool(wire, Answering({}))


async def test_through_a_real_connection_it_is_the_same() -> None:
    tools = [listed("all"), listed("off", outputSchema=NUMBER), listed("bad")]
    results = {
        "all": {"content": EVERY_KIND},
        "off": {"content": [], "structuredContent": {"n": "x"}},
        "bad": {"content": [{"type": "hologram"}]},
    }
    async with McpToolProvider(scripted_config(tools, results)) as provider:
        assert len((await provider.call("all")).content) == 5
        for name in ("off", "bad"):
            result = await provider.call(name)
            assert result.is_error
            assert "'child'" in result.text
            assert repr(name) in result.text
