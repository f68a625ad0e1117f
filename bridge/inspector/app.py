"""HTTP interface of the inspector's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bridge.client.output_schema import OutputSchema
from bridge.errors import BridgeError, ChatModelError, ServerError, ToolError, WireError
from bridge.inspector.access import SANDBOX_PATH, AccessGuard
from bridge.inspector.apps import app_of
from bridge.inspector.page_json import page_json
from bridge.inspector.requests import METHODS
from bridge.inspector.snippets import as_call_line, as_curl, as_program, as_test
from bridge.wire.extension import APP_TYPE

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from bridge.inspector.access import AccessTokens
    from bridge.inspector.apps import App
    from bridge.inspector.inspector import Inspector
    from bridge.inspector.requests import PageRequest
    from bridge.inspector.servers import InspectedServer
    from bridge.types import Json

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a request of the page."""

STATIC = Path(__file__).parent / "static"
"""Folder of the parts of the page."""


def inspector_app(inspector: Inspector, tokens: AccessTokens) -> ASGIApp:
    """Create the ASGI application of the page; serve it while the inspector runs.

    Args:
        inspector: The servers.
        tokens: Secrets that the page is opened with: its path, then ``/?token=…``.
    """
    page = _Page(inspector, tokens)
    routes = [
        Route("/", page.index),
        Route("/events", page.events),
        Route("/requests", page.send, methods=["POST"]),
        Route("/requests/clear", page.clear_requests, methods=["POST"]),
        Route("/requests/{number:int}", page.request),
        Route("/requests/{number:int}/cancel", page.cancel, methods=["POST"]),
        Route("/requests/{number:int}/snippets", page.snippets),
        Route("/requests/{number:int}/app", page.app),
        Route("/questions/{number:int}", page.answer, methods=["POST"]),
        Route("/questions/{number:int}/proposal", page.propose, methods=["POST"]),
        Route("/messages/clear", page.clear_messages, methods=["POST"]),
        Route("/messages/{number:int}", page.message),
        Route("/check", page.check, methods=["POST"]),
        Route("/complete", page.complete, methods=["POST"]),
        Route("/servers", page.put_server, methods=["POST"]),
        Route("/servers", page.entries),
        Route("/servers/{name}/watch", page.watch, methods=["POST"]),
        Route("/servers/{name}/refresh", page.refresh, methods=["POST"]),
        Route("/servers/{name}/restart", page.restart, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    frames = [
        Route("/{key}/{number:int}/app", page.app_frame),
        Route("/{key}/{number:int}/{index:int}", page.frame),
    ]
    mounts = [Mount(tokens.path, routes=routes), Mount(SANDBOX_PATH, routes=frames)]
    return AccessGuard(Starlette(routes=mounts), tokens)


class _Page:
    """Endpoints of the page."""

    def __init__(self, inspector: Inspector, tokens: AccessTokens) -> None:
        self._inspector = inspector
        self._tokens = tokens

    async def index(self, _: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def events(self, _: Request) -> Response:
        inspector = self._inspector
        return StreamingResponse(inspector.events.of_page("state", inspector.state()), media_type="text/event-stream")

    async def send(self, request: Request) -> Response:
        body = await _body(request)
        server, method, params = self._server(body.get("server")), body.get("method"), body.get("params")
        if method not in METHODS or not isinstance(params, dict):
            raise HTTPException(400, f"the method {method!r} cannot be sent from the page, or has no parameters")
        if method == "tools/call" and not (
            isinstance(params.get("name"), str) and isinstance(params.get("arguments"), dict)
        ):
            raise HTTPException(400, "a call has a name and arguments, which are an object")
        return _json(self._inspector.requests.start(server, method, params).summary())

    async def request(self, request: Request) -> Response:
        found = self._request(request)
        return _json({**found.whole(), "frames": self._tokens.frames_path(found.number)})

    async def cancel(self, request: Request) -> Response:
        self._request(request).scope.cancel()
        return _json({})

    async def snippets(self, request: Request) -> Response:
        found = self._request(request)
        if found.method != "tools/call":
            raise HTTPException(404, "only calls of tools have snippets")
        server, name, arguments = self._server(found.server), found.params["name"], found.params["arguments"]
        origin, schema = server.origin, (server.tool(name) or {}).get("inputSchema")
        return _json(
            {
                "line": as_call_line(origin, name, arguments),
                "test": as_test(origin, name, arguments, found.answer),
                "python": as_program(origin, name, arguments),
                "curl": as_curl(server.address, server.connection.protocol_version, name, arguments, schema),
            }
        )

    async def frame(self, request: Request) -> Response:
        """A resource as a document, which the policy of its path keeps apart from the page."""
        result = (self._request(request).answer or {}).get("result", {})
        contents, index = result.get("contents"), request.path_params["index"]
        if not (isinstance(contents, list) and index < len(contents) and isinstance(contents[index].get("text"), str)):
            raise HTTPException(404, "there is no text to show")
        return HTMLResponse(contents[index]["text"])

    async def app(self, request: Request) -> Response:
        """The domains and permissions that an app asks for, and the path of its document."""
        frames = self._tokens.frames_path(request.path_params["number"])
        return _json({**self._app(request).summary(), "frame": f"{frames}/app"})

    async def app_frame(self, request: Request) -> Response:
        """The document of an app, under its own policy."""
        app = self._app(request)
        return HTMLResponse(app.html, headers={"content-security-policy": app.policy})

    def _app(self, request: Request) -> App:
        found = self._request(request)
        result = (found.answer or {}).get("result")
        listed = self._server(found.server).resource(found.params.get("uri"))
        app = None if found.method != "resources/read" or result is None else app_of(result, listed)
        if app is None:
            raise HTTPException(404, f"the resource is no app: it has no text of the type {APP_TYPE!r}")
        return app

    async def clear_requests(self, _: Request) -> Response:
        self._inspector.requests.clear()
        return self._changed()

    async def clear_messages(self, _: Request) -> Response:
        self._inspector.traffic.clear()
        return self._changed()

    async def answer(self, request: Request) -> Response:
        answer = (await _body(request)).get("answer")
        try:
            self._inspector.questions.answer(request.path_params["number"], answer)
        except KeyError:
            raise HTTPException(404, "the question is no longer open") from None
        except WireError as error:
            raise HTTPException(400, str(error)) from error
        return _json({})

    async def propose(self, request: Request) -> Response:
        try:
            return _json(await self._inspector.questions.proposal(request.path_params["number"]))
        except KeyError:
            raise HTTPException(404, "the question is no longer open") from None
        except (WireError, ToolError, ChatModelError) as error:
            raise HTTPException(502, str(error)) from error

    async def message(self, request: Request) -> Response:
        found = self._inspector.traffic.get(request.path_params["number"])
        if found is None:
            raise HTTPException(404, "the message is no longer kept")
        return Response(found.text, media_type="application/json")

    async def check(self, request: Request) -> Response:
        body = await _body(request)
        schema = self._schema_of(body)
        return _json({"problem": None if schema is None else await schema.problem(body.get("arguments"))})

    def _schema_of(self, body: Json) -> OutputSchema | None:
        """The schema of a tool's arguments, or of the answer to a form; None for one that was answered meanwhile."""
        if isinstance(number := body.get("question"), int):
            try:
                return OutputSchema(self._inspector.questions.schema(number), "the form")
            except KeyError:
                return None
        server, name = self._server(body.get("server")), body.get("tool")
        if (tool := server.tool(name)) is None:
            raise HTTPException(404, f"there is no tool {name!r}")
        return OutputSchema(tool["inputSchema"], f"the tool {name!r}")

    async def complete(self, request: Request) -> Response:
        body = await _body(request)
        server, params = self._server(body.get("server")), body.get("params")
        if not isinstance(params, dict):
            raise HTTPException(400, "a completion has parameters, which are an object")
        return _json({"values": await server.completed(params)})

    async def entries(self, _: Request) -> Response:
        """All servers as an ``mcp.json`` has them."""
        return _json({"mcpServers": self._inspector.entries()})

    async def put_server(self, request: Request) -> Response:
        """Add or change a server; its entry may name any command of this machine, as the file may."""
        body = await _body(request)
        name, entry = body.get("name"), body.get("entry")
        if not isinstance(name, str) or not name.strip() or not isinstance(entry, dict):
            raise HTTPException(400, "a server has a name and an entry, which is an object")
        try:
            await self._inspector.put(name, entry, is_saved=body.get("save") is True)
        except BridgeError as error:
            raise HTTPException(400, str(error)) from error
        return _json({})

    async def watch(self, request: Request) -> Response:
        """Subscribe to a resource, or end that."""
        server, body = self._server(request.path_params["name"]), await _body(request)
        if not isinstance(uri := body.get("uri"), str):
            raise HTTPException(400, "a resource has a URI")
        if body.get("watch") is not True:
            server.unwatch(uri)
            return _json({})
        try:
            await server.watch(uri)
        except (ServerError, WireError) as error:
            raise HTTPException(502, str(error)) from error
        return _json({})

    async def refresh(self, request: Request) -> Response:
        self._server(request.path_params["name"]).refresh()
        return _json({})

    async def restart(self, request: Request) -> Response:
        await self._server(request.path_params["name"]).restart()
        return _json({})

    def _changed(self) -> Response:
        """Send the whole state to all pages."""
        self._inspector.events.publish("state", self._inspector.state())
        return _json({})

    def _server(self, name: object) -> InspectedServer:
        server = self._inspector.servers.get(name) if isinstance(name, str) else None
        if server is None:
            raise HTTPException(404, f"there is no server {name!r}")
        return server

    def _request(self, request: Request) -> PageRequest:
        found = self._inspector.requests.get(request.path_params["number"])
        if found is None:
            raise HTTPException(404, "the request is no longer kept")
        return found


async def _body(request: Request) -> Json:
    """Read a JSON object."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES / 2**20:g} MiB")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise HTTPException(400, "the body is not a JSON object")
    return value


def _json(data: Any) -> Response:
    return Response(page_json(data), media_type="application/json")
