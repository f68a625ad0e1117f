"""The official SDK's own client calls served tools: the results are the same over every transport and in both eras.

Every test runs once for each route of `tests.interop.counterpart.ROUTES`.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import pytest
from mcp import MCPError
from mcp_types import INVALID_PARAMS, TextContent

from tests.interop.conftest import PAGE_SIZE
from tests.interop.counterpart import DEADLINE_SECONDS, MODERN, connected
from tests.interop.tools import TOOLS

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from tests.interop.counterpart import Counterpart, Route

NAMES = [tool.name for tool in TOOLS]

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def call(counterpart: Counterpart, name: str, /, **arguments: Any) -> CallToolResult:
    result = await counterpart.client.call_tool(name, arguments)
    assert not result.is_error, result
    return result


# --- opening and listing ---------------------------------------------------------------------------------------------


async def test_the_era_is_the_newest_that_the_route_allows(counterpart: Counterpart, route: Route) -> None:
    assert (counterpart.client.protocol_version == MODERN) is route.is_modern


async def test_the_list_has_every_tool_in_order(counterpart: Counterpart) -> None:
    listed = await counterpart.client.list_tools(cache_mode="refresh")
    assert ([tool.name for tool in listed.tools if tool.name != "guest"], listed.next_cursor) == (NAMES, None)


async def test_a_list_in_pages_has_every_tool_once(route: Route, paging_origin: str) -> None:
    async with connected(route, paging_origin, "--page-size", str(PAGE_SIZE)) as counterpart:
        sizes: list[int] = []
        names: list[str] = []
        cursor: str | None = None
        while not sizes or cursor:
            page = await counterpart.client.list_tools(cursor=cursor)
            sizes.append(len(page.tools))
            names += [tool.name for tool in page.tools]
            cursor = page.next_cursor
    assert names == NAMES
    assert sizes[:-1] == [PAGE_SIZE] * (math.ceil(len(NAMES) / PAGE_SIZE) - 1)


async def test_a_tool_is_listed_with_all_that_its_author_said(counterpart: Counterpart) -> None:
    listed = await counterpart.client.list_tools()
    echo = next(tool for tool in listed.tools if tool.name == "echo")
    assert echo.model_dump(by_alias=True, exclude_none=True) == {
        "name": "echo",
        "title": "Echo",
        "description": "Echoes text.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "What to say."}},
            "required": ["text"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
        "icons": [{"src": "https://example.org/echo.png", "mimeType": "image/png"}],
        "_meta": {"team": "interop"},
    }


async def test_a_cursor_that_nobody_gave_out_is_invalid(counterpart: Counterpart) -> None:
    with pytest.raises(MCPError) as caught:
        await counterpart.client.list_tools(cursor="not a cursor")
    assert caught.value.code == INVALID_PARAMS


async def test_a_ping_is_answered_where_the_era_has_pings(counterpart: Counterpart, route: Route) -> None:
    if route.is_modern:
        with pytest.raises(MCPError, match="not found"):
            await counterpart.client.send_ping()
    else:
        assert (await counterpart.client.send_ping()).model_dump(exclude_none=True) == {}


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "text", "structured"),
    [
        ("echo", {"text": "hello"}, "hello", None),
        ("add", {"a": 2, "b": 3}, "5", {"result": 5}),
        ("add", {"a": 2}, "3", {"result": 3}),
        ("add", {"a": 10**30}, str(10**30 + 1), {"result": 10**30 + 1}),
        ("mirror", {"point": {"x": 1.5, "y": -2}}, '{"x":-1.5,"y":2.0}', {"x": -1.5, "y": 2.0}),
        ("letters", {"word": "né"}, '["n","é"]', {"result": ["n", "é"]}),
        ("nothing", {}, "Success", None),
    ],
)
async def test_a_result_is_read_as_text_and_as_structured_content(
    counterpart: Counterpart, name: str, arguments: dict[str, Any], text: str, structured: Any
) -> None:
    result = await call(counterpart, name, **arguments)
    assert (text_of(result), result.structured_content) == (text, structured)


async def test_every_kind_of_content_arrives(counterpart: Counterpart) -> None:
    result = await call(counterpart, "every_kind")
    assert [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content] == [
        {"type": "text", "text": "text", "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AP8="}, "_meta": {"kept": True}},
        {"type": "resource_link", "uri": "file:///b.txt", "name": "b", "description": "elsewhere", "size": 3},
    ]


async def test_metadata_of_a_result_arrives(counterpart: Counterpart) -> None:
    assert ((await call(counterpart, "with_metadata")).meta or {}).get("example.org/cost") == 3


async def test_the_words_of_a_tool_error_arrive(counterpart: Counterpart) -> None:
    result = await counterpart.client.call_tool("fail")
    assert (result.is_error, text_of(result)) == (True, "no bananas today; ask for apples")


async def test_the_words_of_any_other_exception_stay_behind(counterpart: Counterpart) -> None:
    result = await counterpart.client.call_tool("crash")
    assert result.is_error
    assert "crash" in text_of(result)
    assert "hunter2" not in result.model_dump_json()


async def test_all_arguments_that_do_not_fit_are_named_in_an_error_result(counterpart: Counterpart) -> None:
    result = await counterpart.client.call_tool("add", {"a": "many", "b": [1]})
    assert result.is_error
    assert all(part in text_of(result) for part in ("a: ", '"many"', "b: ", "[1]"))


async def test_a_missing_argument_is_named_in_an_error_result(counterpart: Counterpart) -> None:
    result = await counterpart.client.call_tool("echo")
    assert result.is_error
    assert "text" in text_of(result)


async def test_an_unknown_tool_is_an_error_of_the_protocol(counterpart: Counterpart) -> None:
    with pytest.raises(MCPError, match="'ecko'") as caught:
        await counterpart.client.call_tool("ecko", {})
    assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    "text",
    [
        "grüße, 世界, 🦜, e\u0301, עברית",
        "lines\nof\r\nevery\rkind\u2028and\u2029more\x85and\x0bmore\x0c",
        "\x00\x1f\x7f\ufeff\ufffe",
        "data: x\n\nevent: message\n\n",
        '"\\u0000" </script>',
        "",
    ],
)
async def test_any_text_comes_back_as_it_went(counterpart: Counterpart, text: str) -> None:
    assert text_of(await call(counterpart, "echo", text=text)) == text


async def test_a_big_text_comes_back_whole(counterpart: Counterpart) -> None:
    text = "0123456789abcdé\n" * 2**15  # the client accepts no event over a mebibyte
    assert text_of(await call(counterpart, "echo", text=text)) == text


@pytest.mark.parametrize("region", ["eu-west", "Zürich", "  spaced  ", "=?base64?SGk=?="])
async def test_an_argument_that_travels_in_a_header_too_arrives(counterpart: Counterpart, region: str) -> None:
    await counterpart.client.list_tools()
    assert text_of(await call(counterpart, "located", region=region)) == region


# --- while it runs ---------------------------------------------------------------------------------------------------


async def progress_of(counterpart: Counterpart, name: str, count: int) -> list[tuple[float, float | None, str | None]]:
    """Return the progress of a call, which may arrive after the result."""
    send, receive = anyio.create_memory_object_stream[tuple[float, float | None, str | None]](math.inf)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        await send.send((progress, total, message))

    with send, receive, anyio.fail_after(DEADLINE_SECONDS):
        await counterpart.client.call_tool(name, progress_callback=on_progress)
        return [await receive.receive() for _ in range(count)]


async def test_progress_arrives_in_order(counterpart: Counterpart) -> None:
    assert await progress_of(counterpart, "steps", 3) == [(1, 3, "one"), (2, 3, None), (3, None, None)]


async def test_progress_from_a_thread_arrives(counterpart: Counterpart) -> None:
    assert await progress_of(counterpart, "steps_in_a_thread", 1) == [(1, 1, "from a thread")]


async def test_progress_that_nobody_asked_for_is_dropped(counterpart: Counterpart) -> None:
    assert text_of(await call(counterpart, "steps")) == "done"


async def test_messages_of_the_wanted_severity_are_logged_to_the_client(counterpart: Counterpart, route: Route) -> None:
    if not route.is_modern:  # there each request has the level
        await counterpart.client.set_logging_level("info")
    await call(counterpart, "chatter")
    with anyio.fail_after(DEADLINE_SECONDS):
        await counterpart.was_told.wait()
    logged = counterpart.logged[0]
    assert (logged.level, logged.logger, logged.data) == ("warning", "storage", {"disk": "full"})


async def test_a_call_that_the_client_gives_up_ends_at_the_server(counterpart: Counterpart) -> None:
    name, waiting = uuid4().hex, anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        waiting.set()

    async def wait() -> None:
        await counterpart.client.call_tool("wait", {"name": name}, progress_callback=on_progress)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        with anyio.fail_after(DEADLINE_SECONDS):
            await waiting.wait()
        tasks.cancel_scope.cancel()
    assert text_of(await call(counterpart, "end_of_wait", name=name)) == f"{name} has ended"


@pytest.mark.parametrize(("name", "arguments"), [("meet", {"people": 3}), ("meet_in_threads", {})])
async def test_calls_run_at_the_same_time(counterpart: Counterpart, name: str, arguments: dict[str, Any]) -> None:
    async with anyio.create_task_group() as tasks:
        place = uuid4().hex
        for _ in range(3):  # each waits for the other two
            tasks.start_soon(lambda: call(counterpart, name, place=place, **arguments))


async def test_answers_find_their_own_calls(counterpart: Counterpart) -> None:
    answers: dict[int, str] = {}

    async def add(number: int) -> None:
        answers[number] = text_of(await call(counterpart, "add", a=number, b=number))

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(add, number)
    assert answers == {number: str(2 * number) for number in range(40)}


# --- questions -------------------------------------------------------------------------------------------------------


async def test_a_form_is_filled_in_by_the_person(counterpart: Counterpart) -> None:
    result = await call(counterpart, "order")
    assert json.loads(text_of(result)) == {"action": "accept", "content": {"dish": "soup", "portions": 2}}
    assert counterpart.asked == ["elicitation: What would you like?"]


async def test_a_form_may_be_declined(counterpart: Counterpart) -> None:
    counterpart.answers_with = "decline"
    assert json.loads(text_of(await call(counterpart, "order"))) == {"action": "decline", "content": None}


async def test_the_clients_model_is_asked(counterpart: Counterpart) -> None:
    assert text_of(await call(counterpart, "think", question="Why?")) == "deep: 42"
    assert counterpart.asked == ["sampling: Why? 50 Be brief."]


async def test_the_clients_folders_are_asked_for(counterpart: Counterpart) -> None:
    result = await call(counterpart, "folders")
    assert result.structured_content == {"result": ["file:///home/ada", "file:///tmp"]}


async def test_several_questions_are_asked_once_each(counterpart: Counterpart) -> None:
    result = await call(counterpart, "interview")
    assert json.loads(text_of(result)) == {"first": "accept", "rest": ["model", "roots"]}
    assert sorted(counterpart.asked) == [
        "elicitation: What would you like?",
        "roots",
        "sampling: Is that wise? 10 None",
    ]


async def test_a_question_gets_through_a_broad_except(counterpart: Counterpart) -> None:
    assert text_of(await call(counterpart, "ask_in_a_broad_try")) == "order"


# --- a list that changes ---------------------------------------------------------------------------------------------


async def test_a_change_of_the_list_reaches_the_client(counterpart: Counterpart, route: Route) -> None:
    if route.is_modern:
        async with counterpart.client.listen(tools_list_changed=True) as changes:
            is_here = (await call(counterpart, "change_the_list")).structured_content
            with anyio.fail_after(DEADLINE_SECONDS):
                await anext(changes)
    else:
        # A client's stream for notifications opens after its handshake, and earlier changes are not announced.
        with anyio.fail_after(DEADLINE_SECONDS):
            while not counterpart.list_changed.is_set():
                is_here = (await call(counterpart, "change_the_list")).structured_content
    listed = await counterpart.client.list_tools(cache_mode="refresh")
    assert is_here == {"result": "guest" in [tool.name for tool in listed.tools]}
