from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from bridge import tool
from bridge.errors import DefinitionError
from bridge.service.ai_service import ai_service
from bridge.service.templates import user_message
from tests.service.fakes import FakeModel

if TYPE_CHECKING:
    from bridge.service.result import Result
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
        ("Assistant", "is no interface"),
        (Unclear, r"Unclear\.chat does not say what 'a' and 'b' is for"),
        (Unused, r"Unused\.chat does not say what 'b' is for"),
        (Mute, r"Mute\.chat says nothing to the model"),
        (NoIt, r"names 'it', and no parameter is left for it"),
        (ToolWithResult, "is a tool and returns"),
        (ToolThatStreams, "is a tool and returns"),
        (NeedsArguments, "cannot be implemented"),
    ],
)
def test_an_interface_that_a_model_cannot_implement_is_refused(interface: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        ai_service(interface, chat_model=FakeModel())
