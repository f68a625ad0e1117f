"""Small OpenAPI documents."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bridge.openapi.document import OpenApiDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from bridge.types import Json


def document(operation: Json | None = None, *, path: str = "/x", method: str = "get", **rest: Any) -> Json:
    """A document with one operation."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Test", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": {path: {method: {"operationId": "x", "responses": {}, **(operation or {})}}},
        **rest,
    }


def parsed(content: Json) -> OpenApiDocument:
    """A document of `OpenApiDocument`."""
    return OpenApiDocument(content, "test.json")


def body_of(schema: Any, media_type: str = "application/json", *, required: bool = True) -> Json:
    """A request body with a schema."""
    return {"requestBody": {"required": required, "content": {media_type: {"schema": schema}}}}


@contextmanager
def lines_counted(function: Callable[..., object]) -> Iterator[Callable[[], int]]:
    """Count the lines of a function that run; gives a function that returns the number."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal lines
        lines += event == "line"
        return trace if frame.f_code is function.__code__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: lines
    finally:
        sys.settrace(before)
