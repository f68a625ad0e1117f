"""``bridge.run``: serve tools from a program, as ``bridge serve`` does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from bridge.errors import DefinitionError
from bridge.hosting.process import (
    INTERRUPTED,
    drop_unwritable_diagnostics,
    exit_process,
    imported_target,
    print_message,
    print_unserved_routes,
)
from bridge.server.options import check_http_options

if TYPE_CHECKING:
    from bridge.server.options import HttpOptions
    from bridge.server.server import Server

_NAME, _PORT, _MAX_PORT = "bridge", 8000, 65535


def run(
    *tools: object,
    transport: Literal["stdio", "http"] = "stdio",
    port: int | None = None,
    **options: Unpack[HttpOptions],
) -> None:
    """Serve tools until a signal; call it last, in the main thread.

    ``if __name__ == "__main__": bridge.run(add)`` makes ``python tools.py`` a server; ``bridge serve tools.py`` has
    more options. Standard output is redirected to standard error, and no option is read from the environment.

    Args:
        tools: A `bridge.Server`, which has a name, instructions and more; or anything that a ToolBox accepts: the
            server then has the name of the program's file, and the program's ``__version__``, if any.
        transport: ``stdio`` for a host that starts the program; ``http`` for streamable HTTP at ``/mcp``, and SSE.
        port: Over HTTP: port; 0 for a free one, which is printed. Defaults to 8000.
        options: Over HTTP: the options of `bridge.http_app`. ``host``, by default ``127.0.0.1``, is listened on;
            ``auth`` is required if it is reachable from other machines.

    Raises:
        DefinitionError: There are no tools, a tool or the transport is invalid, a public host has no authentication, an
            option of HTTP is given for stdio, or a command of ``bridge`` imports the program, which would not end.
        ValueError: The port is none, or as for `bridge.http_app`.
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
    check_http_options("run", options)
    given = [name for name, value in {"port": port, **options}.items() if value is not None]
    if transport == "stdio" and given:
        need = "needs" if len(given) == 1 else "need"
        raise DefinitionError(f"{' and '.join(given)} {need} transport='http'; over stdio, nothing uses it")
    if port is not None and not 0 <= port <= _MAX_PORT:
        raise ValueError(f"port must be from 0 to {_MAX_PORT}, not {port!r}")
    from bridge.server.server import Server  # noqa: PLC0415 - after checks that need no imports

    if len(tools) == 1 and isinstance(tools[0], Server):
        server = tools[0]
    else:
        server = Server(tools, name=Path(sys.argv[0]).stem or _NAME, version=_version_of_program())
    drop_unwritable_diagnostics()
    try:
        if transport == "stdio":
            _over_stdio(server)
        else:
            _over_http(server, _PORT if port is None else port, options)
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


def _over_http(server: Server, port: int, options: HttpOptions) -> None:
    from bridge.hosting import serve  # noqa: PLC0415 - not needed for stdio
    from bridge.hosting import sockets as sockets_module  # noqa: PLC0415 - not needed for stdio
    from bridge.hosting.http.limits import ConnectionLimits  # noqa: PLC0415 - as above
    from bridge.hosting.process import redirect_stdout  # noqa: PLC0415 - as above
    from bridge.hosting.server import Service  # noqa: PLC0415 - as above
    from bridge.server.http.app import http_app  # noqa: PLC0415 - as above
    from bridge.server.http.probes import HealthState, check_paths, probe_pages  # noqa: PLC0415 - as above

    host = options.get("host", "127.0.0.1")
    addresses = sockets_module.resolve(host, port)
    if options.get("auth") is None and not sockets_module.are_loopback(addresses):
        raise DefinitionError(
            f"{host!r} can be reached from other machines without a key: "
            "pass auth=Auth(ApiKeys(ApiKey(…))) of bridge.server.auth, or listen on 127.0.0.1"
        )
    app = http_app(server, **options)
    check_paths(route.path for route in app.own_routes)
    path = options.get("path", "/mcp") if options.get("streamable", True) else "/sse"
    sockets = sockets_module.bind(addresses)
    url = sockets_module.url_of(host, sockets[0].getsockname()[1], path)
    operations = HealthState(servers=tuple, is_held=True)
    with redirect_stdout():
        service = Service(
            app=app, operations=operations, opened=lambda: print_message(f"serving {server.name} at {url}")
        )
        serve.serve_app(service, sockets, serve.AdminPages(pages=probe_pages(operations)), ConnectionLimits())
