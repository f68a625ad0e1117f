"""Chat models of providers.

A provider has a folder with a module ``model``, in which a subclass of `ProviderChatModel` builds the body of a
request; the module calls the class ``CHAT_MODEL`` as well. A subclass of `bridge.models.replies.ReplyReader` reads the
reply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import aclosing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from pkgutil import iter_modules
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from anyio import lowlevel

from bridge.errors import ChatModelError, DefinitionError, MissingExtraError
from bridge.models.conversation import conversation_of
from bridge.text import short_repr
from bridge.tools.checks import require_count, require_seconds, require_type

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from contextlib import AbstractContextManager

    from bridge.models.provider_schemas import ProviderRequest, ProviderSchemas
    from bridge.models.replies import ReplyReader
    from bridge.service.chat_model import ChatEvent, ChatRequest, ChatResponse
    from bridge.types import Json

DEFAULT_TIMEOUT_SECONDS = 600.0
"""Default read timeout in seconds; long, since no data is sent while a model is thinking."""
DEFAULT_MAX_RETRIES = 2
"""Default number of retries by the SDK."""

_CONNECT_TIMEOUT_SECONDS = 10.0
_RETRYABLE = frozenset({408, 409, 429})
_FIRST_ERROR = 400
_SERVER_ERRORS = 500


def error_status(status: int | None) -> tuple[int | None, bool]:
    """Return the status of a failed request, None for one of a success, and True if the request may succeed later."""
    if status is None or status < _FIRST_ERROR:  # such as 200 for an error within a stream
        return None, False
    return status, status in _RETRYABLE or status >= _SERVER_ERRORS


class ProviderChatModel(ABC):
    """Chat model of a provider. The arguments are those of the subclasses."""

    provider: ClassVar[str]
    """Name of the provider."""
    _reply: ClassVar[type[ReplyReader]]
    """Reader of the provider's replies."""
    _url_parameter: ClassVar = "base_url"
    """Parameter of the subclass for the URL of another server."""
    _forbidden_in_id: ClassVar = ""
    """Regular expression for one character that the API does not allow in call IDs; other providers may use it."""
    _max_id_chars = 64
    """Maximum length of a call ID."""

    def __init__(
        self, model_name: str, schemas: ProviderSchemas, url: str | None, timeout_seconds: float, max_retries: int
    ) -> None:
        if not isinstance(model_name, str) or not model_name:  # type: ignore[redundant-expr]  # the value may be wrong
            raise DefinitionError(f"model_name must be the provider's name of a model, not {short_repr(model_name)}")
        require_seconds(timeout_seconds, "timeout_seconds", optional=False)
        require_count(max_retries, "max_retries", least=0)
        require_type(url, str | None, "the URL", "text, or None")
        self.model_name = model_name
        self._schemas = schemas
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._connect_timeout_seconds = min(timeout_seconds, _CONNECT_TIMEOUT_SECONDS)
        self._max_retries = max_retries

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """See `bridge.service.chat_model.ChatModel.chat`."""
        body, reply = self._prepared(request)
        with self._translated_errors():
            return reply.complete(await self._send(body))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """See `bridge.service.chat_model.StreamingChatModel.stream`."""
        body, reply = self._prepared(request)
        with self._translated_errors():
            async with aclosing(self._send_streamed(body)) as pieces:
                async for piece in pieces:
                    for event in reply.streamed(piece):
                        yield event
            for event in reply.finished():
                yield event

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections, unless a client was passed in."""

    @abstractmethod
    def _body(self, request: ProviderRequest) -> Json:
        """Build the arguments for the SDK."""

    @abstractmethod
    async def _send(self, body: Json) -> Any:
        """Send a request and return the complete reply."""

    @abstractmethod
    def _send_streamed(self, body: Json) -> AsyncGenerator[Any, None]:
        """Send a request and yield the events of the reply."""

    @abstractmethod
    def _translated_errors(self) -> AbstractContextManager[None]:
        """Translate errors of the SDK, and of unexpected replies, to `ChatModelError`."""

    def _prepared(self, request: ChatRequest) -> tuple[Json, ReplyReader]:
        conversation = conversation_of(request, max_id_chars=self._max_id_chars, forbidden_in_id=self._forbidden_in_id)
        prepared = self._schemas.prepared(request, conversation, self.model_name)
        return self._body(prepared), self._reply(prepared)


class SdkChatModel(ProviderChatModel):
    """Chat model through the SDK of OpenAI or Anthropic, which have the same interface.

    The connections of an HTTP client belong to the event loop that opened them, while a model may be used in several:
    in ``asyncio.run`` twice, or in an event loop beside synchronous methods of a service. Therefore the model makes a
    client for each event loop, unless one is passed in.
    """

    _client_name: ClassVar[str]
    """Name of the SDK's asynchronous client."""
    _error_name: ClassVar[str]
    """Name of the base class of the SDK's errors."""
    _create_name: ClassVar[str]
    """Path of the client's method that creates a reply."""
    _stream_options: ClassVar[Json] = {"stream": True}
    """Arguments for a streamed reply."""

    def __init__(
        self,
        model_name: str,
        schemas: ProviderSchemas,
        client: Any,
        api_key: str | None,
        url: str | None,
        timeout_seconds: float,
        max_retries: int,
    ) -> None:
        super().__init__(model_name, schemas, url, timeout_seconds, max_retries)
        self._api_key = api_key
        self._is_given = client is not None
        self._first = client if self._is_given else self._made()  # at once, so that wrong arguments raise here
        self._is_first_free = True
        self._clients: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._lock = Lock()

    async def aclose(self) -> None:
        """Close the connections of the running event loop, unless a client was passed in.

        The connections of an event loop that has ended are closed with it.
        """
        if not self._is_given:
            await self._client().close()

    @abstractmethod
    def _is_retryable(self, error: Any, *, by_status: bool | None) -> bool:
        """True if a failed request may succeed later; ``by_status`` is the answer for the response's status alone."""

    def _made(self) -> Any:
        try:
            sdk = import_module(self.provider)
        except ImportError as error:
            raise MissingExtraError(type(self).__name__, self.provider, self.provider) from error
        timeout = sdk.Timeout(self._timeout_seconds, connect=self._connect_timeout_seconds)
        make = getattr(sdk, self._client_name)
        try:
            return make(base_url=self._url, api_key=self._api_key, timeout=timeout, max_retries=self._max_retries)
        except getattr(sdk, self._error_name) as error:
            raise ChatModelError(str(error), provider=self.provider) from error

    def _client(self) -> Any:
        """The client of the running event loop."""
        if self._is_given:
            return self._first
        loop: Any = lowlevel.current_token().native_token
        with self._lock:
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = self._first if self._is_first_free else self._made()
                self._is_first_free = False
            return client

    async def _send(self, body: Json) -> Any:
        client = self._client()
        # an explicit timeout; with its default one Anthropic's SDK refuses long replies without streaming
        return await attrgetter(self._create_name)(client)(**body, timeout=client.timeout)

    async def _send_streamed(self, body: Json) -> AsyncGenerator[Any, None]:
        async with await attrgetter(self._create_name)(self._client())(**body, **self._stream_options) as stream:
            async for event in stream:
                yield event

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        sdk: Any = import_module(self.provider)
        from httpx2 import HTTPError  # noqa: PLC0415 - comes with the extra

        try:
            yield
        except sdk.APIStatusError as error:
            status, may_pass = error_status(error.status_code)
            raise ChatModelError(
                getattr(error, "api_message", None) or error.message,
                provider=self.provider,
                status=status,
                request_id=error.request_id,
                retryable=self._is_retryable(error, by_status=may_pass),
            ) from error
        except sdk.APIConnectionError as error:  # includes timeouts
            reason = f"{error.message} ({error.__cause__!r})" if error.__cause__ is not None else error.message
            raise ChatModelError(reason, provider=self.provider, retryable=True) from error
        except HTTPError as error:  # not translated by the SDK within a stream
            raise ChatModelError(f"the connection failed: {error!r}", provider=self.provider, retryable=True) from error
        except sdk.APIError as error:  # an error within a stream, or an unexpected response
            retryable = self._is_retryable(error, by_status=None)
            raise ChatModelError(error.message, provider=self.provider, retryable=retryable) from error
        except getattr(sdk, self._error_name) as error:
            raise ChatModelError(str(error), provider=self.provider) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ChatModelError(f"the reply has an unexpected form: {error}", provider=self.provider) from error


def chat_model_named(name: str, *, base_url: str | None = None) -> ProviderChatModel:
    """Create the chat model of a provider.

    Args:
        name: ``openai:NAME``, ``anthropic:NAME`` or ``bedrock:NAME``. Credentials come from the environment.
        base_url: Another server that speaks the provider's API.

    Raises:
        DefinitionError: The name has another form.
        MissingExtraError: The provider's package is not installed.
        ChatModelError: There are no credentials.
    """
    provider, _, model_name = str(name).partition(":")
    folders = (found.name for found in iter_modules([str(Path(__file__).parent)]) if found.ispkg)
    providers = [folder for folder in folders if find_spec(f"bridge.models.{folder}.model") is not None]
    if provider not in providers or not model_name:
        *forms, last = (f"{each}:NAME" for each in providers)
        raise DefinitionError(f"a chat model is named {', '.join(forms)} or {last}, not {short_repr(name)}")
    module = import_module(f"bridge.models.{provider}.model")  # each provider's SDK is slow to import
    url = {module.CHAT_MODEL._url_parameter: base_url}  # noqa: SLF001 - of a class of this module
    model: ProviderChatModel = module.CHAT_MODEL(model_name, **url)
    return model
