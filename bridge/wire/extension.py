"""Extension: a part of the protocol beyond MCP itself, as a server, a client and a gateway have it.

    server    announces `settings`, answers `methods`, receives `notifications` of clients
    client    declares `client_settings`, receives `notifications` of servers
    gateway   announces the settings of its servers by `merge`, and passes on what it does not answer itself

Clauses: MCP 2026-07-28, "Extension Negotiation" (SEP-2133).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import DefinitionError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import MISSING_CAPABILITY
from bridge.text import short_repr
from bridge.tools.annotated_checks import check_fields
from bridge.tools.checks import require_type
from bridge.tools.context import InvocationContext
from bridge.tools.specification import require_json
from bridge.types import Json

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
EXTENSION_PATTERN = rf"^{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$"
"""Identifier of an extension: a reversed domain name, a slash and a name (MCP, "Extension Negotiation")."""
NOTIFICATION_PREFIX = "notifications/"
"""Beginning of the names of notifications."""

RequestHandler = Callable[[Json, InvocationContext], "Awaitable[Mapping[str, Any]] | Mapping[str, Any]"]
"""Answers a request, given its parameters without ``_meta``, by a result that is a JSON object."""
NotificationHandler = Callable[[Json, InvocationContext], None]
"""Receives the parameters of a notification. It is called in the event loop, so it must not block."""


def first(settings: Sequence[Json]) -> Json:
    """Return the first settings."""
    return settings[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An extension of the protocol.

    Raises:
        DefinitionError: The identifier is malformed, the settings are not JSON, or a handler is no function.
    """

    id: str
    """Identifier, such as ``com.example/colours``."""
    settings: Json = field(default_factory=dict)
    """Settings that a server announces."""
    client_settings: Json = field(default_factory=dict)
    """Settings that a client declares."""
    methods: Mapping[str, RequestHandler] = field(default_factory=dict)
    """Handlers of the requests that a server answers, by method."""
    notifications: Mapping[str, NotificationHandler] = field(default_factory=dict)
    """Handlers of the notifications that are received, by method: ``notifications/…``."""
    needs_client: bool = False
    """True to refuse requests of clients that do not declare the extension (error -32021)."""
    is_modern: bool = False
    """True if only the 2026-07-28 revision has it."""
    merge: Callable[[Sequence[Json]], Json] = first
    """Returns the settings that a gateway announces, given its own and those of its servers, in their order."""
    server: str | None = field(default=None, compare=False)
    """Configured name of the server that a gateway passes it on from; None for one of this process."""

    def __post_init__(self) -> None:
        what = f"the extension {self.id!r}"
        require_type(self.id, str, "the identifier of an extension", "text")
        if not re.fullmatch(EXTENSION_PATTERN, self.id):
            raise DefinitionError(
                f"an extension is identified by a reversed domain name, a slash and a name, such as "
                f"'com.example/colours', not {short_repr(self.id)}"
            )
        for name in ("settings", "client_settings"):
            require_type(getattr(self, name), dict, f"{name} of {what}", "a dict")
        check_fields(self)
        require_json(what, settings=self.settings, client_settings=self.client_settings)
        for handlers in (self.methods, self.notifications):
            for method, handler in handlers.items():
                if not callable(handler):
                    raise DefinitionError(f"{what}, {method!r}: {short_repr(handler)} is not a function")
                if method.startswith(NOTIFICATION_PREFIX) != (handlers is self.notifications):
                    raise DefinitionError(
                        f"{what}: names of notifications begin with {NOTIFICATION_PREFIX!r}, and those of methods do "
                        f"not: {method!r}"
                    )

    def declared_in(self, capabilities: Any) -> Json | None:
        """Return the settings that capabilities have for it; None for none. Malformed ones declare nothing."""
        extensions = capabilities.get("extensions") if isinstance(capabilities, Mapping) else None
        settings = extensions.get(self.id) if isinstance(extensions, dict) else None
        return settings if isinstance(settings, dict) else None

    @property
    def required(self) -> Json:
        """Data of the error for a client that does not declare it."""
        return {"requiredCapabilities": {"extensions": {self.id: self.client_settings}}}

    def missing(self, what: str) -> ProtocolError:
        """Return the error for a client that does not declare it; ``what`` needs it."""
        of_version = " of version 2026-07-28" if self.is_modern else ""
        message = f"{what} needs a client that declares the extension {self.id!r}{of_version}"
        return ProtocolError(MISSING_CAPABILITY, message, self.required)

    async def answer(self, method: str, params: Json, context: InvocationContext) -> Json:
        """Answer a request with the handler of its method.

        Raises:
            TypeError: The handler returned something else than a mapping.
        """
        result = self.methods[method]({key: params[key] for key in params if key != "_meta"}, context)
        if inspect.isawaitable(result):
            result = await result
        if not isinstance(result, Mapping):
            raise TypeError(f"the handler of {method!r} returns the result as a mapping, not {short_repr(result)}")
        return dict(result)


Extensions = Mapping[str, Json] | Iterable[Extension]
"""Extensions, or the settings of each by its identifier. Later changes of a dict or list apply."""


def extensions_of(given: Extensions) -> tuple[Extension, ...]:
    """Return extensions, of which settings alone are announced and declared as they are."""
    if isinstance(given, Mapping):
        return tuple(Extension(id=key, settings=each, client_settings=each) for key, each in given.items())
    found = tuple(given)
    for each in found:
        require_type(each, Extension, "an item of extensions", "an Extension(id=…)")
    return found


APP_TYPE = "text/html;profile=mcp-app"
"""Media type of an app's page."""
APPS = Extension(id="io.modelcontextprotocol/ui", client_settings={"mimeTypes": [APP_TYPE]})
"""Apps, without which servers may list their tools without their pages (MCP Apps)."""
EVENTS = Extension(id="io.modelcontextprotocol/events")
"""Events (SEP-3415)."""
TASKS = Extension(id="io.modelcontextprotocol/tasks", needs_client=True, is_modern=True)
"""Tasks (SEP-2663)."""
