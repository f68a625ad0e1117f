"""Spill: keeps the text of a large result aside, and gives the model its beginning, its end, and a link to the whole.

    result ─┬─> the same result                              it is within the limit
            ╰─> ResultStore, and a result with head, tail and a `ResourceLink`

The AI-service loop and servers apply it to the results of calls (`bridge.tools.execution`, `bridge.server.core`).
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from bridge.errors import DefinitionError
from bridge.portal import start_detached
from bridge.tools.annotated_checks import check_fields
from bridge.tools.content import File, Text, block_to_json
from bridge.tools.spill.preview import READ_TOOL, chars_of, json_of, read_kept, shown_of
from bridge.tools.spill.store import (
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_CALLER_BYTES,
    DEFAULT_TTL_SECONDS,
    Bounds,
    KeptResult,
    ResultStoreError,
)
from bridge.tools.spill.usage import Usage
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext
    from bridge.tools.spill.store import ResultStore
    from bridge.tools.tool import Tool

MAX_RESULT_SIZE_KEY = "anthropic/maxResultSizeChars"
"""Member of a tool's ``_meta``: characters up to which its results are for the model (a convention of Claude Code)."""
URI_PREFIX = "kept-result:///"
"""Beginning of the URIs of kept results."""
DEFAULT_PREVIEW_CHARS = 3_000
"""Default maximum characters that a model reads of a result that is kept."""
DEFAULT_PAGE_CHARS = 20_000
"""Maximum characters of one answer of `READ_TOOL`, if only single tools have a limit."""

_ID_BYTES = 24
_MEASURED = sys.maxsize - 1
"""Limit of results that are only counted."""
LARGE_CHARS = 256 * 1024
"""Characters from which a result is prepared and read in a worker thread."""
_logger = logging.getLogger("bridge.tools")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spill:
    """Keeps large results aside, for `ExecutionPolicy.spill`. One of them belongs to one server or service.

    Raises:
        DefinitionError: A value is not of its type, or not positive.
    """

    chars: int | None = None
    """Characters up to which a result stays whole; None to keep only those of tools with a limit of their own.

    Images, audio and files count with the length of their base64.
    """
    mode: Literal["keep", "measure"] = "keep"
    """``measure`` changes no result, and counts those that ``keep`` would keep; see `usage`."""
    preview_chars: int = DEFAULT_PREVIEW_CHARS
    """Maximum characters of text that the model reads of a result that is kept; never more than the limit."""
    drop_schemas: bool = False
    """True if a server lists tools whose results may be kept without their output schemas.

    A result that is kept then has no structured content. Otherwise, structured content that a tool declares stays
    whole, and only its text is shortened.
    """
    ttl_seconds: float = DEFAULT_TTL_SECONDS
    """Time for which a result is kept."""
    max_bytes: int = DEFAULT_MAX_BYTES
    """Maximum length of all kept results; the oldest are deleted."""
    max_caller_bytes: int = DEFAULT_MAX_CALLER_BYTES
    """Maximum length of the kept results of one caller."""
    store: ResultStore | None = None
    """Keeps them; None for a temporary file of this process, or the Redis of a server with replicas."""
    audience: str = ""
    """Name of the server or profile that keeps them; others that have the same store do not find those of a caller."""
    usage: Usage = field(default_factory=Usage, init=False)
    """Counts of the results so far, by tool."""
    _sessions: WeakKeyDictionary[Any, str] = field(default_factory=WeakKeyDictionary, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.mode not in {"keep", "measure"}:
            raise DefinitionError(f"the mode of a Spill must be 'keep' or 'measure', not {self.mode!r}")
        check_fields(self)

    @property
    def used_store(self) -> ResultStore:
        """The store; the temporary file if there is no other."""
        if self.store is None:
            from bridge.tools.spill.sqlite_store import SqliteResultStore  # noqa: PLC0415 - imports SQLite

            self.use(SqliteResultStore())
            assert self.store is not None
        return self.store

    def use(self, store: ResultStore) -> None:
        """Keep results in a store from now on."""
        object.__setattr__(self, "store", store)

    # --- which results ------------------------------------------------------------------------------------------------

    def limit_of(self, tool: Tool) -> int | None:
        """Return the characters up to which a tool's results stay whole; None for no limit.

        The tool's own limit is used, else the size that it announces in ``_meta``, else that of all tools.
        """
        if tool.name == READ_TOOL:
            return None
        if (own := tool.policy.spill_chars) is not None:
            return own
        if self.chars is None:
            return _MEASURED if self.mode == "measure" else None
        announced = tool.specification.metadata.get(MAX_RESULT_SIZE_KEY)
        return announced if type(announced) is int and announced > 0 else self.chars

    def keeps(self, tool: Tool) -> bool:
        """Return True if results of a tool may be kept."""
        return self.mode == "keep" and self.limit_of(tool) is not None

    def declares(self, tool: Tool) -> bool:
        """Return True if structured content of a tool is declared to clients."""
        return tool.specification.output_schema is not None and not (self.drop_schemas and self.keeps(tool))

    @property
    def page_chars(self) -> int:
        """Maximum characters of one answer of `READ_TOOL`."""
        return self.chars or DEFAULT_PAGE_CHARS

    # --- keeping ------------------------------------------------------------------------------------------------------

    async def fitted(self, tool: Tool, result: ToolExecutionResult, context: InvocationContext) -> ToolExecutionResult:
        """Return a result for the model: itself, or if it is over the limit, one with ``model_content``.

        Args:
            tool: The tool.
            result: Its result.
            context: Context of the call, whose caller may read what is kept.
        """
        limit = self.limit_of(tool)
        if limit is None:
            return result
        text = getattr(result.received, "text", None)
        if text is not None and len(text) <= limit:
            self.usage.count(tool.name, len(text))
            return result
        content = result.content if result.model_content is None else result.model_content
        chars = sum(map(chars_of, content))
        if not self.declares(tool) and result.structured_content is not None and chars <= limit:
            structured = json_of(result.structured_content)
            if structured is not None and len(structured) > limit:  # a client may give it to the model instead
                content, chars = (Text(structured),), len(structured)
        self.usage.count(tool.name, chars)
        if chars <= limit:
            return result
        uri = f"{URI_PREFIX}{token_urlsafe(_ID_BYTES)}"
        preparing = partial(self._prepared, content, limit, tool.name, uri)
        prepared = preparing() if chars < LARGE_CHARS else await run_in_thread(preparing, caller=context.account)
        if prepared is None:
            return result  # whoever writes it reports why it cannot be written
        text, shown = prepared
        if self.mode == "keep" and not await self._keep(uri, text, tool.name, context):
            shown = shown_of(content, limit, self.preview_chars, tool.name, None)
        self.usage.spilled(tool.name, max(0, chars - sum(map(chars_of, shown))))
        return result if self.mode == "measure" else replace(result, model_content=shown)

    def _prepared(
        self, content: tuple[Content, ...], limit: int, tool: str, uri: str
    ) -> tuple[str, tuple[Content, ...]] | None:
        """Return content as JSON, and what the model reads of it; None if it cannot be written as JSON."""
        text = json_of([block_to_json(block) for block in content])
        return None if text is None else (text, shown_of(content, limit, self.preview_chars, tool, uri))

    async def _keep(self, uri: str, text: str, tool: str, context: InvocationContext) -> bool:
        """Store content, given as JSON; return False if that is not possible."""
        bounds = Bounds(ttl_seconds=self.ttl_seconds, max_bytes=self.max_bytes, max_caller_bytes=self.max_caller_bytes)
        if not bounds.admits(len(text)):
            _logger.warning("a result of %r is too large to be kept: %d characters", tool, len(text))
            return False
        kept = KeptResult(owner=self._owner_of(context), session=self._session_of(context), tool=tool, content=text)
        try:
            await self.used_store.add(uri.removeprefix(URI_PREFIX), kept, bounds)
        except ResultStoreError as error:
            _logger.error("a result of %r was not kept: %s", tool, error)  # noqa: TRY400 - it says all
            return False
        return True

    # --- reading ------------------------------------------------------------------------------------------------------

    async def find(self, uri: str, context: InvocationContext) -> File | None:
        """Return a kept result, or one of its blocks; None if the caller has none of this URI.

        Raises:
            ResultStoreError: The store cannot be read.
        """
        result_id, _, position = uri.removeprefix(URI_PREFIX).partition("/")
        if not (result_id.isascii() and uri.startswith(URI_PREFIX)):
            return None
        kept = await self.used_store.find(result_id)
        if kept is None or kept.owner != self._owner_of(context):
            return None
        reading = partial(read_kept, kept.content, uri, position)
        return reading() if len(kept.content) < LARGE_CHARS else await run_in_thread(reading, caller=context.account)

    async def forget(self, caller: str) -> None:
        """Delete what is kept for a caller, such as at a logout.

        Args:
            caller: Name of the caller, as `bridge.Caller` has it.

        Raises:
            ResultStoreError: It cannot be deleted.
        """
        await self.used_store.forget(owner=self._key_of(caller))

    async def aclose(self) -> None:
        """Close the store."""
        if self.store is not None:
            await self.store.aclose()

    def end_session(self, session: object) -> None:
        """Delete what is kept for a session that has ended, in the background."""
        key = self._sessions.pop(session, None)
        if key is None:
            return

        async def forget() -> None:
            try:
                await self.used_store.forget(session=key)
            except ResultStoreError as error:
                _logger.warning("the results of an ended session are kept until they expire: %s", error)

        start_detached(forget, "deletion of the results of a session")

    def _owner_of(self, context: InvocationContext) -> str:
        """Return the key of a caller: its name, else its session, else its AI service's conversation."""
        # A client without a name or a session is identified by knowing the URI.
        if context.caller is not None:
            return self._key_of(context.caller.name)
        if session := self._session_of(context):
            return session
        return "" if context.service is None else _key("memory", str(context.memory_id))

    def _key_of(self, caller: str) -> str:
        return _key("caller", f"{self.audience}\n{caller}" if self.audience else caller)

    def _session_of(self, context: InvocationContext) -> str:
        session: Any = context.peer
        if session is None:
            return ""
        key = self._sessions.get(session)
        if key is None:
            key = self._sessions[session] = session_key(getattr(session, "id", None) or token_urlsafe(_ID_BYTES))
        return key


def session_key(session_id: str) -> str:
    """Return the key of a session in a store."""
    return _key("session", session_id)


def _key(kind: str, name: str) -> str:
    return sha256(f"{kind}:{name}".encode(errors="surrogatepass")).hexdigest()


def listed_meta(metadata: Mapping[str, Any], limit: int) -> Mapping[str, Any]:
    """Return a tool's ``_meta`` with the announced size of its results, unless it announces one itself."""
    return metadata if MAX_RESULT_SIZE_KEY in metadata else {**metadata, MAX_RESULT_SIZE_KEY: limit}
