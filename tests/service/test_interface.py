from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pydantic import BaseModel

from bridge import tool
from bridge.errors import DefinitionError
from bridge.service.ai_service import ai_service
from bridge.service.templates import user_message
from tests.service.fakes import FakeModel

if TYPE_CHECKING:
    from bridge.service.events import Result
    from bridge.service.token_stream import TokenStream


class NoMethods: ...


class Unclear(Protocol):
    async def chat(self, a: str, b: str) -> str: ...


class Unused(Protocol):
    @user_message("Only {a}")
    async def chat(self, a: str, b: str) -> str: ...


class Mute(Protocol):
    async def chat(self) -> str: ...


class NoIt(Protocol):
    @user_message("{it}: {a} {b}")
    async def chat(self, a: str, b: str) -> str: ...


class ToolWithResult(Protocol):
    @tool
    async def chat(self, a: str) -> Result[str]: ...


class ToolThatStreams(Protocol):
    @tool
    def chat(self, a: str) -> TokenStream: ...


class NeedsArguments(ABC):
    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    async def chat(self, a: str) -> str: ...


@pytest.mark.parametrize(
    ("interface", "message"),
    [
        (NoMethods, "declares no method for a model"),
        ("Assistant", "is not an interface"),
        (Unclear, r"Unclear\.chat has no use for 'a' and 'b'"),
        (Unused, r"Unused\.chat has no use for 'b'"),
        (Mute, r"Mute\.chat sends nothing to the model"),
        (NoIt, r"uses 'it', but no parameter is left for it"),
        (ToolWithResult, "is a tool and returns"),
        (ToolThatStreams, "is a tool and returns"),
        (NeedsArguments, "cannot be implemented"),
    ],
)
def test_an_interface_that_a_model_cannot_implement_is_refused(interface: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        ai_service(interface, chat_model=FakeModel())


@pytest.mark.anyio
async def test_types_of_the_function_that_defines_the_interface_are_known() -> None:
    class Local(BaseModel):
        number: int

    class Makes(Protocol):
        async def make(self, text: str) -> Local: ...

    assert await ai_service(Makes, chat_model=FakeModel('{"number": 1}')).make("?") == Local(number=1)


def test_a_type_that_cannot_be_found_is_named() -> None:
    class Makes(Protocol):
        async def make(self, text: str) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821 - the point

    with pytest.raises(DefinitionError, match=r"an annotation of Makes\.make cannot be resolved: 'Nowhere'"):
        ai_service(Makes, chat_model=FakeModel())
