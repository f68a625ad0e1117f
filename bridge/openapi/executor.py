"""Executor of an operation: arguments to a request, and the response to a result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
from pydantic_core import from_json, to_json

from bridge.client.transports.received_data import media_type
from bridge.errors import ArgumentProblem, ArgumentsError, ToolError
from bridge.openapi.api import ApiRequest
from bridge.openapi.parameters import FORM, MULTIPART
from bridge.openapi.serialization import (
    Part,
    UnsendableError,
    encoded,
    has_dot_segments,
    in_header,
    in_multipart,
    in_path,
    in_query,
    json_of,
)
from bridge.text import nearest, short_repr
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.content import Audio, File, Image, Text

if TYPE_CHECKING:
    from bridge.client.output_schema import OutputSchema
    from bridge.openapi.api import ApiResponse, HttpApi
    from bridge.openapi.parameters import Inputs, Parameter
    from bridge.openapi.security import Credential
    from bridge.tools.calls import ToolExecutionRequest
    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext

_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_SAFE_IN_TEMPLATE = "/%:@!$&'()*+,;="
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json")
_TEXT = re.compile(r"text/.*|application/(?:[\w.+-]+\+)?(?:xml|yaml|javascript)|application/x-ndjson")
# Not those of host names, whose decoders take quadratic time.
_CHARSET = re.compile(
    r"charset=\"?((?:utf|us-ascii|iso|latin|windows|cp|mac|koi8|gb|big5|shift|euc|hz)[\w-]*)", re.IGNORECASE
)
_MAX_SHOWN_CHARS = 2000
_DONE = "Success"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationExecutor:
    """Sends the requests of one operation; see `bridge.tools.tool.ToolExecutor`."""

    tool: str
    """Name of the tool, for messages."""
    api: HttpApi
    """The client."""
    method: str
    """HTTP method."""
    base_url: str
    """URL before the path."""
    path: str
    """Path template."""
    inputs: Inputs
    """Parameters and body."""
    credentials: tuple[Credential, ...]
    """Credentials and configured headers."""
    output: OutputSchema | None
    """Schema of the response; None if the result has no structured content."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:  # noqa: ARG002 - an executor's
        """Send one request.

        Raises:
            ArgumentsError: An argument is unknown, missing, or cannot be sent.
            ToolError: The request failed.
        """
        response = await self.api.send(self._request(request.arguments_by_name()))
        return await self._result(response)

    def _request(self, arguments: Mapping[str, Any]) -> ApiRequest:
        given = self._given(arguments)
        problems: list[ArgumentProblem] = []
        segments: dict[str, str] = {}
        query: list[tuple[str, str]] = []
        headers: list[tuple[str, str]] = [("Accept", "application/json, */*;q=0.5")]
        cookies: list[tuple[str, str]] = []
        for parameter, value in given:
            try:
                match parameter.place:
                    case "path":
                        segments[parameter.name] = _path_value(parameter, value)
                    case "query":
                        query += self._query(parameter, value)
                    case "header":
                        headers.append(
                            (parameter.name, in_header(_as_json(parameter, value), explode=parameter.explode))
                        )
                    case "cookie":
                        cookies += in_query(
                            parameter.name, _as_json(parameter, value), "form", explode=parameter.explode
                        )
                    case _:
                        pass
            except UnsendableError as error:
                problems.append(ArgumentProblem(parameter.argument, str(error), short_repr(value)))
        if problems:
            raise ArgumentsError(self.tool, problems)
        path = _TEMPLATE.sub(lambda match: segments[match[1]], self._quoted_template())
        if has_dot_segments(path) or path.count("/") != self.path.count("/"):
            raise ArgumentsError(self.tool, [ArgumentProblem("", "should not lead to another path")])
        content, kind = self._body([(parameter, value) for parameter, value in given if parameter.place == "body"])
        if content is not None:
            headers.append(("Content-Type", kind))
        return ApiRequest(
            label=f"{self.method} {self.path}",
            method=self.method,
            url=self.base_url + path,
            query=query,
            headers=headers,
            cookies=cookies,
            content=content,
            credentials=self.credentials,
        )

    def _quoted_template(self) -> str:
        """The path template with its fixed parts encoded."""
        return "".join(
            part if part.startswith("{") else quote(part, safe=_SAFE_IN_TEMPLATE)
            for part in re.split(r"(\{[^{}]*\})", self.path)
        )

    def _given(self, arguments: Mapping[str, Any]) -> list[tuple[Parameter, Any]]:
        """Return the parameters with an argument; null stands for none where the parameter is optional."""
        known = {parameter.argument: parameter for parameter in self.inputs.parameters}
        problems = []
        for name in arguments:
            if name not in known:
                near = nearest(name, known)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                problems.append(ArgumentProblem(name, f"is not a parameter{hint}"))
        given = []
        for name, parameter in known.items():
            is_absent = name not in arguments
            if not is_absent and arguments[name] is None:
                is_absent = parameter.place != "body"
            if not is_absent:
                given.append((parameter, arguments[name]))
            elif parameter.is_required:
                problems.append(ArgumentProblem(name, "is required"))
        if problems:
            raise ArgumentsError(self.tool, problems)
        return given

    def _query(self, parameter: Parameter, value: Any) -> list[tuple[str, str]]:
        pairs = in_query(parameter.name, _as_json(parameter, value), parameter.style, explode=parameter.explode)
        if isinstance(value, Mapping) and parameter.explode and parameter.style != "deepObject":
            others = {encoded(each.name) for each in self.inputs.parameters if each is not parameter}
            others |= {encoded(each.name) for each in self.credentials}
            if others & {name for name, _ in pairs}:
                raise UnsendableError("should not have the name of another parameter as a key")
        return pairs

    def _body(self, given: list[tuple[Parameter, Any]]) -> tuple[bytes | None, str]:
        """Return the body, None without one, and its media type."""
        body = self.inputs.body
        if body is None or not (given or body.is_required):
            return None, ""
        if media_type(body.media_type) == MULTIPART:
            return self._multipart(given)
        value: Any = {parameter.name: item for parameter, item in given}
        if body.is_whole:
            value = given[0][1]
        is_form = media_type(body.media_type) == FORM
        if is_form and not isinstance(value, Mapping):
            raise ArgumentsError(self.tool, [ArgumentProblem("body", "should be an object", short_repr(value))])
        try:
            if not is_form:
                return json_of(value), body.media_type
            pairs = [pair for name, item in value.items() for pair in in_query(name, _flat(item), "form", explode=True)]
        except UnsendableError as error:
            raise ArgumentsError(self.tool, [ArgumentProblem("body", str(error))]) from None
        return "&".join(f"{name}={item}" for name, item in pairs).encode(), body.media_type

    def _multipart(self, given: list[tuple[Parameter, Any]]) -> tuple[bytes | None, str]:
        """Encode a form with files; the HTTP client quotes the names and chooses the boundary (RFC 7578)."""
        parts: list[tuple[str, Part]] = []
        for parameter, value in given:
            try:
                parts += [(parameter.name, each) for each in in_multipart(parameter.name, value, parameter.file_type)]
            except UnsendableError as error:
                problem = ArgumentProblem(parameter.argument, str(error), short_repr(value))
                raise ArgumentsError(self.tool, [problem]) from None
        if not parts:
            return None, ""
        request = httpx2.Request(self.method, self.base_url, files=parts)
        return request.read(), request.headers["Content-Type"]

    async def _result(self, response: ApiResponse) -> ToolExecutionResult:
        kind = media_type(response.content_type)
        value: Any = None
        content: Content
        is_json = False
        if not response.content:
            content = Text(_DONE)
        elif _JSON.fullmatch(kind):
            try:
                value, is_json = from_json(response.content, allow_inf_nan=False), True
                content = Text(to_json(value).decode())
            except ValueError:
                content = Text(_decoded(response))
        elif not kind or _TEXT.fullmatch(kind):
            content = Text(_decoded(response))
        elif kind.startswith("image/"):
            content = Image(response.content, kind)
        elif kind.startswith("audio/"):
            content = Audio(response.content, kind)
        else:
            content = File(f"{self.base_url}{self.path}", response.content, kind)
        if self.output is None:
            return ToolExecutionResult((content,))
        problem = await self.output.problem(value) if is_json else "it is not JSON"
        if problem is None and isinstance(value, dict):
            return ToolExecutionResult((content,), structured_content=value)
        shown = content.text[:_MAX_SHOWN_CHARS] if isinstance(content, Text) else kind
        raise ToolError(
            f"{self.method} {self.path} succeeded with status {response.status}, but its response does not match the "
            f"schema in the OpenAPI document: {problem or 'it is not an object'}. The response: {shown}"
        )


def _path_value(parameter: Parameter, value: Any) -> str:
    return in_path(parameter.name, _as_json(parameter, value), parameter.style, explode=parameter.explode)


def _as_json(parameter: Parameter, value: Any) -> Any:
    return json_of(value).decode() if parameter.is_json else value


def _flat(value: Any) -> Any:
    """Return a value of a form; objects are written as JSON (OpenAPI 3.1, "Encoding Object")."""
    return json_of(value).decode() if isinstance(value, Mapping) else value


def _decoded(response: ApiResponse) -> str:
    """The body as text; as UTF-8 if its charset is not known."""
    charset = _CHARSET.search(response.content_type)
    try:
        return response.content.decode(charset[1] if charset else "utf-8", errors="replace")
    except (LookupError, UnicodeError):
        return response.content.decode(errors="replace")
