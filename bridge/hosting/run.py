"""``bridge.run``: serve tools from a program, as ``bridge serve`` does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bridge.errors import DefinitionError
from bridge.hosting.process import (
    INTERRUPTED,
    drop_unwritable_diagnostics,
    exit_process,
    imported_target,
    print_message,
    print_unserved_routes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mcp.server.auth.provider import TokenVerifier

    from bridge.server.auth import Auth
    from bridge.server.server import Server
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.middleware import Middleware

_NAME = "bridge"


def run(
    *tools: object,
    transport: Literal["stdio", "http"] = "stdio",
    name: str | None = None,
    version: str | None = None,
    instructions: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    auth: Auth | TokenVerifier | None = None,
    lifespan: Lifespan[Any] | Callable[[], Any] | None = None,
    middleware: Iterable[Middleware] = (),
) -> None:
    """Serve tools until a signal; call it last, in the main thread.

    ``if __name__ == "__main__": bridge.run(add)`` makes ``python tools.py`` a server; ``bridge serve tools.py`` has
    more options. Standard output is redirected to standard error, and no option is read from the environment.

    Args:
        tools: A `bridge.Server`, which has the other options itself; or anything that a ToolBox accepts.
        transport: ``stdio`` for a host that starts the program; ``http`` for streamable HTTP at ``/mcp``, and SSE.
        name: Server name; by default the name of the program's file.
        version: Server version; by default the program's ``__version__``, if any.
        instructions: Instructions for a model about the server.
        host: Over HTTP: host to listen on.
        port: Over HTTP: port; 0 for a free one, which is printed.
        auth: Over HTTP: authentication, as for `bridge.server.http_app`; required if the host is reachable from other
            machines.
        lifespan: Lifespan of the server, as for `bridge.server.Server`; that of a function's own module needs no
            mention.
        middleware: Middleware around everything that is served, as for `bridge.server.Server`.

    Raises:
        DefinitionError: There are no tools, a tool or the transport is invalid, a public host has no authentication, or
            a command of ``bridge`` imports the program, which would not end; or an option of a given server is given.
        BridgeError: The address cannot be bound, or the server failed.
        OSError: Over stdio: standard input or output is closed.
        SystemExit: The server was interrupted by Ctrl-C.
    """
    if transport not in ("stdio", "http"):
        raise DefinitionError(f"transport must be 'stdio' or 'http', not {transport!r}")
    if (target := imported_target.get()) is not None:
        raise DefinitionError(
            f"bridge.run would serve {target} while it is imported; write it under if __name__ == '__main__':"
        )
    if transport == "stdio" and auth is not None:
        raise DefinitionError("auth needs transport='http'; over stdio, the only caller is the parent process")
    from bridge.server.server import Server  # noqa: PLC0415 - after checks that need no imports

    if len(tools) == 1 and isinstance(tools[0], Server):
        server = tools[0]
        given: dict[str, Any] = {"name": name, "version": version, "instructions": instructions, "lifespan": lifespan}
        given["middleware"] = tuple(middleware) or None
        if unused := [option for option, value in given.items() if value is not None]:
            raise DefinitionError(f"give {' and '.join(unused)} to the Server: run(server) takes them from there")
    else:
        server = Server(
            tools,
            name=name or Path(sys.argv[0]).stem or _NAME,
            version=_version_of_program() if version is None else version,
            instructions=instructions,
            lifespan=lifespan,
            middleware=middleware,
        )
    drop_unwritable_diagnostics()
    try:
        if transport == "stdio":
            _over_stdio(server)
        else:
            _over_http(server, host, port, auth)
    except KeyboardInterrupt:
        sys.exit(exit_process(INTERRUPTED))


def _version_of_program() -> str:
    version = getattr(sys.modules.get("__main__"), "__version__", "")
    return version if isinstance(version, str) else ""


def _over_stdio(server: Server) -> None:
    from bridge.server.stdio.process import take_standard_streams  # noqa: PLC0415 - as above
    from bridge.server.stdio.server import serve_stdio  # noqa: PLC0415 - not needed for HTTP

    streams = take_standard_streams()
    print_message(f"serving {server.name} over stdio")
    print_unserved_routes(server)
    serve_stdio(server, streams)


def _over_http(server: Server, host: str, port: int, auth: Auth | TokenVerifier | None) -> None:
    from bridge.hosting import serve  # noqa: PLC0415 - not needed for stdio
    from bridge.hosting import sockets as sockets_module  # noqa: PLC0415 - not needed for stdio
    from bridge.hosting.connection_limits import ConnectionLimits  # noqa: PLC0415 - as above
    from bridge.hosting.process import redirect_stdout  # noqa: PLC0415 - as above
    from bridge.hosting.server import Service  # noqa: PLC0415 - as above
    from bridge.server.http.app import http_app  # noqa: PLC0415 - as above
    from bridge.server.http.probes import HealthState, check_paths, probe_pages  # noqa: PLC0415 - as above

    addresses = sockets_module.resolve(host, port)
    if auth is None and not sockets_module.are_loopback(addresses):
        raise DefinitionError(
            f"{host!r} can be reached from other machines without a key: "
            "pass auth=Auth(ApiKeys(ApiKey(…))) of bridge.server.auth, or listen on 127.0.0.1"
        )
    app = http_app(server, host=host, auth=auth)
    check_paths(route.path for route in app.own_routes)
    sockets = sockets_module.bind(addresses)
    url = sockets_module.url_of(host, sockets[0].getsockname()[1], "/mcp")
    operations = HealthState(servers=tuple, is_held=True)
    with redirect_stdout():
        service = Service(
            app=app, operations=operations, opened=lambda: print_message(f"serving {server.name} at {url}")
        )
        serve.serve_app(service, sockets, serve.AdminPages(pages=probe_pages(operations)), ConnectionLimits())
