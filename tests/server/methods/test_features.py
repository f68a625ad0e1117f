"""Resources, prompts and completions, in both eras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import anyio
import httpx
import pytest
from mcp import Client, MCPError
from mcp_types import (
    ElicitResult,
    PromptListChangedNotification,
    PromptReference,
    ResourceListChangedNotification,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
)

from bridge import (
    DefinitionError,
    InvocationContext,
    PromptMessage,
    ResourceBox,
    ToolBox,
    ToolError,
    prompt,
    resource,
    tool,
)
from bridge.prompts import PromptBox
from bridge.server import Features, Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.limits import Limits, Rate
from bridge.server.lists.resources import MAX_WATCHED
from tests.server import http_server as http
from tests.server.memory import memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.client import IncomingMessage

pytestmark = pytest.mark.anyio
DEADLINE_SECONDS = 60
ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@resource("notes://today", mime_type="text/markdown")
def today() -> str:
    """Notes of today."""
    return "# Today"


@resource("notes://{name}/{number}")
async def note(name: str, number: int) -> dict[str, Any] | None:
    """A note."""
    if name == "refused":
        raise ToolError("not this one")
    if name == "broken":
        raise ValueError("a secret")
    return None if number == 0 else {"name": name, "number": number}


@resource("picture://red")
def red() -> bytes:
    """A picture."""
    return b"\x89"


@resource("asking://{what}")
async def asking(what: str, context: InvocationContext) -> str:
    """Ask before reading."""
    await context.progress(1, 2, "asking")
    answer = await context.elicit("Sure?", {"type": "object", "properties": {}})
    return f"{what}: {answer.action}"


@prompt(title="Review")
async def review(code: str, language: Literal["python", "go"] = "python") -> list[str | PromptMessage]:
    """Review code."""
    return [f"Review this {language}: {code}", PromptMessage("Certainly.", "assistant")]


@prompt
def broken() -> str:
    """Fail."""
    raise ValueError("a secret")


EVERYTHING = (add, today, note, red, asking, review, broken)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http.serving(http_app(EVERYTHING)) as origin:
        yield f"{origin}/mcp"


async def error_of(request: Any) -> tuple[int, str, Any]:
    with pytest.raises(MCPError) as caught:
        await request
    return caught.value.error.code, caught.value.error.message, caught.value.error.data


@ERAS
async def test_everything_is_listed_read_and_rendered(url: str, era: Any) -> None:
    async with Client(url, mode=era) as client:
        if era == "legacy":
            assert client.server_capabilities is not None
            declared = client.server_capabilities.model_dump(exclude_none=True)
            assert {name: declared[name] for name in ("resources", "prompts", "completions")} == {
                "resources": {"subscribe": True, "list_changed": True},
                "prompts": {"list_changed": True},
                "completions": {},
            }
        assert [each.uri for each in (await client.list_resources()).resources] == ["notes://today", "picture://red"]
        (templates, _) = (await client.list_resource_templates()).resource_templates
        assert (templates.uri_template, templates.description) == ("notes://{name}/{number}", "A note.")
        first, _ = (await client.list_prompts()).prompts
        assert first.arguments is not None
        assert [(each.name, each.required) for each in first.arguments] == [("code", True), ("language", False)]
        read = [
            (await client.read_resource(uri)).contents[0] for uri in ("notes://today", "notes://a/5", "picture://red")
        ]
        assert [each.model_dump(exclude_none=True) for each in read] == [
            {"uri": "notes://today", "mime_type": "text/markdown", "text": "# Today"},
            {"uri": "notes://a/5", "mime_type": "application/json", "text": '{"name":"a","number":5}'},
            {"uri": "picture://red", "mime_type": "application/octet-stream", "blob": "iQ=="},
        ]
        rendered = await client.get_prompt("review", {"code": "x"})
        assert [(each.role, getattr(each.content, "text", None)) for each in rendered.messages] == [
            ("user", "Review this python: x"),
            ("assistant", "Certainly."),
        ]
        of_prompt, of_resource = (
            PromptReference(type="ref/prompt", name="review"),
            ResourceTemplateReference(type="ref/resource", uri="notes://{name}/{number}"),
        )
        values = (await client.complete(of_prompt, {"name": "language", "value": "p"})).completion.values
        assert values == ["python"]
        assert (await client.complete(of_resource, {"name": "name", "value": ""})).completion.values == []


@ERAS
async def test_failures_say_what_is_wrong_and_no_secrets(url: str, era: Any) -> None:
    not_found = -32602 if era == "2026-07-28" else -32002
    async with Client(url, mode=era) as client:
        for uri in ("nope://a", "notes://a/0"):
            assert await error_of(client.read_resource(uri)) == (
                not_found,
                f"there is no resource {uri!r}",
                {"uri": uri},
            )
        code, message, data = await error_of(client.read_resource("notes://a/b"))
        assert (code, data) == (-32602, None)  # with the URI, it would be one that does not exist
        assert "number: should be a valid integer" in message
        assert (await error_of(client.read_resource("notes://refused/1")))[:2] == (-32603, "not this one")
        for request in (client.read_resource("notes://broken/1"), client.get_prompt("broken")):
            code, message, _ = await error_of(request)
            assert code == -32603
            assert "secret" not in message
            assert "log says why" in message
        assert (await error_of(client.get_prompt("nope")))[:2] == (-32602, "there is no prompt 'nope'")
        code, message, _ = await error_of(client.get_prompt("review", {}))
        assert (code, message) == (-32602, "invalid arguments for the prompt 'review': code: is required")


@ERAS
async def test_a_read_may_report_and_ask(url: str, era: Any) -> None:
    async def answer(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with Client(url, mode=era, elicitation_callback=answer) as client:
        (content,) = (await client.read_resource("asking://this")).contents
        assert getattr(content, "text", None) == "this: decline"


async def test_a_key_sees_what_its_names_allow_and_scopes_are_needed() -> None:
    auth = Auth(
        ApiKeys(
            ApiKey("part", "part-part-part-part-part", tools=("add", "today", "note")),
            ApiKey("all", "all-all-all-all-all-all", scopes=frozenset()),
        ),
        tool_scopes={"today": {"read"}, "review": {"read"}},
    )
    with http.serving(http_app(EVERYTHING, auth=auth)) as origin, httpx.Client(timeout=20) as client:

        def sent(key: str, method: str, **params: Any) -> httpx.Response:
            message = http.modern(http.request(method, params))
            headers = http.modern_headers(message) | {"Authorization": f"Bearer {key}"}
            return client.post(f"{origin}/mcp", json=message, headers=headers)

        part, everything = "part-part-part-part-part", "all-all-all-all-all-all"
        assert [each["name"] for each in http.answer(sent(part, "resources/list"))["result"]["resources"]] == ["today"]
        assert http.answer(sent(part, "prompts/list"))["result"]["prompts"] == []
        assert http.answer(sent(part, "resources/read", uri="picture://red"))["error"]["code"] == -32602
        assert http.answer(sent(part, "resources/read", uri="notes://a/1"))["result"]["contents"]
        assert http.answer(sent(everything, "resources/read", uri="picture://red"))["result"]["contents"]
        for refused in (
            sent(everything, "resources/read", uri="notes://today"),
            sent(everything, "prompts/get", name="review"),
        ):
            assert refused.status_code == 403
            assert 'scope="read"' in refused.headers["www-authenticate"]


async def test_limits_hold_for_reads_and_prompts() -> None:
    limits = Limits(tool_rates={"today": Rate(1, 1000), "review": Rate(1, 1000)})
    async with Client(memory(Server(EVERYTHING, name="tests", limits=limits))) as client:
        await client.read_resource("notes://today")
        await client.get_prompt("review", {"code": "x"})
        for request in (client.read_resource("notes://today"), client.get_prompt("review", {"code": "x"})):
            code, message, _ = await error_of(request)
            assert code == -32005
            assert "again in" in message


@ERAS
@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
async def test_changes_are_notified(era: Any) -> None:
    resources, prompts, heard = ResourceBox(today), PromptBox(review), anyio.Event()
    seen: set[Any] = set()
    wanted = {ResourceListChangedNotification, PromptListChangedNotification, "notes://today"}

    async def listen(message: IncomingMessage) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            seen.add(str(message.params.uri))
        else:
            seen.add(type(message))
        if wanted <= seen:
            heard.set()

    async with Client(
        memory(Server(Features(resources=resources, prompts=prompts), name="tests")),
        mode=era,
        message_handler=listen,
    ) as client:
        if era == "legacy":
            await client.subscribe_resource("notes://today")
            resources.updated("notes://yesterday")
            resources.updated("notes://today")
            resources.add(red)
            prompts.add(broken)
            with anyio.fail_after(DEADLINE_SECONDS):
                await heard.wait()
            assert "notes://yesterday" not in seen
            await client.unsubscribe_resource("notes://today")
            assert (await error_of(client.subscribe_resource("notes://nope")))[0] == -32002
            assert MAX_WATCHED == 1000
            return
        async with client.listen(
            resource_subscriptions=["notes://today"], resources_list_changed=True, prompts_list_changed=True
        ) as events:
            resources.updated("notes://yesterday")
            resources.updated("notes://today")
            resources.add(red)
            prompts.add(broken)
            kinds = set()
            with anyio.fail_after(DEADLINE_SECONDS):
                async for event in events:
                    kinds.add(getattr(event, "uri", type(event).__name__))
                    if len(kinds) == 3:
                        break
            assert kinds == {"notes://today", "ResourcesListChanged", "PromptsListChanged"}


async def test_a_server_without_them_says_so() -> None:
    async with Client(memory(Server(add, name="tests")), mode="legacy") as client:
        for request in (
            client.list_resources(),
            client.list_prompts(),
            client.read_resource("a:b"),
            client.get_prompt("a"),
        ):
            assert (await error_of(request))[0] == -32601
    with pytest.raises(DefinitionError, match="there are no tools, resources or prompts in"):
        Server([], name="tests")


async def test_a_combined_box_follows_its_sources(caplog: pytest.LogCaptureFixture) -> None:
    resources, prompts, more = ResourceBox(today), PromptBox(review), ToolBox()
    features = Features.of([resources, note], prompts, PromptBox(), more, add)
    updated, changes = list[str](), list[None]()
    assert features.resources is not None
    assert features.prompts is not None
    features.resources.on_update(updated.append)
    features.on_change(lambda: changes.append(None))
    resources.updated("notes://today")
    resources.add(red)
    assert features.names == ["add", "today", "red", "note", "review"]
    features.resources.add(asking)
    resources.replace([])
    more.add(tool(name="sub")(lambda: None))
    prompts.add(broken)
    assert features.names == ["sub", "add", "note", "asking", "review", "broken"]
    more.add(add)
    assert features.names[:2] == ["sub", "add"]
    assert "cannot be combined" in caplog.text
    more.remove("add")
    more.remove("sub")
    assert (features.names[0], updated, len(changes)) == ("add", ["notes://today"], 6)
