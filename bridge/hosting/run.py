"""``bridge.run``: a program of one's own as a server, as ``bridge serve`` would serve it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bridge.errors import DefinitionError
from bridge.hosting.process import INTERRUPTED, exit_process, print_message

if TYPE_CHECKING:
    from mcp.server.auth.provider import TokenVerifier

    from bridge.server.auth import Auth
    from bridge.server.publisher import Publisher

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
) -> None:
    """Serve tools until somebody ends it: the last thing that a program does, in its main thread.

    ``if __name__ == "__main__": bridge.run(add)`` makes ``python tools.py`` a server; ``bridge serve tools.py`` can do
    more. What is printed from then on goes to standard error, and no option is read from the environment.

    Args:
        tools: Anything that a ToolBox takes.
        transport: ``stdio`` for a host that starts the program; ``http`` for streamable HTTP at ``/mcp``, and SSE.
        name: What the server calls itself; by default what the program's file is called.
        version: The version of what is served; by default the program's ``__version__``, where it has one.
        instructions: What a model should know about the server as a whole.
        host: Over HTTP: where to listen.
        port: Over HTTP: the port; 0 for a free one, which is printed.
        auth: Over HTTP: who may come in, as for `bridge.server.http_app`; asked for where a host is more than this
            machine.

    Raises:
        DefinitionError: There are no tools, one that cannot be made, no such transport, or nobody would be asked for a
            credential on a host that others reach.
        BridgeError: It cannot be listened there, or the server ended by itself.
        OSError: Over stdio: standard input or output is closed.
        SystemExit: It was ended by Ctrl-C.
    """
    if transport not in ("stdio", "http"):
        raise DefinitionError(f"transport must be 'stdio' or 'http', not {transport!r}")
    if transport == "stdio" and auth is not None:
        raise DefinitionError("over stdio whoever starts the program is the caller; auth needs transport='http'")
    from bridge.server.publisher import Publisher  # noqa: PLC0415 - after mistakes that are told without it

    publisher = Publisher(
        tools,
        name=name or _name_of_program(),
        version=_version_of_program() if version is None else version,
        instructions=instructions,
    )
    try:
        if transport == "stdio":
            _over_stdio(publisher)
        else:
            _over_http(publisher, host, port, auth)
    except KeyboardInterrupt:
        sys.exit(exit_process(INTERRUPTED))


def _name_of_program() -> str:
    return Path(sys.argv[0]).stem or _NAME


def _version_of_program() -> str:
    version = getattr(sys.modules.get("__main__"), "__version__", "")
    return version if isinstance(version, str) else ""


def _over_stdio(publisher: Publisher) -> None:
    from bridge.server.stdio.process import take_standard_streams  # noqa: PLC0415 - as above
    from bridge.server.stdio.server import serve_stdio  # noqa: PLC0415 - HTTP does without it

    streams = take_standard_streams()
    print_message(f"serving {publisher.name} over stdio")
    serve_stdio(publisher, streams)


def _over_http(publisher: Publisher, host: str, port: int, auth: Auth | TokenVerifier | None) -> None:
    from bridge.hosting import serve  # noqa: PLC0415 - stdio does without it
    from bridge.hosting import sockets as sockets_module  # noqa: PLC0415 - stdio does without it
    from bridge.hosting.connection_limits import ConnectionLimits  # noqa: PLC0415 - as above
    from bridge.hosting.process import DrainTimes, redirect_stdout  # noqa: PLC0415 - as above
    from bridge.server.http.app import http_app  # noqa: PLC0415 - as above
    from bridge.server.http.probes import HealthState, probe_pages  # noqa: PLC0415 - as above

    addresses = sockets_module.resolve(host, port)
    if auth is None and not sockets_module.are_loopback(addresses):
        raise DefinitionError(
            f"{host!r} can be reached from other machines, and nobody is asked for a key: "
            "give auth=Auth(ApiKeys(ApiKey(…))) of bridge.server.auth, or listen on 127.0.0.1"
        )
    app = http_app(publisher.tools, publisher=publisher, host=host, auth=auth)
    sockets = sockets_module.bind(addresses)
    url = sockets_module.url_of(host, sockets[0].getsockname()[1], "/mcp")
    operations = HealthState(servers=tuple, is_held=True)
    with redirect_stdout():
        serve.serve_app(
            app,
            sockets,
            lambda: print_message(f"serving {publisher.name} at {url}"),
            operations=operations,
            operated=serve.AdminPages(times=DrainTimes(), pages=probe_pages(operations)),
            is_debug=False,
            is_child=False,
            bounds=ConnectionLimits(),
        )
