from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

from bridge import (
    DefinitionError,
    File,
    Image,
    InvocationContext,
    NameClashError,
    ResourceBox,
    ResourceLink,
    ToolExecutionRequest,
    ToolExecutionResult,
    resource,
)
from bridge.errors import ArgumentsError, ResourceNotFoundError, ResultError
from bridge.resources import Resource, ResourceTemplate

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


@dataclass
class Place:
    """A place."""

    x: int


async def read(function: Callable[..., Any], uri: str) -> list[tuple[str, str | bytes, str | None]]:
    found = ResourceBox(function).find(uri)
    assert found is not None
    result = await found.tool.executor.execute(
        ToolExecutionRequest(found.tool.name, found.arguments), InvocationContext()
    )
    return [(each.uri, each.content, each.mime_type) for each in result.content if isinstance(each, File)]


@pytest.mark.parametrize(
    ("value", "mime_type", "contents"),
    [
        ("é", None, [("x:a", "é", "text/plain")]),
        ("# T", "text/markdown", [("x:a", "# T", "text/markdown")]),
        (b"\0", None, [("x:a", b"\0", "application/octet-stream")]),
        (b"\x89", "image/png", [("x:a", b"\x89", "image/png")]),
        ({"a": [1]}, None, [("x:a", '{"a":[1]}', "application/json")]),
        ([1, "two"], None, [("x:a", '[1,"two"]', "application/json")]),
        (Place(1), "application/x-place", [("x:a", '{"x":1}', "application/x-place")]),
        (File("x:b", "b"), "text/x-b", [("x:b", "b", "text/x-b")]),
        (Image(b"\x89"), None, [("x:a", b"\x89", "image/png")]),
        (
            [File("x:b", "b", "text/b"), b"\0"],
            None,
            [("x:b", "b", "text/b"), ("x:a", b"\0", "application/octet-stream")],
        ),
    ],
)
async def test_what_a_function_returns_is_the_content(value: Any, mime_type: str | None, contents: Any) -> None:
    @resource("x:a", mime_type=mime_type)
    def function() -> Any:
        return value

    assert await read(function, "x:a") == contents


async def test_variables_are_typed_like_arguments_of_tools() -> None:
    @resource("x:{name}/{number}{?lang}")
    async def function(
        number: int, name: str, context: InvocationContext, lang: Literal["de", "en"] = "en", more: int = 3
    ) -> list[Any]:
        assert context.invocation_id
        return [name, number, lang, more]

    assert (await read(function, "x:a/5"))[0][1] == '["a",5,"en",3]'
    assert (await read(function, "x:a/5?lang=de"))[0][1] == '["a",5,"de",3]'
    with pytest.raises(ArgumentsError, match="number"):
        await read(function, "x:a/b")
    with pytest.raises(ArgumentsError, match="lang"):
        await read(function, "x:a/5?lang=fr")


async def test_none_and_an_error_say_that_there_is_no_such_resource() -> None:
    @resource("x:{name}")
    def function(name: str) -> str | None:
        if name == "raises":
            raise ResourceNotFoundError(name)
        return None

    for uri in ("x:a", "x:raises"):
        with pytest.raises(ResourceNotFoundError):
            await read(function, uri)


@pytest.mark.parametrize("value", [object(), ResourceLink("x:b", "b"), ToolExecutionResult.of_text("x")], ids=type)
async def test_a_value_that_cannot_be_sent_is_an_error(value: object) -> None:
    @resource("x:a")
    def function() -> Any:
        return value

    with pytest.raises(ResultError, match=r"^the resource 'function' returned"):
        await read(function, "x:a")


def test_a_description_has_defaults_and_settings() -> None:
    @resource("x:a")
    def first() -> str:
        """First.

        More.

        Returns:
            Text.
        """
        return ""

    @resource(
        "x:{b}",
        name="second",
        title="T",
        description="D",
        mime_type="text/x",
        annotations={"priority": 1},
        icons=[{"src": "https://example.org"}],
        metadata={"k": 1},
        timeout_seconds=5,
    )
    def other(b: str) -> str:
        """Unused."""
        return b

    one, two = ResourceBox(first, other)
    assert isinstance(one, Resource)
    assert (one.name, one.description, one.mime_type, one.size, one.interactive) == (
        "first",
        "First.\n\nMore.",
        None,
        None,
        False,
    )
    assert isinstance(two, ResourceTemplate)
    assert (two.name, two.title, two.description, two.mime_type) == ("second", "T", "D", "text/x")
    assert (two.annotations, two.icons, two.metadata) == ({"priority": 1}, ({"src": "https://example.org"},), {"k": 1})
    assert two.policy.timeout_seconds == 5


def refused(decorator: Callable[[Any], Any], function: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        ResourceBox(decorator(function))
    return str(caught.value)


def test_what_cannot_work_is_refused_when_it_is_registered() -> None:
    def one(name: str) -> str:
        return name

    def defaulted(name: str = "a") -> str:
        return name

    def nothing() -> str:
        return ""

    def two(a: str, name: str) -> str:
        return a + name

    assert "write {name} into the URI" in refused(resource("x:a"), one)
    assert "no parameter 'other'" in refused(resource("x:{other}"), defaulted)
    assert "no parameter 'lang'" in refused(resource("x:{?lang}"), one)
    assert "write {name} into the URI, or give the parameter a default" in refused(resource("x:{a}"), two)
    assert "control characters" in refused(resource("x:a", name="\ud800"), nothing)
    assert "control characters" in refused(resource("x:\n"), nothing)
    assert "needs a default, because a URI may leave out its query" in refused(resource("x:a{?name}"), one)
    assert "has a size" in refused(resource("x:{name}", size=5), one)
    assert "at least 0" in refused(resource("x:a", size=-1), nothing)
    assert "a scheme" in refused(resource("today"), nothing)
    assert "has completions" in refused(resource("x:a", completions={"a": ["b"]}), nothing)
    assert "not one of its parameters" in refused(resource("x:{name}", completions={"nam": ["b"]}), one)
    assert "cannot be a resource" in refused(resource("x:a"), Place)
    with pytest.raises(DefinitionError, match="the URI of a resource must be text"):
        resource(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("x://a/b", "anything"),
        ("x://logs/b", "log"),
        ("x://logs/b/last", "last_line"),
        ("x://logs/b?kind=new", "log"),
        ("y://1/2", "first"),
    ],
)
def test_the_template_with_the_longest_text_reads_a_uri_or_else_the_first(uri: str, name: str) -> None:
    @resource("x://{+path}")
    def anything(path: str) -> str:
        return path

    @resource("x://logs/{name}{?kind}")
    def log(name: str, kind: str = "") -> str:
        return name + kind

    @resource("x://logs/{name}/last")
    def last_line(name: str) -> str:
        return name

    @resource("y://{one}/{two}")
    def first(one: str, two: str) -> str:
        return one + two

    @resource("y:/{+path}/2")
    def as_long(path: str) -> str:
        return path

    for box in (
        ResourceBox(anything, log, last_line, first, as_long),
        ResourceBox(last_line, log, anything, first, as_long),
    ):
        found = box.find(uri)
        assert found is not None
        assert found.resource.name == name


def test_a_box_finds_what_reads_a_uri_and_refuses_clashes() -> None:
    @resource("x:a")
    def exact() -> str:
        return ""

    @resource("x:{name}")
    def any_name(name: str) -> str:
        return name

    box = ResourceBox(any_name, exact)
    assert [each.name for each in box.resources] == ["exact"]
    assert [each.name for each in box.templates] == ["any_name"]
    assert {uri: found and found.resource.name for uri in ("x:a", "x:b", "y:a") for found in [box.find(uri)]} == {
        "x:a": "exact",
        "x:b": "any_name",
        "y:a": None,
    }
    changed: list[str] = []
    end = box.on_update(changed.append)
    box.updated("x:a")
    end()
    box.updated("x:b")
    assert changed == ["x:a"]
    with pytest.raises(NameClashError, match=re.escape("two resources have the URI 'x:{name}': one from ")):
        box.add(resource("x:{name}")(lambda name: name))
    with pytest.raises(DefinitionError, match="did you mean 'x:a'"):
        box.remove("x:A")
    box.remove("x:a")
    assert "x:a" not in box
    with pytest.raises(DefinitionError, match="no resources in"):
        box.add([])


def test_what_was_found_for_a_uri_is_found_anew_after_a_change() -> None:
    @resource("x:{name}")
    def any_name(name: str) -> str:
        return name

    @resource("x:a{rest}")
    def beginning(rest: str) -> str:
        return rest

    @resource("x:ab")
    def fixed() -> str:
        return ""

    def name_of(uri: str) -> str | None:
        found = box.find(uri)
        return found and found.resource.name

    box = ResourceBox(any_name)
    assert [name_of("x:ab"), name_of("x:ab")] == ["any_name", "any_name"]
    box.add(beginning)
    assert name_of("x:ab") == "beginning"
    box.remove("x:a{rest}")
    assert name_of("x:ab") == "any_name"
    box.add(fixed)
    assert [name_of("x:ab"), name_of("x:ab")] == ["fixed", "fixed"]
    box.remove("x:ab")
    assert name_of("x:ab") == "any_name"
    box.remove("x:{name}")
    assert name_of("x:ab") is None


async def test_a_uri_that_cannot_be_written_is_found_and_fails_when_it_is_read() -> None:
    @resource("x:{name}")
    async def any_name(name: str) -> bytes:
        return name.encode(errors="replace")

    found = ResourceBox(any_name).find("x:\ud800")
    assert found is not None
    executor: Any = found.tool.executor
    with pytest.raises(ValueError, match="surrogates"):
        executor.write_json(b"")


def test_a_box_remembers_few_short_uris_and_no_lists() -> None:
    @resource("x:{name}")
    def any_name(name: str) -> str:
        return name

    @resource("list:{/parts*}")
    def parts_of(parts: list[str]) -> list[str]:
        return parts

    box = ResourceBox(any_name, parts_of)
    for number in range(3000):
        assert box.find(f"x:{number}") is not None
        assert box.find("list:/a/b") is not box.find("list:/a/b")
        assert box.find(f"x:{'y' * 1000}{number}") is not None
    assert len(box._index.found) <= 1000
    assert max(map(len, box._index.found)) <= 256


def test_a_look_up_during_a_change_caches_nothing_that_outlives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the box while a look-up sorts its templates, as another thread could."""

    @resource("x://{+path}")
    def general(path: str) -> str:
        return path

    @resource("x://logs/{name}")
    def log(name: str) -> str:
        return name

    def slowly_sorted(*arguments: Any, **keywords: Any) -> list[Any]:
        done = sorted(*arguments, **keywords)
        if len(box) == 1:
            box.add(log)
        return done

    box = ResourceBox(general)
    monkeypatch.setattr("bridge.resources.box.sorted", slowly_sorted, raising=False)
    found = [box.find("x://logs/b") for _ in range(2)]
    assert [each and each.resource.name for each in found] == ["general", "log"]
    assert [each.name for each in box.templates] == ["general", "log"]
