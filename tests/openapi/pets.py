"""A real FastAPI application, which records its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Body, Cookie, FastAPI, Form, Header, HTTPException, Query, Request, Response, Security, UploadFile
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.security import APIKeyCookie, APIKeyHeader, APIKeyQuery, HTTPBasic, HTTPBearer
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECRET = "s3cret-Token/1 2"


class Pet(BaseModel):
    """A pet."""

    id: int = Field(default=0, json_schema_extra={"readOnly": True})
    name: str
    tags: list[str] = []
    friends: list[Pet] = []


def pets_app() -> FastAPI:  # noqa: C901 - a list of operations
    """Create an application with one operation for each feature of an operation.

    ``app.state.seen`` holds each request: its method, raw path, raw query, headers and cookies.
    """
    app = FastAPI(title="Pets")
    app.state.seen = []

    @app.middleware("http")
    async def write_down(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        app.state.seen.append(
            {
                "method": request.method,
                "path": request.scope["raw_path"].decode(),
                "query": request.scope["query_string"].decode(),
                "headers": dict(request.headers),
                "cookies": request.cookies,
            }
        )
        return await call_next(request)

    @app.get("/pets", operation_id="listPets", tags=["pets"])
    async def list_pets(
        limit: int = 10,
        tag: Annotated[list[str] | None, Query()] = None,
        x_trace: Annotated[str | None, Header()] = None,
        theme: Annotated[str | None, Cookie()] = None,
    ) -> list[str]:
        return [str(limit), *(tag or []), str(x_trace), str(theme)]

    @app.post("/pets", operation_id="createPet", tags=["pets"], status_code=201)
    async def create_pet(pet: Pet) -> Pet:
        """Create a pet.

        Its id is given by the server.
        """
        return pet.model_copy(update={"id": 7})

    @app.get("/pets/{id}", operation_id="getPet", tags=["pets"])
    async def get_pet(id: str, fields: str = "") -> dict[str, str]:  # noqa: A002 - the name of the parameter
        return {"id": id, "fields": fields}

    @app.put("/pets/{id}", operation_id="renamePet", deprecated=True)
    async def rename_pet(id: int, body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:  # noqa: A002
        return {"id": id, **body}

    @app.delete("/pets/{id}", operation_id="deletePet", status_code=204)
    async def delete_pet(id: int) -> None:  # noqa: A002
        if id > 100:
            raise HTTPException(404, f"there is no pet {id}")

    @app.get("/pets/{id}/secret", operation_id="secret")
    async def secret(id: str) -> str:  # noqa: A002
        return "the secret of " + id

    @app.post("/forms", operation_id="sendForm")
    async def send_form(name: Annotated[str, Form()], tags: Annotated[list[str], Form()]) -> dict[str, Any]:
        return {"name": name, "tags": tags}

    @app.post("/uploads", operation_id="upload")
    async def upload(
        title: Annotated[str, Form()],
        photo: UploadFile,
        pages: list[UploadFile] | None = None,
        cover: UploadFile | None = None,
        numbers: Annotated[list[int] | None, Form()] = None,
    ) -> list[Any]:
        sent = [photo, *(pages or []), *([cover] if cover else [])]
        files = [[each.filename, each.content_type, (await each.read()).hex()] for each in sent]
        return [title, numbers, files]

    @app.get("/away", operation_id="away")
    async def away() -> RedirectResponse:
        return RedirectResponse("http://127.0.0.1:9/stolen")

    @app.get("/inside", operation_id="inside")
    async def inside() -> RedirectResponse:
        return RedirectResponse("/pets/1/secret")

    @app.get("/long", operation_id="long", response_class=PlainTextResponse)
    async def long(size: int) -> str:
        return "x" * size

    @app.get("/wrong", operation_id="wrong", response_model=Pet)
    async def wrong() -> JSONResponse:
        return JSONResponse({"id": 1})

    @app.get("/image", operation_id="image", response_class=Response)
    async def image() -> Response:
        return Response(b"\x89PNG", media_type="image/png")

    @app.get("/echo", operation_id="failing")
    async def failing() -> JSONResponse:
        return JSONResponse({"you sent": app.state.seen[-1]}, status_code=418)

    @app.get("/cookie", operation_id="setsCookie", response_class=PlainTextResponse)
    async def sets_cookie(request: Request, response: Response) -> str:
        response.set_cookie("session", "somebody")
        return request.cookies.get("session", "nobody")

    bearer, basic = HTTPBearer(scheme_name="bearer"), HTTPBasic(scheme_name="basic")
    header = APIKeyHeader(name="X-Key", scheme_name="inHeader")
    query = APIKeyQuery(name="key", scheme_name="inQuery")
    cookie = APIKeyCookie(name="key", scheme_name="inCookie")
    schemes: dict[str, Any] = {
        "bearer": bearer,
        "basic": basic,
        "inHeader": header,
        "inQuery": query,
        "inCookie": cookie,
    }
    for name, scheme in schemes.items():
        app.add_api_route(f"/secure/{name}", _answer_ok, operation_id=f"with_{name}", dependencies=[Security(scheme)])
    return app


async def _answer_ok() -> str:
    return "ok"
