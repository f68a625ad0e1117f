"""Profiles of configurations, for a gateway of their servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import ConfigError, ConfigProblem, DefinitionError
from bridge.server.profiles import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.client.config.profiles import ProfileEntry
    from bridge.client.config.servers import ServersConfig


def profiles_of(configurations: Iterable[ServersConfig]) -> tuple[Profile, ...]:
    """Return the profiles of configurations.

    Raises:
        ConfigError: One is invalid, or two have the same name.
    """
    found: dict[str, Profile] = {}
    for configuration in configurations:
        for name, entry in configuration.profiles.items():
            try:
                profile = _profile(name, entry)
            except DefinitionError as error:
                raise ConfigError(configuration.source, [ConfigProblem(str(error), key=f"profiles.{name}")]) from error
            if name in found:
                problem = ConfigProblem("another configuration has a profile of this name: rename one")
                raise ConfigError(configuration.source, [problem])
            found[name] = profile
    return tuple(found.values())


def profile_named(name: str, configuration: ServersConfig) -> Profile:
    """Return one of the profiles of a configuration.

    Raises:
        ConfigError: There is none of this name, or one is invalid.
    """
    profiles = {each.name: each for each in profiles_of([configuration])}
    if name not in profiles:
        known = ", ".join(map(repr, profiles)) or "none"
        raise ConfigError(configuration.source, [ConfigProblem(f"{name!r} is not one of its profiles ({known})")])
    return profiles[name]


def _profile(name: str, entry: ProfileEntry) -> Profile:
    return Profile(
        name=name,
        servers=None if entry.servers is None else tuple(entry.servers),
        include=None if entry.include is None else tuple(entry.include),
        exclude=tuple(entry.exclude),
        tags=None if entry.tags is None else frozenset(entry.tags),
        rename=entry.rename,
        approval=tuple(entry.approval),
        spill_chars=entry.spill_chars,
        listing=entry.tools,
        instructions=entry.instructions,
        scopes=frozenset(entry.scopes),
        claims=entry.claims,
    )
