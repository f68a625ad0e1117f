from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client
from mcp_types import ElicitRequestFormParams, ElicitResult

from bridge.server.server import Server
from bridge.tools.questions import Elicitation, InputRequired
from bridge.tools.toolbox import ToolBox
from tests.server.memory import memory
from tests.server.tools import NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams

    from bridge.tools.context import InvocationContext

pytestmark = pytest.mark.anyio


async def test_a_state_comes_back_with_the_answers_as_they_were_given_and_the_same_may_be_asked_again() -> None:
    seen: list[Any] = []

    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        left = context.resumption
        seen.append((context.round, left and (left.state, dict(left.answers))))
        count = 0 if left is None else left.state["count"] + 1
        if count < 2:
            raise InputRequired({"name": Elicitation(f"question {count}", NAME_FORM)}, {"count": count})
        return "done"

    async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        return ElicitResult(action="accept", content={"name": params.message})

    server = Server(ToolBox(made("ask", body)), name="tests")
    async with Client(memory(server), mode="auto", elicitation_callback=elicit) as client:
        result = await client.call_tool("ask", {})
    assert result.structured_content is None
    assert seen == [
        (0, None),
        (1, ({"count": 0}, {"name": {"action": "accept", "content": {"name": "question 0"}}})),
        (2, ({"count": 1}, {"name": {"action": "accept", "content": {"name": "question 1"}}})),
    ]
