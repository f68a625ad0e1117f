"""The id of a request, by which the records of its server name it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from bridge import InvocationContext, ToolBox, resource, tool
from bridge.server.http.app import http_app
from bridge.server.methods import resources
from bridge.telemetry.current import enabled
from bridge.types import REQUEST_ID_META_KEY
from tests.server.http_server import call, modern, request
from tests.server.test_observed import ERAS, Watched, send_over_http


@pytest.mark.parametrize("is_observed", [True, False], ids=["observed", "unobserved"])
@ERAS
def test_a_client_cannot_forge_the_id_by_which_records_name_its_request(
    is_modern: bool, is_observed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    watched, forged = Watched(), "FORGED\nERROR forged line"
    forwarded: list[dict[str, Any]] = []

    @tool
    async def keep(context: InvocationContext) -> None:
        """Keep what other servers would get, and fail."""
        forwarded.append(dict(context.meta))
        raise RuntimeError("a bug")

    message = call("keep", {}, _meta={REQUEST_ID_META_KEY: forged, "kept": 1})
    with ExitStack() as stack:
        if is_observed:
            stack.enter_context(enabled(watched.observer))
        sent = [modern(message) if is_modern else message]
        send_over_http(http_app(ToolBox([keep])), "direct", sent, is_modern=is_modern)
    ids = watched.request_ids if is_observed else [None]
    assert [getattr(record, "request_id", "") for record in caplog.records if record.exc_info] == ids
    assert forwarded == [{"kept": 1} | ({REQUEST_ID_META_KEY: ids[0]} if is_observed else {})]


@ERAS
def test_a_result_that_cannot_be_sent_is_logged_with_the_id(
    is_modern: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @resource("own://broken")
    async def broken() -> str:
        """Return what becomes something that JSON does not have."""
        return "broken"

    monkeypatch.setattr(resources, "contents_to_wire", lambda _: {"contents": object()})
    watched, message = Watched(), request("resources/read", {"uri": "own://broken"})
    with enabled(watched.observer):
        sent = [modern(message) if is_modern else message]
        send_over_http(http_app([broken]), "direct", sent, is_modern=is_modern)
    (logged,) = (record for record in caplog.records if record.exc_info)
    assert "failed outside of its code" in logged.getMessage()
    assert [getattr(logged, "request_id", None)] == [each["request_id"] for each in watched.records]
