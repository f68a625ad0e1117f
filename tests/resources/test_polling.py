from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import DefinitionError, NameClashError, ResourceBox, resource, tool
from bridge.client import McpToolProvider, MemoryTransport, ServerConfig
from bridge.resources import PollingResourceBox, Resource, ResourceTemplate
from bridge.server import Features, Server

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60
URI = "notes://milk"


class Notes:
    """Notes that change without a notification."""

    def __init__(self) -> None:
        self.texts = {"milk": "2 litres"}
        self.listed: tuple[Resource | ResourceTemplate, ...] = (NOTE,)

    def version(self, uri: str) -> object:
        return self.texts.get(uri.removeprefix("notes://"))

    def listing(self) -> Iterable[Resource | ResourceTemplate]:
        return self.listed

    def box(self, **settings: Any) -> PollingResourceBox:
        return PollingResourceBox(version=self.version, listing=self.listing, **settings)


@resource("notes://{title}")
def note(title: str) -> str:
    """A note."""
    return title


@resource("notes://all")
def everything() -> str:
    """All notes."""
    return "all"


EVERYTHING, NOTE = ResourceBox(everything, note)


def keys(box: ResourceBox) -> list[str]:
    return [box.key_of(item) for item in box]


async def test_a_watched_resource_is_announced_once_for_each_change() -> None:
    notes = Notes()
    box, updates = notes.box(), list[str]()
    ResourceBox.on_update(box, updates.append)  # without the thread
    ends = [await box.begin_watch(URI), await box.begin_watch(URI)]
    box.poll()
    assert updates == []
    notes.texts["milk"] = "1 litre"
    box.poll()
    box.poll()
    assert updates == [URI]
    ends[0]()
    del notes.texts["milk"]
    box.poll()
    assert updates == [URI, URI], "it is gone, and somebody still watches it"
    ends[1]()
    notes.texts["milk"] = "3 litres"
    box.poll()
    assert updates == [URI, URI]


async def test_the_list_is_that_of_the_function() -> None:
    notes = Notes()
    box, changes = notes.box(), list[int]()
    assert keys(box) == ["notes://{title}"]
    box.on_change(partial(changes.append, 1))
    box.poll()
    notes.listed = (EVERYTHING, NOTE)
    box.poll()
    assert (keys(box), changes) == (["notes://all", "notes://{title}"], [1])
    notes.listed = (NOTE, NOTE)
    with pytest.raises(NameClashError):
        box.poll()
    assert keys(box) == ["notes://all", "notes://{title}"]


def test_one_thread_looks_while_somebody_listens_and_survives_failures(caplog: pytest.LogCaptureFixture) -> None:
    looked, allowed = threading.Semaphore(0), threading.Event()

    def listing() -> Iterable[Resource | ResourceTemplate]:
        looked.release()
        if not allowed.is_set():
            allowed.set()
            return [NOTE]
        raise RuntimeError("no list today")

    before = set(threading.enumerate())
    box = PollingResourceBox(version=str, listing=listing, interval_seconds=0.001)
    assert set(threading.enumerate()) == before, "nobody listens yet"
    ends = [box.on_update(print), box.on_update(print)]
    (thread,) = set(threading.enumerate()) - before
    for _ in range(4):
        assert looked.acquire(timeout=DEADLINE_SECONDS)
    assert "changes of PollingResourceBox(notes://{title}) cannot be found" in caplog.text
    ends[0]()
    assert thread.is_alive()
    ends[1]()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def test_the_thread_ends_with_the_box() -> None:
    before = set(threading.enumerate())
    box = Notes().box(interval_seconds=0.001)
    box.on_update(print)
    (thread,) = set(threading.enumerate()) - before
    del box
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("is_combined", [False, True])
async def test_clients_are_notified_of_both(era: Any, is_combined: bool) -> None:
    notes = Notes()

    @resource("other://x")
    def other() -> str:
        """Read a resource beside those of the box."""
        return "x"

    @tool
    def nothing() -> None:
        """Do nothing."""

    sources: list[object] = [notes.box(interval_seconds=0.01), nothing]
    server = Server(Features.of(*sources, *([other] if is_combined else [])), name="notes")
    config = ServerConfig(name="notes", transport=MemoryTransport(server), protocol=era)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider(config, features=["resources"]) as provider:
            changed, updated = anyio.Event(), anyio.Event()
            await provider.resources.watch(URI, lambda _uri: updated.set())
            notes.texts["milk"] = "1 litre"
            await updated.wait()
            provider.resources.on_change(changed.set)
            notes.listed = (EVERYTHING, NOTE)
            await changed.wait()
            assert "notes://all" in keys(provider.resources)
    server.changes.close()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), None])
def test_an_interval_is_positive(seconds: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^interval_seconds must be a number of seconds above 0, not "):
        PollingResourceBox(note, version=str, interval_seconds=seconds)


@pytest.mark.parametrize("settings", [{"version": None}, {"version": lambda: 1}])
def test_a_version_must_be_a_function_of_the_uri(settings: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="version"):
        PollingResourceBox(note, **settings)
