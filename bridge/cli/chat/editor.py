"""Editing of questions with prompt-toolkit: history, completion of commands, prompts and resources, pasted lines."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

from filelock import FileLock
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings

from bridge.cli.chat.commands import COMMANDS
from bridge.cli.interaction.lines import EditedInput, edit_session
from bridge.private_files import PRIVATE_MODE, make_private_folder, open_private
from bridge.text import clip, escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyPressEvent

    from bridge.server.features import Features

MAX_BYTES = 1024 * 1024
"""Length above which the older half of the history is dropped at the start of a conversation."""
_COMMAND = re.compile(r"/([\w.-]*)")
_ARGUMENTS = re.compile(r"/([\w.-]+)\s(.*\s)?([\w.-]*)", re.DOTALL)
_RESOURCE = re.compile(r"(?<!\S)@(\S*)$")
_MAX_META_CHARS = 60
_LOCK_SECONDS = 1.0


class QuestionEditor(EditedInput):
    """Edits the questions of a conversation; Alt-Enter begins a new line.

    Args:
        features: Prompts and resources to complete; may change.
        history: File of earlier questions; None to keep none.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, features: Features, history: Path | None) -> None:
        super().__init__()
        if history is not None:
            _prepare(history)
        self._session = edit_session(
            history=InMemoryHistory() if history is None else _History(str(history)),
            completer=_QuestionCompleter(features),
            complete_while_typing=True,
            key_bindings=_bindings(),
            prompt_continuation="  ",
        )

    async def _read_question(self, prompt: str) -> str | None:
        return await self._prompt(self._session, prompt)


class _History(FileHistory):
    """History in a file that conversations share; a full disk loses the entry, and not the conversation."""

    def store_string(self, string: str) -> None:
        with suppress(OSError), _locked(Path(str(self.filename))):
            super().store_string(string)


def _locked(history: Path) -> FileLock:
    """Lock of a history; without it, an entry of one conversation could be lost while another drops the older half.

    Entering it raises an OSError after a second.
    """
    return FileLock(history.with_name(f"{history.name}.lock"), timeout=_LOCK_SECONDS, mode=PRIVATE_MODE)


def _prepare(path: Path) -> None:
    make_private_folder(path.parent)
    os.close(open_private(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)))
    with _locked(path):
        if path.stat().st_size > MAX_BYTES:
            _drop_older_half(path)


def _drop_older_half(path: Path) -> None:
    """Replace the history at once, so that a full disk loses nothing, and other conversations read a whole one."""
    _, _, newer = path.read_bytes()[-MAX_BYTES // 2 :].partition(b"\n\n")  # an empty line precedes each entry
    descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"\n" + newer)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class _QuestionCompleter(Completer):
    """Completes ``/commands``, prompts with the names of their arguments, and ``@URI`` of resources."""

    def __init__(self, features: Features) -> None:
        self._features = features

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002 - the base's
        """Completions of the word before the cursor."""
        text = document.text_before_cursor
        prompts = {prompt.name: prompt for prompt in self._features.prompts or ()}
        if (match := _COMMAND.fullmatch(text)) is not None:
            described = {**{name: prompt.description or "" for name, prompt in prompts.items()}, **COMMANDS}
            yield from _matching(described.items(), match[1])
        elif (match := _ARGUMENTS.fullmatch(text)) is not None and match[1] in prompts:
            given = {word.partition("=")[0] for word in (match[2] or "").split()}
            arguments = prompts[match[1]].arguments
            names = ((f"{each.name}=", each.description or "") for each in arguments if each.name not in given)
            yield from _matching(names, match[3])
        elif (match := _RESOURCE.search(text)) is not None and (box := self._features.resources) is not None:
            uris = [(each.uri, each.title or each.name) for each in box.resources]
            uris += [(str(each.uri_template).partition("{")[0], each.title or each.name) for each in box.templates]
            yield from _matching(uris, match[1])


def _matching(items: Iterable[tuple[str, str]], start: str) -> Iterator[Completion]:
    """Completions with a beginning; names with control characters are left out."""
    for value, description in items:
        if value.startswith(start) and escape_controls(value) == value and "\n" not in value:
            meta = clip(escape_controls(" ".join(description.split())), _MAX_META_CHARS)
            yield Completion(value, start_position=-len(start), display_meta=meta)
