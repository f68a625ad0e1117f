"""Kept definitions: the lists of a server as it was listed last, for the time in which its process does not run."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.client.connection.list_methods import LIST_METHODS, Listed
from bridge.client.connection.status import ServerInfo
from bridge.private_files import make_private_folder, open_private

if TYPE_CHECKING:
    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.list_methods import ListMethod

_FORMAT = 1
_logger = logging.getLogger("bridge.client")


class KeptDefinitions:
    """Lists of a server, and its description of itself, in memory and in a file.

    Args:
        path: The file; None for none. It is read at once. A file that cannot be read or written is logged.

    Attributes:
        info: The server's description of itself; None if it was never connected.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lists: dict[str, Listed] = {}
        self._is_failing = False
        self.info: ServerInfo | None = None
        if path is not None:
            self._read(path)

    @classmethod
    def of(cls, config: ServerConfig, folder: str | os.PathLike[str] | None) -> KeptDefinitions:
        """Return those of a server in a folder; None keeps them in memory.

        The file's name depends on the server's name and its redacted command, so that another program has another one.
        """
        if folder is None:
            return cls(None)
        digest = sha256(f"{config.name}\0{config.transport.redacted()}\0{config.protocol}".encode()).hexdigest()
        return cls(Path(folder) / f"{digest[:32]}.json")

    def __bool__(self) -> bool:
        return LIST_METHODS[0].method in self._lists

    def listed(self, method: ListMethod) -> Listed | None:
        """Return the items that were listed last; None if they never were."""
        return self._lists.get(method.method)

    def keep(self, method: ListMethod, listed: Listed, info: ServerInfo | None) -> None:
        """Keep the items of a list, before pins apply, and write them if they have changed."""
        if self._lists.get(method.method) != listed or info != self.info:
            self._lists[method.method], self.info = listed, info
            if self._path is not None:
                self._write(self._path)

    def _read(self, path: Path) -> None:
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["format"] == _FORMAT:
                self.info = None if kept["server"] is None else ServerInfo(**kept["server"])
                self._lists = {name: _listed(**fields) for name, fields in kept["lists"].items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            self._lists, self.info = {}, None
            _logger.warning("the kept definitions %s cannot be read, so the server is started: %s", path, error)

    def _write(self, path: Path) -> None:
        lists = {
            name: {"items": each.items, "malformed": each.malformed, "ttl_seconds": each.ttl_seconds}
            for name, each in self._lists.items()
        }
        server = None if self.info is None else asdict(self.info)
        text = json.dumps({"format": _FORMAT, "server": server, "lists": lists}, ensure_ascii=False)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            make_private_folder(path.parent)
            with os.fdopen(open_private(part, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                file.write(text)
            part.replace(path)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:  # a start writes each kind of list
                reason = error.strerror or error
                _logger.warning("the definitions of a server cannot be kept in %s: %s", path, reason)
            self._is_failing = True
            with suppress(OSError):
                part.unlink()


def _listed(*, items: list[dict[str, Any]], malformed: list[str], ttl_seconds: float | None) -> Listed:
    return Listed(items, ttl_seconds, tuple(malformed))
