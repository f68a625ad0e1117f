"""Subscriptions of the modern era: what a client wants to hear of, and the notifications with the subscription's id.

MCP 2026-07-28, "Subscriptions": ``subscriptions/listen``, the acknowledgement first, ids on everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.protocol.envelope import invalid_params
from bridge.protocol.messages import notification
from bridge.protocol.versions import SUBSCRIPTION_ID_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bridge.protocol.messages import MessageId
    from bridge.types import Feature, Json

_TASKS, _RESOURCES = "taskIds", "resourceSubscriptions"
_LISTS: Mapping[str, Feature] = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


class Filter(NamedTuple):
    """The changes that a subscription asks for."""

    lists: frozenset[str] = frozenset()
    """Features whose lists it follows."""
    uris: tuple[str, ...] = ()
    """Resources whose content it follows."""
    task_ids: tuple[str, ...] = ()
    """Tasks whose state it follows."""

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> Filter:
        """Read the parameters of ``subscriptions/listen``.

        Raises:
            ProtocolError: They are malformed.
        """
        wanted = params.get("notifications")
        if type(wanted) is not dict:
            raise invalid_params("'notifications' must be an object")
        for name in _LISTS:
            if not isinstance(wanted.get(name), bool | None):
                raise invalid_params(f"{name!r} must be true or false")
        lists = frozenset(feature for name, feature in _LISTS.items() if wanted.get(name))
        return cls(lists, _texts(wanted, _RESOURCES), _texts(wanted, _TASKS))

    def to_wire(self) -> Json:
        """Return it in MCP's JSON."""
        wire: Json = {name: True for name, feature in _LISTS.items() if feature in self.lists}
        if self.uris:
            wire[_RESOURCES] = list(self.uris)
        if self.task_ids:
            wire[_TASKS] = list(self.task_ids)
        return wire

    def has(self, feature: str, uri: str | None) -> bool:
        """Return True if it follows a list, or the content of a resource."""
        return feature in self.lists if uri is None else uri in self.uris


def _texts(wanted: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the texts of a list, each once."""
    texts = wanted.get(name)
    if texts is None:
        return ()
    if type(texts) is not list or not all(type(each) is str for each in texts):
        raise invalid_params(f"{name!r} must be a list of texts")
    return tuple(dict.fromkeys(texts))


class Subscription:
    """Writes the messages of one subscription.

    Args:
        message_id: Id of its request, which is its own.
    """

    def __init__(self, message_id: MessageId) -> None:
        self.meta: Json = {SUBSCRIPTION_ID_KEY: message_id}
        """``_meta`` of all of its messages."""

    def acknowledged(self, honoured: Filter) -> bytes:
        """Write the acknowledgement, which is its first message."""
        return self.notification("notifications/subscriptions/acknowledged", {"notifications": honoured.to_wire()})

    def changed(self, feature: Feature, uri: str | None) -> bytes:
        """Write the notification of a changed list, or of a resource's new content."""
        return self.notification(*change_message(feature, uri))

    def notification(self, method: str, params: Json) -> bytes:
        """Write a notification."""
        return notification(method, {**params, "_meta": {**params.get("_meta", {}), **self.meta}})


def change_message(feature: Feature, uri: str | None) -> tuple[str, Json]:
    """Return the method and the parameters of the notification of a change, in either era."""
    if uri is None:
        return f"notifications/{feature}/list_changed", {}
    return "notifications/resources/updated", {"uri": uri}


class Waiting:
    """Items to send on one stream, each once, in the order in which it came first.

    A client that does not read makes nothing grow: the same change waits once.
    """

    def __init__(self) -> None:
        self._items: dict[Any, None] = {}

    def put(self, items: Collection[Any]) -> None:
        """Add items, unless they wait already."""
        self._items.update(dict.fromkeys(items))

    def take(self) -> Any:
        """Take the next item; None if nothing waits."""
        item = next(iter(self._items), None)
        if item is not None:
            del self._items[item]
        return item

    def __bool__(self) -> bool:
        return bool(self._items)
