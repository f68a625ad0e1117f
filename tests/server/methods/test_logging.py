"""``logging/setLevel``: sessions keep a level each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.protocol.session import Session
from bridge.server.auth.access import EVERYTHING
from bridge.server.core import ServerCore
from bridge.server.dispatch import Dispatch
from bridge.server.exchange import LocalOrigin
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import initialize, request
from tests.server.tools import ADD


@pytest.fixture
def dispatch() -> Dispatch:
    return Dispatch(ServerCore(ToolBox(ADD), name="tests"))


def opened(dispatch: Dispatch) -> Session:
    session = Session()
    dispatch.handshake(initialize(), session, LocalOrigin(EVERYTHING), "")
    return session


def set_level(dispatch: Dispatch, session: Session, level: object) -> dict[str, Any]:
    answer = dispatch.handshake(
        request("logging/setLevel", {"level": level}), session, LocalOrigin(EVERYTHING), session.version
    )
    assert isinstance(answer, bytes)
    told: dict[str, Any] = json.loads(answer)
    return told


def test_a_client_hears_all_until_it_says_otherwise(dispatch: Dispatch) -> None:
    client, other = opened(dispatch), opened(dispatch)
    assert client.log_level == "debug"
    for level in ("error", "warning"):
        assert set_level(dispatch, client, level)["result"] == {}
    assert (client.log_level, other.log_level) == ("warning", "debug")


@pytest.mark.parametrize("level", ["loud", None, 1, ["error"], {}])
def test_a_level_that_is_none_is_refused_and_changes_nothing(dispatch: Dispatch, level: object) -> None:
    client = opened(dispatch)
    error = set_level(dispatch, client, level)["error"]
    assert (error["code"], client.log_level) == (-32602, "debug")
    assert "'level' must be one of debug, info" in error["message"]
