"""Registry of protocol methods, for dispatch and telemetry.

To add a method, write its class in a module of this folder, and add it to `METHODS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.server.methods.completion import Complete
from bridge.server.methods.events import EventsList, EventsPoll, EventsStream, EventsSubscribe, EventsUnsubscribe
from bridge.server.methods.lifecycle import Discover, Initialize, Ping
from bridge.server.methods.logging import SetLevel
from bridge.server.methods.prompts import PromptsGet, PromptsList
from bridge.server.methods.resources import (
    ResourcesList,
    ResourcesRead,
    ResourcesSubscribe,
    ResourcesUnsubscribe,
    ResourceTemplatesList,
)
from bridge.server.methods.skills import DirectoryRead, SkillsGet, SkillsList
from bridge.server.methods.subscriptions import Listen
from bridge.server.methods.tasks import TasksCancel, TasksGet, TasksUpdate
from bridge.server.methods.tools import ToolsCall, ToolsList
from bridge.telemetry import current

if TYPE_CHECKING:
    from bridge.server.core import ServerCore
    from bridge.server.methods.method import Method

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Initialize,
        Ping,
        Discover,
        ToolsList,
        ToolsCall,
        ResourcesList,
        ResourceTemplatesList,
        ResourcesRead,
        ResourcesSubscribe,
        ResourcesUnsubscribe,
        PromptsList,
        PromptsGet,
        Complete,
        SetLevel,
        Listen,
        TasksGet,
        TasksUpdate,
        TasksCancel,
        SkillsList,
        SkillsGet,
        DirectoryRead,
        EventsList,
        EventsPoll,
        EventsStream,
        EventsSubscribe,
        EventsUnsubscribe,
    )
}
"""All methods by name."""


def methods_of(core: ServerCore) -> dict[str, Method]:
    """Create the methods of a server, by name, and register them with the observer."""
    if (observer := current.observer()) is not None:
        observer.methods.update(METHODS)
    return {name: method(core) for name, method in METHODS.items()}
