"""Outcomes of guardrails, and guardrails that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from bridge import ChatMemory, DefinitionError, ai_service
from bridge.service import OutputGuardrailRequest, Retry, Rewrite, input_guardrails, output_guardrails
from tests.service.fakes import FakeModel, ask, assistant
from tests.service.guardrails.test_messages import Shop

pytestmark = pytest.mark.anyio


def test_a_decorator_takes_functions_and_decorates_methods() -> None:
    with pytest.raises(DefinitionError, match="a guardrail in output_guardrails must be a function of the request"):
        output_guardrails("polite")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(DefinitionError, match="decorate a method of the service's interface"):
        input_guardrails(lambda _: None)(3)  # type: ignore[type-var]  # the mistake


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input_guardrails": lambda _: True}, "returned True; return None to accept it"),
        ({"input_guardrails": lambda _: Retry("no")}, "returned Retry(reason='no'); return None to accept it"),
        ({"input_guardrails": lambda _: Rewrite(3)}, "rewrote the message to 3; give text or a UserMessage"),
        ({"output_guardrails": lambda _: "better"}, "returned 'better'; return None to accept it"),
    ],
)
async def test_a_wrong_outcome_ends_the_invocation(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        await assistant("Hello", **options).chat("Hello")
    assert problem in str(caught.value)


@pytest.mark.parametrize("value", ["cheap", {"cost": 3}, object()])
async def test_an_answer_cannot_be_rewritten_to_what_the_method_does_not_return(value: object) -> None:
    def wrong(_: OutputGuardrailRequest) -> Rewrite:
        return Rewrite(value)

    service = ai_service(Shop, chat_model=FakeModel('{"price": 1}'), output_guardrails=[wrong])
    with pytest.raises(DefinitionError, match=r"'wrong' rewrote the answer to .*, which Shop\.offer cannot return"):
        await service.offer("lamp")


async def test_an_exception_of_a_guardrail_ends_the_invocation(way: str) -> None:
    async def broken(_: OutputGuardrailRequest) -> None:
        raise ConnectionError("the moderation service is down")

    memory = ChatMemory()
    with pytest.raises(ConnectionError):
        await ask(assistant("Hello", memory=memory, output_guardrails=[broken]), way)
    assert await memory.messages() == ()
