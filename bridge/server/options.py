"""Options of a server, and of serving it over HTTP, for functions that pass them on."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcp.server.auth.provider import TokenVerifier

    from bridge.server.auth.auth import Auth
    from bridge.server.calls import Calls
    from bridge.server.card import ServerCard
    from bridge.server.events.options import EventOptions
    from bridge.server.limits import Limits
    from bridge.server.lists.search import ServerToolSearch
    from bridge.server.profiles import Profile
    from bridge.server.tasks.options import TaskOptions
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.middleware import Middleware
    from bridge.wire.extension import Extensions

__all__ = ["HttpOptions", "MountOptions", "ServerOptions", "check_http_options", "check_server_options"]


class ServerOptions(TypedDict, total=False):
    """Options of `bridge.Server`, which documents them."""

    name: str
    version: str
    title: str | None
    instructions: str | None
    page_size: int | None
    policy: ExecutionPolicy | None
    state_keys: Sequence[bytes] | None
    memory_id_of: Callable[[InvocationContext], Any] | None
    limits: Limits | None
    max_calls: int | None
    tasks: TaskOptions | None
    events: EventOptions | None
    lifespan: Lifespan[Any] | Callable[[], Any] | None
    middleware: Iterable[Middleware]
    tool_search: ServerToolSearch | None
    extensions: Extensions
    card: ServerCard | bool
    beside: Calls | None


class MountOptions(TypedDict, total=False):
    """Options of `bridge.mount`: those of `bridge.http_app`, which documents them, apart from ``path``."""

    sse: bool
    streamable: bool
    host: str
    allowed_hosts: Iterable[str]
    allowed_origins: Iterable[str]
    max_request_bytes: int
    session_idle_seconds: float | None
    auth: Auth | TokenVerifier | None
    stateless: bool
    redis_url: str | None
    max_sessions: int
    profiles: Iterable[Profile]


class HttpOptions(MountOptions, total=False):
    """Options of `bridge.http_app`, which documents them."""

    path: str


def check_server_options(options: ServerOptions) -> None:
    """Check the options that other parts of a server would use only later.

    Raises:
        DefinitionError: An option has a value of the wrong type, or the name is empty.
        ValueError: A number is not positive, or a key is too short.
    """
    for option in ("name", "version", "title", "instructions"):
        value = options.get(option)
        if not (isinstance(value, str) or (value is None and option in ("title", "instructions"))):
            raise DefinitionError(f"{option} is a text: not {value!r}")
    if not options["name"]:
        raise DefinitionError("name is empty: give the server a name")
    for option in ("page_size", "max_calls"):
        _check_number(option, options.get(option))
    _check_kinds(options)
    if (memory_id_of := options.get("memory_id_of")) is not None and not callable(memory_id_of):
        raise DefinitionError(f"memory_id_of is a function of the context, or None: not {memory_id_of!r}")
    if (keys := options.get("state_keys")) is not None:
        from bridge.protocol.rounds import check_state_keys  # noqa: PLC0415 - most servers have none

        check_state_keys(keys)


def _check_kinds(options: Mapping[str, Any]) -> None:
    for option, (module, kind) in _KINDS.items():
        value = options.get(option)
        if option == "card" and isinstance(value, bool):
            continue
        if value is not None and not isinstance(value, getattr(import_module(module), kind)):
            wanted = f"a {kind}, True or False" if option == "card" else f"of the type {kind}"
            raise DefinitionError(f"{option} is {wanted}: not {value!r}")
    if not isinstance(extensions := options.get("extensions", ()), Iterable) or isinstance(extensions, str):
        raise DefinitionError(f"extensions is a list of Extension(id=…), or a mapping: not {extensions!r}")


def _check_number(option: str, number: object) -> None:
    if number is None:
        return
    if not isinstance(number, int) or isinstance(number, bool):
        raise DefinitionError(f"{option} is a whole number, or None: not {number!r}")
    if number < 1:
        raise ValueError(f"{option} must be at least 1, not {number!r}")


def check_http_options(function: str, options: Mapping[str, object]) -> None:
    """Check the names of options that are passed on to `bridge.http_app`.

    Raises:
        TypeError: An option does not exist, or is one of `bridge.Server`.
    """
    for name in options:
        if name in ServerOptions.__optional_keys__:
            raise TypeError(f"{function}() takes no {name}: give it to the Server, such as Server(tools, {name}=…)")
        if name not in HttpOptions.__optional_keys__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


_KINDS = {
    "policy": ("bridge.tools.execution", "ExecutionPolicy"),
    "limits": ("bridge.server.limits.limits", "Limits"),
    "card": ("bridge.server.card", "ServerCard"),
    "tasks": ("bridge.server.tasks.options", "TaskOptions"),
    "events": ("bridge.server.events.options", "EventOptions"),
    "tool_search": ("bridge.server.lists.search", "ServerToolSearch"),
}
"""Classes of options and their modules, which most servers do not import."""
