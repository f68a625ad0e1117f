"""A booking desk: conversations that are told apart, tools that come and go, and a person who must approve.

python examples/booking.py                     # offline: a script plays the model
python examples/booking.py --model gpt-5.6     # a model of OpenAI; its key is in OPENAI_API_KEY
"""

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Protocol

import anyio

from bridge import (
    ApprovalPolicy,
    ChatMemory,
    ChatModel,
    ChatRequest,
    InvocationSuspended,
    MemoryId,
    OpenAiChatModel,
    Tool,
    ToolAnnotations,
    ToolError,
    ToolExecutionRequest,
    UserMessage,
    ai_service,
    resume,
    system_message,
    tool,
    tools_from,
)
from bridge.service import Decision, SuspendedInvocation
from bridge.testing import Reply, ScriptedChatModel
from bridge.tools import ToolMemoryId, ToolProviderRequest


class Bookings:
    """The bookings of all customers."""

    def __init__(self) -> None:
        self.of = {"ada": ["B-12345"], "zoe": ["B-67890"]}

    # Who asks is not for the model to say: the parameter is hidden from it, and comes from the service's MemoryId.
    @tool(annotations=ToolAnnotations(read_only=True))
    def list_bookings(self, customer: Annotated[str, ToolMemoryId]) -> list[str]:
        """Lists the customer's bookings."""
        return self.of[customer]

    @tool
    def cancel_booking(self, booking_number: str, customer: Annotated[str, ToolMemoryId]) -> str:
        """Cancels one of the customer's bookings."""
        if booking_number not in self.of[customer]:
            raise ToolError(f"{booking_number} is none of this customer's bookings")
        self.of[customer].remove(booking_number)
        return f"Booking {booking_number} is cancelled."


# Tools may depend on what is said, and on who says it. A dynamic provider is asked again before every request to the
# model, a static one once for each message.
class BookingTools:
    """Gives the tools for bookings only where bookings are talked about."""

    def __init__(self, bookings: Bookings) -> None:
        self._tools = tools_from(bookings)

    async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
        """See `bridge.ToolProvider`."""
        return self._tools if "booking" in request.user_message.text else ()


class Desk(Protocol):
    """Talks to customers."""

    @system_message("You are a booking desk. Be brief. Cancel a booking only when you are asked to.")
    async def chat(self, customer: Annotated[str, MemoryId], message: str) -> str:
        """Answer a customer."""
        ...


def script(request: ChatRequest) -> Reply:
    """Replies of a model."""
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        if "cancel" in last.text:
            return ToolExecutionRequest("cancel_booking", {"booking_number": "B-12345"}, id="call_2")
        if request.tool_specifications:
            return ToolExecutionRequest("list_bookings", id="call_1")
    return last.text if last.text and not isinstance(last, UserMessage) else "Good morning, how can I help?"


def chat_model() -> ChatModel:
    """The model that the command line names; else the script."""
    match sys.argv:
        case [_, "--model", name]:
            return OpenAiChatModel(name)
        case _:
            return ScriptedChatModel(script)


async def main() -> None:
    """Serve two customers."""
    bookings, memory = Bookings(), ChatMemory()
    desk = ai_service(
        Desk,
        chat_model=chat_model(),
        tool_providers=[BookingTools(bookings)],
        memory=memory,
        # By default a tool needs approval unless it is annotated as read-only. Whoever approves may say yes or no at
        # once; here somebody does later.
        approval=ApprovalPolicy(approve=lambda *_: Decision.later()),
    )

    async def say(customer: str, message: str) -> str:
        print(f"{customer}: {message}")
        answer = await desk.chat(customer, message)
        print(f"    {answer}")
        return answer

    await say("ada", "Hello!")
    assert "B-12345" in await say("ada", "Which bookings do I have?")
    assert "B-67890" in await say("zoe", "Which bookings do I have?")

    # The invocation stops where approval is needed. Its state is JSON: it may wait for days, in a database, and go on
    # in another process. The memory knows nothing of it until it is over.
    try:
        await say("ada", "Please cancel my booking B-12345.")
        raise AssertionError("nobody has approved that yet")
    except InvocationSuspended as suspended:
        print(f"    {suspended}")
        stored = json.dumps(suspended.state.to_json())
    assert bookings.of["ada"] == ["B-12345"]

    state = SuspendedInvocation.from_json(json.loads(stored))
    answer = await resume(desk, state, dict.fromkeys(state.pending, Decision.yes()))
    print(f"    {answer}")
    assert bookings.of == {"ada": [], "zoe": ["B-67890"]}
    assert (await memory.of("ada").messages())[-1].text == answer


if __name__ == "__main__":
    anyio.run(main)
