"""Profiles: named selections of the tools, resources and prompts of one server, each served at a URL of its own.

Profile ── .features_of ── boxes that follow those of the source, under the names of the profile
   ╰── .is_given_to ── the callers by key, scopes and claims (`bridge.server.http.profiles`)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from bridge.errors import DefinitionError, ToolError
from bridge.prompts.prompt import Prompt
from bridge.resources.resource import Resource, ResourceTemplate
from bridge.server.auth.access import matches, scopes_of
from bridge.server.auth.tokens import VerifiedToken
from bridge.server.caller_features import CallerView
from bridge.skills.skill import Skill
from bridge.text import clip, to_json_line
from bridge.tools.annotated_checks import check_fields
from bridge.tools.tool import Tool
from bridge.tools.transform import wrapped
from bridge.wire.extension import extensions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mcp.server.auth.provider import AccessToken

    from bridge.events.event_type import EventType
    from bridge.resources.box import ResourceBox
    from bridge.server.features import Features
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import CallNext
    from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
    from bridge.types import Feature
    from bridge.wire.extension import Extension, Extensions

DEFAULT_PROFILE = "default"
"""Name of the profile that is served at the path of the server itself."""
LOCAL = "local"
"""Name by which `Profile.servers` selects what is of this process, and of no other server."""

ToolListing: TypeAlias = Literal["all", "search", "auto", "code"]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_Named = TypeVar("_Named", "Skill", "EventType")
_EMPTY: Mapping[str, Any] = {}
_MAX_SHOWN_CHARS = 2000
_PATTERNS = ("servers", "include", "exclude", "approval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A selection of tools, resources and prompts, their presentation, and the callers to whom it is given.

    Patterns match as in file names, such as ``delete_*``. An item has to pass all of the selections.

    Raises:
        DefinitionError: A value is invalid.
    """

    name: str
    """Last part of its path: 1 to 64 letters, digits, underscores and hyphens."""
    servers: tuple[str, ...] | None = None
    """Names and patterns of the servers whose items it has, and ``local`` for those of this process; None for all."""
    include: tuple[str, ...] | None = None
    """Names and patterns of what it has, of resources the URIs as well; None for everything."""
    exclude: tuple[str, ...] = ()
    """Names and patterns of what it leaves out; likewise."""
    tags: frozenset[str] | None = None
    """Tags, of which its items have at least one; None for any."""
    rename: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Names of tools and prompts in the profile, by their names outside of it, which the selections go by."""
    approval: tuple[str, ...] = ()
    """Names and patterns, in the profile, of the tools that run only once the user has approved the call."""
    spill_chars: int | None = None
    """Characters up to which results stay whole, in place of the limits of the tools; None for those."""
    listing: ToolListing | None = None
    """Tools that clients list, as of ``--tools``; None as the server does."""
    instructions: str | None = None
    """Instructions for the model; None for those of the server."""
    scopes: frozenset[str] = frozenset()
    """Scopes that its callers need, all of them."""
    claims: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Values that the claims of its callers have, or contain if they are lists; all of them."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"the name of a profile has 1 to 64 ASCII letters, digits, underscores and hyphens, not {self.name!r}"
            )
        for name in _PATTERNS:
            given: Any = getattr(self, name)
            if given is not None and not (isinstance(given, tuple) and all(isinstance(each, str) for each in given)):
                raise DefinitionError(f"{name} of the profile {self.name!r} is a tuple of patterns, not {given!r}")
        check_fields(self)
        object.__setattr__(self, "scopes", scopes_of(self.scopes))
        if len(set(self.rename.values())) < len(self.rename):
            raise DefinitionError(f"rename of the profile {self.name!r} gives two items the same name")

    @property
    def is_restricted(self) -> bool:
        """True if callers need scopes or claims."""
        return bool(self.scopes or self.claims)

    @property
    def selects_names(self) -> bool:
        """True if it selects single items, and not whole servers."""
        return self.include is not None or bool(self.exclude) or self.tags is not None

    def path_below(self, path: str) -> str:
        """Return its path, given that of the server."""
        return path if self.name == DEFAULT_PROFILE else f"{path.rstrip('/')}/{self.name}"

    def is_given_to(self, token: AccessToken | None, profiles: tuple[str, ...] | None) -> bool:
        """Return True if the profile is given to a caller.

        Args:
            token: The verified credential; None without authentication.
            profiles: Names and patterns of the profiles to which a key is limited, which needs nothing else; None for
                any other credential.
        """
        if profiles is not None:
            return matches(profiles, self.name)
        if not self.is_restricted:
            return True
        return token is not None and not self.missing(token) and has_claims(token, self.claims)

    def missing(self, token: AccessToken) -> frozenset[str]:
        """Return the scopes that a caller needs for the profile and was not granted."""
        has_all = isinstance(token, VerifiedToken) and token.has_all_scopes
        return frozenset() if has_all else self.scopes.difference(token.scopes)

    def options_of(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a `bridge.Server` that differ in the profile, given those of its source.

        Raises:
            DefinitionError: Tasks are kept in a store that has no others beside it.
        """
        changed: dict[str, Any] = {"name": f"{options['name']}/{self.name}"}
        if self.instructions is not None:
            changed["instructions"] = self.instructions
        if self.listing is not None:
            from bridge.server.lists.search import ServerToolSearch  # noqa: PLC0415 - only with the search

            search = options["tool_search"] or ServerToolSearch()
            changed["tool_search"] = None if self.listing == "all" else replace(search, mode=self.listing)
        policy, tasks = options["policy"], options["tasks"]
        if policy is not None and policy.spill is not None:
            changed["policy"] = replace(policy, spill=replace(policy.spill, audience=changed["name"]))
        if tasks is not None and tasks.store is not None:
            if (beside := getattr(tasks.store, "beside", None)) is None:
                raise DefinitionError(f"{tasks.store!r} keeps the tasks of one server; profiles need SqliteTaskStore")
            changed["tasks"] = replace(tasks, store=beside(self.name))
        return changed

    def features_of(self, source: Features) -> Features:
        """Return what the profile has of a server, now and after later changes."""
        select = _Selection(self, source.resources)
        features = replace(source, caller_features=None).changed(select, select.named, select.named)
        features = replace(features, spills=source.spills or self.spill_chars is not None)
        if source.caller_features is not None:
            features = replace(features, caller_features=_ProfileCallerFeatures(self, source, features))
        has = self._servers_of(features)
        if source.narrowed is not None:
            features = replace(features, **source.narrowed(has, features.tools))
        features = replace(features, extensions=_ExtensionsOf(features.extensions, has))
        # It is not known which items a request of an extension is about.
        return replace(features, forwarded=None) if self.selects_names else features

    def _servers_of(self, features: Features) -> Callable[[str], bool]:
        """Return a function that returns True for a server, or `LOCAL`, of which the profile has anything."""

        def has(server: str) -> bool:
            if self.servers is not None and not matches(self.servers, server):
                return False
            return not self.selects_names or any(
                (item.server or LOCAL) == server for box in features.boxes.values() for item in box
            )

        return has


@dataclass(frozen=True, slots=True)
class _ExtensionsOf:
    """The extensions of some servers, and of this process as `LOCAL`, also after they have changed."""

    source: Extensions
    has: Callable[[str], bool]

    def __iter__(self) -> Iterator[Extension]:
        return (each for each in extensions_of(self.source) if self.has(each.server or LOCAL))


def has_claims(token: AccessToken, wanted: Mapping[str, str]) -> bool:
    """True if the claims of a token have these values, or contain them if they are lists."""
    claims = token.claims or {}
    found = ((claims.get(name), value) for name, value in wanted.items())
    return all(value in given if isinstance(given, list) else given == value for given, value in found)


class _Selection:
    """Changes the items of a server to those of a profile."""

    def __init__(self, profile: Profile, resources: ResourceBox | None) -> None:
        self._profile = profile
        self._resources = resources

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        return (self._changed(item) for item in items if self._selects(item))

    def named(self, item: _Named) -> _Named | None:
        """Return a skill or a type of event of the profile; None for any other."""
        return item if self._selects(item) else None

    def _selects(self, item: Tool | Prompt | Resource | ResourceTemplate | Skill | EventType) -> bool:
        profile, server = self._profile, item.server
        if profile.servers is not None and not matches(profile.servers, LOCAL if server is None else server):
            return False
        names = [item.name]
        if isinstance(item, Resource):
            names.append(item.uri)
            # A server may read a URI that it does not list, in many spellings.
            if profile.selects_names and (self._resources is None or item.uri not in self._resources):
                return False
        elif isinstance(item, ResourceTemplate):
            names.append(str(item.uri_template))
        elif isinstance(item, Skill):
            names.append(item.uri)
        return (
            (profile.include is None or any(matches(profile.include, name) for name in names))
            and not any(matches(profile.exclude, name) for name in names)
            and (profile.tags is None or not item.tags.isdisjoint(profile.tags))
        )

    def _changed(self, item: Any) -> Any:
        profile = self._profile
        new_name = profile.rename.get(item.name)
        if isinstance(item, Prompt):
            return item if new_name is None else replace(item, name=new_name)
        if not isinstance(item, Tool):
            return item
        if new_name is not None:
            item = replace(item, specification=replace(item.specification, name=new_name))
        if profile.spill_chars is not None:
            item = replace(item, policy=replace(item.policy, spill_chars=profile.spill_chars))
        return next(wrapped([item], _approved)) if matches(profile.approval, item.name) else item


async def _approved(
    request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
) -> ToolExecutionResult:
    """Run a call once the user has approved it.

    Raises:
        ToolError: The user has not, or cannot be asked.
    """
    arguments = clip(to_json_line(request.arguments), _MAX_SHOWN_CHARS)
    answer = await context.elicit(f"Run {request.name!r} with {arguments}?", None, key="approval")
    if not answer.accepted:
        raise ToolError(f"the user did not approve the call of {request.name!r}")
    return await call_next(request, context)


class _ProfileCallerFeatures:
    """Features of a profile that each caller sees; a `bridge.server.caller_features.CallerFeatures`."""

    def __init__(self, profile: Profile, source: Features, features: Features) -> None:
        assert source.caller_features is not None
        self._profile, self._source, self._tools = profile, source.caller_features, source.tools
        self._common = CallerView(features.tools, features.resources, features.prompts)
        self._views: WeakKeyDictionary[CallerView, CallerView] = WeakKeyDictionary()

    @property
    def may_be_more(self) -> bool:
        """True if callers may see more than all callers do."""
        return self._source.may_be_more

    def of(self, caller: Caller | None, *, current: bool = False) -> CallerView | None:
        """Return what a caller sees; see `CallerFeatures.of`."""
        found = self._source.of(caller, current=current)
        return None if found is None else self._selected(found)

    async def load(self, context: InvocationContext) -> CallerView:
        """Load what a caller sees; see `CallerFeatures.load`."""
        return self._selected(await self._source.load(context))

    def on_change(self, listener: Callable[[Feature, str | None, tuple[str, str]], None]) -> Callable[[], None]:
        """Call a listener after a change that one caller is notified of; see `CallerFeatures.on_change`."""
        return self._source.on_change(listener)

    def _selected(self, view: CallerView) -> CallerView:
        if view.tools is self._tools:
            return self._common
        selected = self._views.get(view)
        if selected is None:
            select = _Selection(self._profile, view.resources)
            selected = self._views[view] = CallerView(
                view.tools.transformed(select),
                None if view.resources is None else view.resources.transformed(select),
                None if view.prompts is None else view.prompts.transformed(select),
            )
        return selected
