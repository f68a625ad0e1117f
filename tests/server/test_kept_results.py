"""Large results of a server: what its clients get in their place."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from bridge import ExecutionPolicy, File, Image, InvocationContext, Text, ToolBox, ToolError, tool
from bridge.server import Server, http_app
from bridge.telemetry.conventions import DEFINITION_TOKENS, RESULT_TOKENS, SAVED_TOKENS
from bridge.telemetry.current import enabled
from bridge.telemetry.observer import Observer
from bridge.tools import Spill
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.spill.spill import MAX_RESULT_SIZE_KEY
from tests.server import http_server as http
from tests.server.auth.guarded import Modern
from tests.server.large_results import (
    KINDS,
    LIMIT,
    contents,
    lines,
    links,
    now,
    result,
    served,
    text_of,
    undeclared,
)
from tests.server.tasks.client import TaskClient
from tests.server.tools import ADD
from tests.telemetry.measured import Measured

SERVERS = pytest.mark.parametrize("protocol", ["direct", "h11"], ids=["before ASGI", "the app"])


@tool
def threaded(count: int) -> str:
    """Run in a thread."""
    return lines(count)


@tool
async def with_context(count: int, context: InvocationContext) -> str:
    """Take the context."""
    await context.progress(1)
    return lines(count)


@tool
async def rows(count: int) -> list[dict[str, int]]:
    """Declare an output schema."""
    return [{"id": number} for number in range(count)]


@tool
async def hidden_data(count: int) -> ToolExecutionResult:
    """Return a short text with a large object."""
    return ToolExecutionResult((Text("done"),), {"text": "x" * count})


@tool
async def media(count: int) -> list[Any]:
    """Return text, an image and a file."""
    return ["a chart", Image(b"i" * count, "image/png"), File("file:///data.csv", "1,2\n" * count, "text/csv")]


@tool
async def fail(count: int) -> str:
    """Fail with a long text."""
    raise ToolError(lines(count))


@tool(task=True)
async def slow(count: int) -> str:
    """Run as a task."""
    return lines(count)


@tool(spill_chars=100_000)
async def generous(count: int) -> str:
    """Have a limit of its own."""
    return lines(count)


@tool(metadata={MAX_RESULT_SIZE_KEY: 50_000})
async def announced(count: int) -> str:
    """Announce the size of its results."""
    return lines(count)


TEXTS = [now, threaded, with_context, fail, slow]
ALL = [*TEXTS, rows, undeclared, hidden_data, media, generous, announced]


@KINDS
@SERVERS
def test_a_result_over_the_limit_has_head_and_tail_and_a_link_to_the_whole(kind: type[Modern], protocol: str) -> None:
    with served(*ALL, kind=kind, protocol=protocol) as (_, make):
        peer = make()
        for each in TEXTS:
            name = each.__name__
            short, long = result(peer, name, count=3), result(peer, name, count=300)
            assert (text_of(short), links(short)) == (lines(3), [])
            (link,) = links(long)
            shown = text_of(long)
            assert shown.startswith("line 0 of the log\n"), name
            assert shown.endswith("line 299 of the log")
            assert f"{len(lines(300)):,} characters" in shown
            assert link["uri"] in shown
            assert len(shown) < 600
            assert (link["size"], link["mimeType"]) == (len(lines(300)), "text/plain")
            assert long["isError"] is (each is fail)
            assert contents(peer, link["uri"]) == {
                "uri": link["uri"], "mimeType": "text/plain", "text": lines(300)
            }  # fmt: skip


def test_a_result_at_the_limit_is_whole() -> None:
    @tool
    async def say(count: int) -> str:
        return "x" * count

    with served(say) as (_, make):
        peer = make()
        assert not links(result(peer, "say", count=LIMIT))
        assert links(result(peer, "say", count=LIMIT + 1))


def test_escapes_and_the_copy_in_structured_content_do_not_count() -> None:
    @tool(run_in_thread=False)
    def quotes(count: int) -> str:
        return '"' * count

    with served(quotes, rows) as (_, make):
        peer = make()
        assert text_of(result(peer, "quotes", count=LIMIT)) == '"' * LIMIT  # twice as long in JSON
        listed = result(peer, "rows", count=90)
        assert 500 < len(text_of(listed)) <= LIMIT
        assert not links(listed)


@KINDS
def test_declared_structured_content_stays_whole_and_fits_its_schema(kind: type[Modern]) -> None:
    with served(*ALL, kind=kind) as (_, make):
        peer = make()
        long = result(peer, "rows", count=500)
        listed = {each["name"]: each for each in peer.ask(http.request("tools/list"))["result"]["tools"]}
    jsonschema.validate(long["structuredContent"], listed["rows"]["outputSchema"])
    assert len(long["structuredContent"]["result"]) == 500
    assert "a JSON array of 500 items" in text_of(long)
    assert links(long)[0]["mimeType"] == "application/json"


def test_structured_content_that_nothing_declares_is_left_out_of_a_result_that_is_kept() -> None:
    with served(*ALL) as (_, make):
        peer = make()
        assert result(peer, "undeclared", count=2)["structuredContent"] == {"rows": [{"id": 0}, {"id": 1}]}
        long, data = result(peer, "undeclared", count=500), result(peer, "hidden_data", count=LIMIT)
        assert "structuredContent" not in long
        assert "a JSON object with 1 members: rows" in text_of(long)
        assert "structuredContent" not in data
        assert json.loads(contents(peer, links(data)[0]["uri"])["text"]) == {"text": "x" * LIMIT}


def test_schemas_that_are_dropped_are_neither_listed_nor_sent_with_a_result_that_is_kept() -> None:
    with served(*ALL, drop_schemas=True) as (_, make):
        peer = make()
        (listed,) = (each for each in peer.ask(http.request("tools/list"))["result"]["tools"] if each["name"] == "rows")
        assert "outputSchema" not in listed
        assert "structuredContent" in result(peer, "rows", count=2)
        long = result(peer, "rows", count=500)
        assert "structuredContent" not in long
        assert len(json.loads(contents(peer, links(long)[0]["uri"])["text"])) == 500


def test_images_and_files_count_and_are_links_over_the_limit() -> None:
    with served(*ALL) as (_, make):
        peer = make()
        small = result(peer, "media", count=50)
        assert [block["type"] for block in small["content"]] == ["text", "image", "resource"]
        large = result(peer, "media", count=900)
        assert [block["type"] for block in large["content"]] == ["text", "resource_link", "resource_link"]
        assert text_of(large) == "a chart"
        image, file = (contents(peer, link["uri"]) for link in links(large))
        assert (image["mimeType"], len(image["blob"])) == ("image/png", 1200)
        assert (file["mimeType"], file["text"]) == ("text/csv", "1,2\n" * 900)
        shown = result(peer, "read_result", uri=links(large)[0]["uri"])
        assert shown["content"][0]["mimeType"] == "image/png"


def test_limits_of_tools_precede_and_are_announced() -> None:
    with served(*ALL) as (_, make):
        peer = make()
        for name in ("generous", "announced"):
            assert not links(result(peer, name, count=1000))
        assert links(result(peer, "announced", count=5000))
        listed = {
            each["name"]: each.get("_meta", {}) for each in peer.ask(http.request("tools/list"))["result"]["tools"]
        }
    sizes = {name: meta.get(MAX_RESULT_SIZE_KEY) for name, meta in listed.items()}
    assert (sizes["now"], sizes["generous"], sizes["announced"]) == (LIMIT, 100_000, 50_000)
    assert sizes["read_result"] is None


def test_a_tool_with_a_limit_needs_no_option_of_its_server() -> None:
    @tool(spill_chars=50)
    async def log(count: int) -> str:
        return lines(count)

    server = Server([log, now], name="tests")
    with http.serving(http_app(server)) as origin, httpx.Client() as client:
        peer = Modern(client, origin, {})
        assert links(result(peer, "log", count=10))
        assert text_of(result(peer, "now", count=3000)) == lines(3000)


def test_without_a_limit_a_server_has_no_further_tool_and_no_resources() -> None:
    server = Server([now], name="tests")
    assert server.kept is None
    with http.serving(http_app(server)) as origin, httpx.Client() as client:
        peer = Modern(client, origin, {})
        (listed,) = peer.ask(http.request("tools/list"))["result"]["tools"]
        assert "_meta" not in listed
        assert "resources" not in peer.ask(http.request("server/discover"))["result"]["capabilities"]
        assert text_of(result(peer, "now", count=3000)) == lines(3000)


def test_measuring_changes_nothing_and_counts() -> None:
    with served(now, rows, mode="measure") as (server, make):
        peer = make()
        for each in (3, 300):
            assert text_of(result(peer, "now", count=each)) == lines(each)
        assert [each["name"] for each in peer.ask(http.request("tools/list"))["result"]["tools"]] == ["now", "rows"]
        assert server.kept is not None
        usage = server.kept.spill.usage.by_tool()["now"]
    assert (usage["results"], usage["kept"]) == (2, 1)
    assert usage["estimatedTokens"] == pytest.approx((len(lines(3)) + len(lines(300))) / 4, rel=0.05)
    assert usage["estimatedTokensSaved"] == pytest.approx((len(lines(300)) - 450) / 4, rel=0.05)


def test_a_result_that_cannot_be_kept_is_shortened_and_says_so() -> None:
    with served(*ALL, max_bytes=2_000) as (_, make):
        long = result(make(), "now", count=300)
    assert not links(long)
    assert "they could not be kept: ask for less" in text_of(long)


def test_text_that_cannot_be_written_is_the_same_error_as_without_a_limit() -> None:
    @tool
    async def halves() -> ToolExecutionResult:
        return ToolExecutionResult((Text("\ud800" * 2 * LIMIT),))

    with served(halves) as (_, make):
        failed = result(make(), "halves")
    assert (failed["isError"], text_of(failed)) == (True, "the tool 'halves' failed; its server's log says why")


def test_the_result_of_a_task_is_kept() -> None:
    policy = ExecutionPolicy(spill=Spill(chars=LIMIT))
    app = http_app(Server([slow], name="tests", policy=policy))
    with http.serving(app) as origin, TaskClient(origin) as client:
        done = client.settled(client.created("slow", count=1000))
        (link,) = links(done["result"])
        (found,) = client.send("resources/read", {"uri": link["uri"]})["contents"]
    assert found["text"] == lines(1000)


def test_metrics_have_tokens_of_definitions_and_results_and_those_that_were_saved() -> None:
    measured = Measured()
    with enabled(Observer(measured.instruments)), served(now, threaded) as (server, make):
        peer = make()
        for name in ("now", "threaded", "threaded"):
            result(peer, name, count=300)
        definitions = sum(tool.specification.estimated_tokens for tool in server.catalog.current().items.values())
        assert measured.values(DEFINITION_TOKENS) == {"": definitions}
        read = measured.values(RESULT_TOKENS, "gen_ai.tool.name")
        saved = measured.values(SAVED_TOKENS, "gen_ai.tool.name")
    assert read.keys() == saved.keys() == {"now", "threaded"}
    assert 100 < read["now"] < 400
    assert read["threaded"] == pytest.approx(2 * read["now"], rel=0.05)
    assert 1_000 < saved["now"] < len(lines(300)) / 4
    assert saved["threaded"] == 2 * saved["now"]


def test_a_limit_that_comes_too_late_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    @tool(spill_chars=100)
    def late() -> str:
        """Come late."""
        return ""

    tools = ToolBox(ADD)
    server = Server(tools, name="tests")
    tools.add(late)
    tools.remove("add")
    assert server.kept is None
    assert [record.getMessage()[:50] for record in caplog.records] == [
        "the limit of the results of 'late' does not apply:"
    ]
