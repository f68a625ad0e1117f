"""Decorated functions: settings that decorators store, and the search for them in objects, classes and modules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.errors import DefinitionError
from bridge.text import short_repr
from bridge.tools.labels import tags_in, version_in
from bridge.tools.schema.annotations import annotation_namespace, python_signature

_SETTINGS = "__bridge__"
F = TypeVar("F", bound="Callable[..., Any] | staticmethod[Any, Any] | classmethod[Any, Any, Any]")
S = TypeVar("S", bound="Settings")


class Published:
    """Base of tools, resources and prompts, which decorated functions become."""

    __slots__ = ()

    source: str
    """Origin, for messages."""
    enabled: bool
    """False for an item that boxes hide until it is enabled."""

    if TYPE_CHECKING:  # at run time they are attributes, of which a property would be the default

        @property
        def name(self) -> str:
            """Name for programs."""

        @property
        def metadata(self) -> Mapping[str, Any]:
            """Arbitrary data; sent over MCP in ``_meta``."""

    @property
    def tags(self) -> frozenset[str]:
        """Its tags, by which it can be selected."""
        return tags_in(self.metadata)

    @property
    def version(self) -> str | None:
        """Its version; None for none."""
        return version_in(self.metadata)


class Publisher:
    """Base of objects that have tools, resources and prompts, such as servers."""

    __slots__ = ()

    def published(self) -> list[Published]:
        """Return what it has now."""
        raise NotImplementedError

    def selected(self, keep: Callable[[Published], bool]) -> Publisher:
        """Return what it has, now and later, for which a function returns True."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Base of the settings that a decorator stores on a function."""

    namespace: Mapping[str, Any] = field(default_factory=dict)
    """Names from the defining scope that the annotations use and that are missing from the module."""

    def published(self, function: Callable[..., Any]) -> Published:
        """Return what a function becomes.

        Raises:
            DefinitionError: The function, or a setting, does not allow it.
        """
        raise NotImplementedError


def store_settings(function: F, settings: Settings) -> F:
    """Store the settings of a decorator on a function, which is returned unchanged.

    Raises:
        DefinitionError: The object is not a function or method, or has such settings already.
    """
    target: Any = function.__func__ if isinstance(function, staticmethod | classmethod) else function
    noun = type(settings).__name__.removesuffix("Settings").lower()
    if isinstance(target, type) or not callable(target):
        raise DefinitionError(f"{target!r} cannot be a {noun}; decorate a function, or the methods of the class")
    settings = replace(settings, namespace=annotation_namespace(target, inspect.currentframe()))
    others = tuple(each for each in stored_settings(target) if type(each) is not type(settings))
    try:
        setattr(target, _SETTINGS, (*others, settings))
    except AttributeError:
        raise DefinitionError(f"{target!r} cannot be decorated; wrap it in a function of your own") from None
    return function


def function_and_description(given: Any, description: str | None, noun: str) -> tuple[Any, str | None]:
    """Separate the first argument of a decorator, which is a function or a description.

    Raises:
        DefinitionError: There are two descriptions.
    """
    if not isinstance(given, str):
        return given, description
    if description is not None:
        raise DefinitionError(f"the {noun} has two descriptions, {given!r} and {description!r}; keep one")
    return None, given


def stored_settings(attribute: Any) -> tuple[Settings, ...]:
    """Return the settings of all decorators of an object; empty if it is not decorated."""
    if isinstance(attribute, staticmethod | classmethod):
        attribute = attribute.__func__
    stored = () if isinstance(attribute, type) else getattr(attribute, _SETTINGS, ())
    return stored if isinstance(stored, tuple) else ()


def settings_in(attribute: Any, kind: type[S]) -> S | None:
    """Return the settings of one kind of decorator; None if the object does not have it."""
    return next((each for each in stored_settings(attribute) if isinstance(each, kind)), None)


def published_in(  # noqa: PLR0911 - a return for each kind of source
    source: Any,
    plain: Callable[[Callable[..., Any]], Published],
    by_hand: Callable[[Mapping[Any, Any]], Iterable[Published]],
) -> list[Published]:
    """Return the tools, resources and prompts of a source, in definition order.

    Args:
        source: See `bridge.tools.function.tools_from`.
        plain: Makes something of a function that is not decorated.
        by_hand: Makes something of the items of a mapping.

    Raises:
        DefinitionError: One of them is invalid, or an item of an iterable has none.
    """
    if isinstance(source, Published):
        return [source]
    if isinstance(source, Publisher):
        return source.published()
    if isinstance(source, ModuleType | type):
        return _of_module(source) if isinstance(source, ModuleType) else _of_class(source)
    if stored := stored_settings(source):
        return [settings.published(source) for settings in stored]
    if inspect.isroutine(source) or isinstance(source, functools.partial):
        _refuse_application(source)
        return [plain(source)]
    if methods := decorated_methods(type(source)):
        return [each.published(getattr(source, name)) for name, stored in methods.items() for each in stored]
    if isinstance(source, Mapping):
        return list(by_hand(source))
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return [item for each in source for item in _required(each, published_in(each, plain, by_hand))]
    if not callable(source):
        return []
    _refuse_application(source)
    return [plain(source)]


def _refuse_application(source: Callable[..., Any]) -> None:
    """Raise an error for an application of a web framework, which is a function or an object with ``__call__``.

    Raises:
        DefinitionError: It is one.
    """
    try:
        names = python_signature(source).parameters.keys()
    except (TypeError, ValueError):
        return
    for kind, called_with in (("ASGI", {"scope", "receive", "send"}), ("WSGI", {"environ", "start_response"})):
        if called_with <= names:
            raise DefinitionError(
                f"{short_repr(source)} is an {kind} application and no source of tools; give the functions that it "
                "serves, or run it and name its URL"
            )


def _required(source: object, found: list[Published]) -> list[Published]:
    if not found:
        raise nothing_in(source)
    return found


def nothing_in(source: object, *nouns: str) -> DefinitionError:
    """Return the error for a source without any of some kinds, given in the plural; by default, of tools."""
    nouns = nouns or ("tools",)
    decorators = _alternatives([f"@{noun[:-1]}" for noun in nouns])
    return DefinitionError(
        f"there are no {_alternatives(nouns)} in {described(source)}; decorate functions or methods with {decorators}"
    )


def _alternatives(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _of_module(module: ModuleType) -> list[Published]:
    values = {
        id(value): value for value in vars(module).values() if isinstance(value, Published) or stored_settings(value)
    }
    return [
        item
        for value in values.values()
        for item in (
            [value] if isinstance(value, Published) else [each.published(value) for each in stored_settings(value)]
        )
    ]


def _of_class(owner: type) -> list[Published]:
    methods = decorated_methods(owner)
    for name in methods:
        if not isinstance(inspect.getattr_static(owner, name), staticmethod | classmethod):
            raise DefinitionError(
                f"the method {name!r} of the class {owner.__qualname__!r} needs an instance; pass {owner.__name__}(…)"
            )
    return [each.published(getattr(owner, name)) for name, stored in methods.items() for each in stored]


def decorated_methods(owner: type) -> dict[str, tuple[Settings, ...]]:
    """Return the settings of a class's decorated methods by name, base classes first."""
    methods: dict[str, tuple[Settings, ...]] = {}
    for base in reversed(owner.__mro__):
        for name, attribute in vars(base).items():
            if stored := stored_settings(attribute):
                methods[name] = stored
            elif attribute is None:
                methods.pop(name, None)  # `name = None` in a subclass removes the inherited method
    return methods


def bound_method(attribute: Any) -> Any:
    """Bind a method that lacks its instance to a placeholder."""
    if inspect.isfunction(attribute) and next(iter(python_signature(attribute).parameters), None) == "self":
        return MethodType(attribute, attribute)
    return attribute


def name_of(function: Any) -> str:
    """Return the name of a callable."""
    while isinstance(function, functools.partial):
        function = function.func
    name: str = getattr(function, "__name__", None) or type(function).__name__
    return name


def described(source: object) -> str:
    """Describe a source for a message."""
    if isinstance(source, ModuleType):
        return f"the module {source.__name__!r}"
    if isinstance(source, type):
        return f"the class {source.__qualname__!r}"
    return short_repr(source)
