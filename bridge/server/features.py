"""Features: the tools, resources and prompts of one server (MCP, "Server Features")."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from bridge.errors import DefinitionError
from bridge.server.composition.combination import combined, one_box
from bridge.text import short_repr
from bridge.tools.box import Box
from bridge.tools.decoration import Published, Publisher, nothing_in
from bridge.tools.function import found_in
from bridge.tools.tool import Tool
from bridge.tools.toolbox import ToolBox
from bridge.wire.extension import Extensions, extensions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bridge.events.event_type import EventType
    from bridge.events.source import Events
    from bridge.prompts.box import PromptBox
    from bridge.resources.box import ResourceBox
    from bridge.server.auth.access import Access
    from bridge.server.caller_features import CallerFeatures
    from bridge.server.composition.surrounded import Part
    from bridge.server.forwarded import ForwardedRequests, ForwardedTasks
    from bridge.server.http.pages import Pages
    from bridge.server.start import Start
    from bridge.skills.skill import Skill
    from bridge.skills.source import Skills
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.middleware import Middleware
    from bridge.types import Feature
    from bridge.wire.extension import Extension


class FeatureSource(Publisher):
    """Base of objects that have tools, resources and prompts, and lifespans that those need."""

    __slots__ = ()

    @property
    def offered(self) -> Features:
        """The features for servers that have it as a source."""
        raise NotImplementedError

    def published(self) -> list[Published]:
        """Return the tools, resources and prompts, in all versions."""
        return [item for box in self.offered.boxes.values() for item in box.all_versions]

    def selected(self, keep: Callable[[Published], bool]) -> Features:
        """Return the features, now and later, whose tools, resources and prompts a function selects."""
        return self.offered.changed(
            lambda items: filter(keep, items),
            lambda skill: skill if keep(skill) else None,
            lambda event: event if keep(event) else None,
        )


class Narrowed(Protocol):
    """Selects what features of several servers have beside their boxes."""

    def __call__(self, has: Callable[[str], bool], tools: ToolBox) -> Mapping[str, Any]:
        """Return fields of `Features`.

        Args:
            has: Returns True for the name of a server that is selected.
            tools: The selected tools.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Features(FeatureSource):
    """The tools, resources and prompts of one server. Later changes of the boxes apply."""

    tools: ToolBox = field(default_factory=ToolBox)
    resources: ResourceBox | None = None
    """None if the server has no resources, and will not have any."""
    prompts: PromptBox | None = None
    """None if the server has no prompts, and will not have any."""
    skills: Skills | None = None
    """The skills, such as those of a folder, see `bridge.skills.skills_in`; None if there are none."""
    events: Events | None = None
    """The types of events, such as those of `bridge.events.event`; None if there are none."""
    tasks: ForwardedTasks | None = None
    """Tasks of other servers, as which calls of these tools may be answered; None if there are none."""
    extensions: Extensions = ()
    """Extensions of the protocol, or the settings that are announced by identifier; tasks are built in."""
    forwarded: ForwardedRequests | None = None
    """Requests of extensions that other servers answer; None if there are none."""
    spills: bool = False
    """True if tools that are added later may have ``spill_chars``; see `bridge.tools.ToolPolicy`."""
    caller_features: CallerFeatures | None = None
    """The tools, resources and prompts that each caller sees; None if all see the same."""
    lifespans: tuple[Lifespan[Any], ...] = ()
    """Lifespans that are open while they are served, besides those of the modules of their functions."""
    mounted_lifespans: tuple[Lifespan[Any], ...] = ()
    """Lifespans of other servers that these features are from, which are open as well."""
    middleware: tuple[Middleware, ...] = ()
    """Middleware around everything that is served, inside of the server's own; the outermost first."""
    parts: Callable[[], tuple[Part, ...]] = field(default=tuple, compare=False)
    """Returns the parts that are of mounted servers with middleware, which surrounds these parts of the lists."""
    notice: Callable[[Access], str | None] = field(default=lambda _: None, compare=False)
    """Returns what a client is told now by access, beside the server's instructions, such as what is missing; None for
    nothing."""

    narrowed: Narrowed | None = field(default=None, compare=False)
    """Returns the tasks, extensions and notice of some servers and their tools, which a profile has in place of these;
    None if they are of no other server."""
    start: Start | None = field(default=None, compare=False)
    """The start of other servers, during which the lists are not complete; None if they always are."""
    pages: Pages | None = None
    """Web pages that are served over HTTP beside the endpoint; None if there are none."""

    def __post_init__(self) -> None:
        if self.skills is not None and self.skills.box is not None:
            self._take_files(self.skills.box)
        for noun, box in (("tools", self.tools), ("resources", self.resources), ("prompts", self.prompts)):
            if not (isinstance(box, Box) and box.noun == noun) and (box is not None or noun == "tools"):
                kind = {"tools": "ToolBox", "resources": "ResourceBox", "prompts": "PromptBox"}[noun]
                raise DefinitionError(
                    f"{noun} of Features must be a {kind}, not {short_repr(box)}; write {kind}(…), or Features.of(…), "
                    "which takes functions"
                )

    def _take_files(self, box: ResourceBox) -> None:
        """Add the files of skills to the resources, unless these have them."""
        if self.resources is None:
            object.__setattr__(self, "resources", box)
        elif not self.resources.follows(box):
            from bridge.resources.box import ResourceBox  # noqa: PLC0415 - only with both

            object.__setattr__(self, "resources", combined(ResourceBox, [self.resources, box], []))

    @property
    def names(self) -> list[str]:
        """The names of all tools, resources and prompts, which access and limits go by."""
        return [item.name for box in self.boxes.values() for item in box]

    @property
    def lifespan(self) -> Lifespan[Any] | None:
        """The lifespan whose value functions of modules without one get; None if there is none, or several."""
        return self.lifespans[0] if len(self.lifespans) == 1 else None

    @property
    def boxes(self) -> dict[Feature, Box[Any]]:
        """The boxes that the server has, by feature."""
        boxes: dict[Feature, Box[Any] | None] = {
            "tools": self.tools,
            "resources": self.resources,
            "prompts": self.prompts,
        }
        return {name: box for name, box in boxes.items() if box is not None}

    @property
    def offered(self) -> Features:
        """The same wherever they are served: with their middleware, and the lifespan for modules without one."""
        return self.offered_with(self.lifespan, self.middleware)

    def offered_with(self, lifespan: Lifespan[Any] | None, middleware: tuple[Middleware, ...]) -> Features:
        """Return the features with a lifespan, if it is given, and within middleware."""
        features = self if lifespan is None else self.within(lifespan)
        if not middleware:
            return features
        from bridge.server.composition.surrounded import Part, Surroundings  # noqa: PLC0415 - only with middleware

        surroundings = Surroundings(middleware, features.boxes, features.parts, lifespan)
        part = Part(surroundings)
        return replace(features.changed(surroundings.around), middleware=(), parts=lambda: (part,))

    def within(self, lifespan: Lifespan[Any]) -> Features:
        """Return the features with a lifespan, whose value functions of modules without one get."""
        from bridge.server.composition.mounted import within  # noqa: PLC0415 - only with lifespans

        changed = self.changed(lambda items: [within(item, lifespan) for item in items])
        mounted = (*self.mounted_lifespans, *self.lifespans, lifespan)
        return replace(changed, lifespans=(), mounted_lifespans=tuple(dict.fromkeys(mounted)), parts=self.parts)

    def namespaced(self, prefix: str) -> Features:
        """Return the features under other names; see `bridge.server.namespaced`."""
        from bridge.server.composition.mounted import Namespace  # noqa: PLC0415 - only for what is mounted

        offered = self.offered
        resources, prompts, skills, events = offered.resources, offered.prompts, offered.skills, offered.events
        namespace = Namespace(prefix, resources)
        return replace(
            offered,
            tools=offered.tools.transformed(namespace.changed),
            resources=None
            if resources is None
            else resources.transformed(namespace.changed, namespace.local, namespace.source),
            prompts=None if prompts is None else prompts.transformed(namespace.changed),
            parts=_changed_parts(offered.parts, namespace.changed),
            skills=skills and skills.changed(lambda skill: skill.at(namespace.local)),
            events=events and events.changed(lambda event: replace(event, name=f"{prefix}_{event.name}")),
        )

    def changed(
        self,
        change: Callable[[tuple[Any, ...]], Iterable[Any]],
        change_skill: Callable[[Skill], Skill | None] = lambda skill: skill,
        change_event: Callable[[EventType], EventType | None] = lambda event: event,
    ) -> Features:
        """Return features with other items in the boxes, which follow these.

        Args:
            change: Receives the items of a box in all versions, and returns those in their place.
            change_skill: Returns the skill in place of one; None to leave it out.
            change_event: The same for a type of event.

        Raises:
            DefinitionError: They differ by caller.
        """
        if self.caller_features is not None:
            raise DefinitionError("a gateway that lists tools for each caller can be neither mounted nor filtered")
        resources, prompts = self.resources, self.prompts
        return replace(
            self,
            tools=self.tools.transformed(change),
            resources=None if resources is None else resources.transformed(change),
            prompts=None if prompts is None else prompts.transformed(change),
            parts=_changed_parts(self.parts, change),
            skills=self.skills and self.skills.changed(change_skill),
            events=self.events and self.events.changed(change_event),
        )

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every change of a list, in the thread that made it."""
        for box in self.boxes.values():
            box.on_change(listener)

    @classmethod
    def of(cls, *sources: object) -> Features:
        """Collect the features of sources: what a `bridge.ToolBox` takes, with resources and prompts.

        Features are used themselves, and servers with their lifespans. So is a ToolBox, ResourceBox or PromptBox that
        is the only source of its kind. A box of several sources follows the boxes among them: their later changes
        apply, and so do updates of resources. A change that makes two names clash is logged, and the previous items
        stay in use.

        Raises:
            DefinitionError: A source has nothing to offer, or something invalid.
            NameClashError: Two tools, resources or prompts have the same name.
        """
        if len(sources) == 1 and isinstance(only := sources[0], Features):
            return only
        flat = [_features_of_skills(each) or each for each in _parts(sources)]
        offers = [each.offered if isinstance(each, FeatureSource) else each for each in flat]
        given = [each for each in offers if isinstance(each, Features)]
        if len(given) == len(flat) == 1:
            return given[0]
        boxes = [
            box
            for each in offers
            for box in (each.boxes.values() if isinstance(each, Features) else (each,))
            if isinstance(box, Box)
        ]
        found = [item for each in flat if not isinstance(each, Box | FeatureSource) for item in found_in(each)]
        if foreign := [each for each in flat if is_foreign_server(each)]:
            raise DefinitionError(
                f"{short_repr(foreign[0])} is a server of another package; give from_mcp(…) of bridge.gateway instead"
            )
        if not (found or boxes) and sources:
            raise nothing_in(sources[0] if len(sources) == 1 else sources, "tools", "resources", "prompts")
        if own := _features_of_events(found):
            given, found = [*given, own], [each for each in found if not _is_event(each)]
        tools = one_box(ToolBox, boxes, [item for item in found if isinstance(item, Tool)])
        tools = ToolBox() if tools is None else tools  # an empty one may get tools later
        if all(isinstance(each, Tool | ToolBox) for each in (*boxes, *found)):
            return joined(cls(tools=tools), given)
        # Only now, because programs without them start faster.
        from bridge.prompts.box import PromptBox  # noqa: PLC0415
        from bridge.prompts.prompt import Prompt  # noqa: PLC0415
        from bridge.resources.box import ResourceBox  # noqa: PLC0415

        features = cls(
            tools=tools,
            resources=one_box(ResourceBox, boxes, [each for each in found if not isinstance(each, Tool | Prompt)]),
            prompts=one_box(PromptBox, boxes, [each for each in found if isinstance(each, Prompt)]),
        )
        return joined(features, given)


def _features_of_skills(source: object) -> Features | None:
    """Return the features of a source of skills; None for any other."""
    if "bridge.skills.source" not in sys.modules:  # importing it would slow all other servers down
        return None
    from bridge.skills.source import Skills  # noqa: PLC0415 - as above

    return Features(skills=source) if isinstance(source, Skills) else None


def _is_event(item: Published) -> bool:
    return type(item).__module__ == "bridge.events.event_type"  # without importing it, which few servers need


def _features_of_events(found: Iterable[Published]) -> Features | None:
    """Return the features of the types of events among items; None if there are none."""
    types: list[Any] = [each for each in found if _is_event(each)]
    if not types:
        return None
    from bridge.events.source import LocalEvents  # noqa: PLC0415 - only with events

    return Features(events=LocalEvents(types))


def is_foreign_server(source: object) -> bool:
    """True for a server of the official SDK, or of FastMCP."""
    return any(hasattr(source, name) for name in ("create_initialization_options", "_lowlevel_server", "_mcp_server"))


def _parts(sources: Iterable[object]) -> Iterator[object]:
    """Yield the sources, of a list with boxes or servers its items."""
    for each in sources:
        if isinstance(each, list | tuple) and any(
            isinstance(part, Box | FeatureSource) or _features_of_skills(part) for part in each
        ):
            yield from _parts(each)
        else:
            yield each


def joined(features: Features, others: list[Features]) -> Features:
    """Return features with the tasks, extensions, lifespans, parts and notices of others.

    Raises:
        DefinitionError: Two have tasks of other servers.
    """
    if not others:
        return features
    if any(each.caller_features is not None for each in others):
        raise DefinitionError("a gateway that lists tools for each caller takes other sources by Gateway(local=…)")
    tasks = [each.tasks for each in others if each.tasks is not None]
    if len(tasks) > 1:
        raise DefinitionError("two sources have tasks of other servers; give these servers to one gateway")
    skills = [each.skills for each in others if each.skills is not None]
    events = [each.events for each in others if each.events is not None]
    own = features.lifespans
    lifespans = (each for other in others for each in (*other.lifespans, *other.mounted_lifespans) if each not in own)
    return replace(
        features,
        tasks=tasks[0] if tasks else None,
        skills=skills[0].beside(skills[1:]) if skills else None,
        events=events[0].beside(events[1:]) if events else None,
        pages=next((each.pages for each in others if each.pages is not None), None),
        start=next((each.start for each in others if each.start is not None), None),
        extensions=_AllExtensions(tuple(each.extensions for each in others)),
        forwarded=next((each.forwarded for each in others if each.forwarded is not None), None),
        mounted_lifespans=tuple(dict.fromkeys(lifespans)),
        parts=lambda: tuple(part for each in others for part in each.parts()),
        notice=lambda access: "\n\n".join(text for each in others if (text := each.notice(access))) or None,
    )


def with_extensions(features: Features, extensions: Extensions) -> Features:
    """Return features with further extensions, before their own."""
    changed = replace(features, extensions=_AllExtensions((extensions, features.extensions)))
    if (inner := features.narrowed) is None:
        return changed

    def narrowed(has: Callable[[str], bool], tools: ToolBox) -> Mapping[str, Any]:
        found = inner(has, tools)
        return {**found, "extensions": _AllExtensions((extensions, found.get("extensions", features.extensions)))}

    return replace(changed, narrowed=narrowed)


@dataclass(frozen=True, slots=True)
class _AllExtensions:
    """The extensions of several sources, also after they have changed."""

    sources: tuple[Extensions, ...]

    def __iter__(self) -> Iterator[Extension]:
        return (each for source in self.sources for each in extensions_of(source))


def _changed_parts(parts: Callable[[], tuple[Part, ...]], change: Callable[..., Any]) -> Any:
    return lambda: tuple(part.changed(change) for part in parts())


def namespaced(source: object, prefix: str) -> Features:
    """Return tools, resources, templates and prompts under other names: ``namespaced(server, "x")``.

    Names begin with ``x_``. URIs begin with ``x+``, as those of a gateway's servers; those of an app's pages become
    ``ui://x/…``. URIs in results that the source reads change as well. Later changes of the source apply.

    Args:
        source: A `bridge.Server`, or any other source of a server.
        prefix: The prefix, without an underscore at its end: 1 to 64 letters, digits, underscores, dots and hyphens.

    Raises:
        DefinitionError: The source has nothing to offer, or something invalid, or the prefix is none.
    """
    return Features.of(source).namespaced(prefix)
