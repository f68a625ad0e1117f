"""Tools, resources and prompts of a target, during one command."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bridge.cli.reporting import UsersCodeError, users_traceback
from bridge.cli.targets.openapi import lifespan_of
from bridge.cli.targets.target import LocalTarget
from bridge.errors import BridgeError, ResourceNotFoundError, TargetError
from bridge.hosting.process import run_interruptible
from bridge.text import nearest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from bridge.cli.interaction.questions import QuestionAnswerer
    from bridge.cli.options import ServerOptions
    from bridge.cli.targets.target import Target
    from bridge.client.config.servers import ServersConfig
    from bridge.events.event_type import EventType
    from bridge.prompts.prompt import Prompt
    from bridge.server.features import Features
    from bridge.skills.skill import Skill
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.tool import Tool, ToolExecutionResult
    from bridge.types import Feature

DEFAULT_TIMEOUT_SECONDS = 60.0
"""Default maximum seconds of a server, call or read."""

T = TypeVar("T")


def with_features(
    target: Target,
    options: ServerOptions,
    work: Callable[[Features], Awaitable[T]],
    answerer: QuestionAnswerer | None = None,
    profile: str | None = None,
    *,
    name: str | None = None,
    uri: str | None = None,
) -> T:
    """Load a target, or connect to its servers, and run a coroutine function with all that it, or its profile, offers.

    Questions of the servers are answered by the ``answerer``. The prefix of the name or URI of the only item that is
    used may name the only server that is waited for.

    Raises:
        TargetError: The target offers nothing.
        ImportFailedError: The target raised an exception when it was imported.
        ServerError: A required server, or the only one, is unavailable.
        CommandError: All servers are unavailable.
    """
    if isinstance(target, LocalTarget):
        from bridge.cli.targets.loading import load_features  # noqa: PLC0415 - not needed for remote targets

        features = load_features([target])

        async def with_lifespans() -> T:
            async with in_use(features):
                return await work(features)

        return run_interruptible(with_lifespans)
    from bridge.cli.targets import servers  # noqa: PLC0415 - importing the SDK takes most of a second
    from bridge.server.features import Features  # noqa: PLC0415 - as above

    configurations: list[ServersConfig] = []
    found = servers.servers_for_command(target, options, profile, on_read=configurations.append)

    async def connected() -> T:
        features: tuple[Feature, ...] = ("resources", "prompts")
        providing = servers.provided_tools(
            found, answerer, name=name, uri=uri, features=features, timeout_seconds=options.timeout
        )
        async with providing as provider:
            offered = Features(
                tools=provider.tools,
                resources=provider.resources,
                prompts=provider.prompts,
                skills=provider.skills,
                events=provider.events,
            )
            if profile is not None:
                from bridge.gateway.profiles import profile_named  # noqa: PLC0415 - as above

                offered = profile_named(profile, configurations[0]).features_of(offered)
            return await work(offered)

    return run_interruptible(connected)


@asynccontextmanager
async def in_use(features: Features) -> AsyncIterator[None]:
    """Keep what local features need open during this block: their lifespans, and the connections of operations.

    Raises:
        Exception: A lifespan could not be opened; see `bridge.cli.reporting.exit_code_of`.
    """
    from bridge.server.lifespans import lifespans_open  # noqa: PLC0415 - after standard output is diverted

    async with AsyncExitStack() as stack:
        if (running := lifespan_of(features)) is not None:
            await stack.enter_async_context(running())
        await stack.enter_async_context(lifespans_open(features))
        yield


def prompt_named(features: Features, name: str) -> Prompt:
    """Return a prompt.

    Raises:
        TargetError: There is no such prompt.
        PinMismatchError: A server's prompt differs from its pin.
    """
    prompt = None if features.prompts is None else features.prompts.find(name)
    if prompt is None:
        if (require_as_pinned := getattr(features.prompts, "require_as_pinned", None)) is not None:
            require_as_pinned(name)  # prompts of servers
        near = nearest(name, (each.name for each in features.prompts or ()))
        hint = f"did you mean {near[0]!r}?" if near else "`bridge list` shows the prompts of a target"
        raise TargetError(f"there is no prompt {name!r}; {hint}")
    return prompt


async def contents_of(
    features: Features, uri: str, timeout_seconds: float | None = None, answerer: QuestionAnswerer | None = None
) -> ToolExecutionResult:
    """Read a resource; see `produced`.

    Raises:
        ResourceNotFoundError: There is no such resource; the error has its URI.
        BridgeError: As by `produced`.
        UsersCodeError: As by `produced`.
    """
    if (file := await _file_of_skill(features, uri)) is not None:
        return file
    found = None if features.resources is None else features.resources.find(uri)
    if found is None:
        raise ResourceNotFoundError(uri)
    try:
        return await produced(found.tool, found.arguments, timeout_seconds, answerer, features.lifespan)
    except ResourceNotFoundError as error:  # a function does not know its URI
        raise ResourceNotFoundError(uri) from error


async def skills_of(features: Features) -> Sequence[Skill]:
    """Return the skills of a target; empty if it has none.

    Raises:
        ServerError: They cannot be listed.
    """
    skills = features.skills
    return await skills.list() if skills is not None and skills.are_offered else ()


async def events_of(features: Features) -> Sequence[EventType]:
    """Return the types of events of a target; empty if it has none.

    Raises:
        ServerError: They cannot be listed.
    """
    events = features.events
    return await events.list() if events is not None and events.are_offered else ()


async def _file_of_skill(features: Features, uri: str) -> ToolExecutionResult | None:
    """Read a file of a skill, which is verified; None for any other URI."""
    for skill in await skills_of(features):
        if uri == skill.uri or skill.file(uri) is not None:
            from bridge.tools.tool import ToolExecutionResult  # noqa: PLC0415 - after standard output is diverted

            assert features.skills is not None
            return ToolExecutionResult((await features.skills.read(skill, uri),))
    return None


async def produced(
    tool: Tool,
    arguments: Mapping[str, Any],
    timeout_seconds: float | None = None,
    answerer: QuestionAnswerer | None = None,
    lifespan: Lifespan[Any] | None = None,
) -> ToolExecutionResult:
    """Read a resource, or render a prompt, by its tool; progress is shown on a terminal, and questions are answered.

    Args:
        tool: The tool.
        arguments: Its arguments.
        timeout_seconds: Maximum seconds without those of questions; None for the default.
        answerer: Answers questions; None refuses them.
        lifespan: Lifespan of its features.

    Raises:
        ResourceNotFoundError: There is no such resource.
        ArgumentsError: An argument is missing or invalid.
        BridgeError: It failed.
        UsersCodeError: A function of the target raised an exception.
    """
    from bridge.cli.interaction.channel import CommandChannel  # noqa: PLC0415 - after standard output is diverted
    from bridge.tools.context import InvocationContext  # noqa: PLC0415 - as above
    from bridge.tools.execution import ExecutionPolicy, execute  # noqa: PLC0415 - as above
    from bridge.tools.tool import OneTool, ToolExecutionRequest  # noqa: PLC0415 - as above

    policy = ExecutionPolicy(on_arguments_error=reraise, on_execution_error=reraise)
    request = ToolExecutionRequest(tool.name, arguments)
    if answerer is not None:
        answerer.asker = f"the server {tool.server!r}" if tool.server else f"{tool.name!r}"
    try:
        with CommandChannel(answerer) as channel:
            call = partial(
                execute, OneTool(tool), request, InvocationContext(channel=channel, lifespan=lifespan), policy
            )
            return await channel.within(timeout_seconds or DEFAULT_TIMEOUT_SECONDS, tool.name, call)
    except BridgeError:
        raise
    except Exception as error:
        raise UsersCodeError(f"{tool.name!r} failed: {error}", users_traceback(error)) from error


def reraise(error: Exception, *_: object) -> NoReturn:
    """Raise the error of a tool, instead of a result for a model."""
    raise error
