"""Unpacking of MCP Bundles (MCPB), which are servers in one ZIP file with a manifest, within bounds.

A bundle is unpacked once, into a folder that only its user can read, under the digest of the file. A name that leads
out of that folder, a link, and a file over the limits are refused before anything starts. Signatures are not verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from bridge.client.config.document import Diagnostics
from bridge.client.config.manifest import MANIFEST, read_manifest, started
from bridge.errors import ConfigError, ConfigProblem, WireError
from bridge.private_files import make_private_folder, state_folder
from bridge.text import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.config.manifest import Manifest, StartedBundle
    from bridge.client.config.variables import InputSource

MAX_BUNDLE_BYTES = 512 * 1024 * 1024
"""Maximum length of a bundle."""
MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
"""Maximum length of all its files together."""
MAX_FILES = 50_000
"""Maximum number of its files and folders."""
MAX_MANIFEST_BYTES = 1024 * 1024
"""Maximum length of its manifest."""
MAX_DIRECTORY_BYTES = 16 * 1024 * 1024
"""Maximum length of the list of its files, which takes many times that in memory."""
UNUSED_SECONDS = 30 * 24 * 3600.0
"""Age after which an unpacked bundle that was not used is deleted."""
_MAX_NAME_BYTES, _MAX_DEPTH = 255, 32
_PART_BYTES = 1024 * 1024
_EXECUTABLE, _PLAIN = 0o700, 0o600
_FORBIDDEN = frozenset('\\:*?"<>|') | {chr(code) for code in range(32)}


def bundle_configuration(
    path: str | os.PathLike[str], *, environ: Mapping[str, str], source: InputSource | None = None
) -> StartedBundle:
    """Unpack a bundle, and return a configuration that starts its server.

    Args:
        path: The bundle.
        environ: Environment variables with values of users.
        source: Values by the keys of the manifest's ``user_config``, or a function that asks the user.

    Raises:
        ConfigError: It is not a bundle, cannot be unpacked, or a value is missing or wrong.
    """
    folder, manifest = unpacked(Path(path))
    diagnostics = Diagnostics()
    found = started(manifest, folder, diagnostics, environ=environ, source=source)
    if diagnostics.problems:
        raise ConfigError(os.fspath(path), diagnostics.problems)
    return found


def unpacked(path: Path) -> tuple[Path, Manifest]:
    """Unpack a bundle, unless that was done before; return its folder and its manifest.

    Raises:
        ConfigError: It is not a bundle, or is over a limit.
    """
    try:
        folder = _folder_of(path)
        document = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        match Path(error.filename or path):
            case missing if missing == path:
                reason = "there is no such file"
            case missing if missing.name == MANIFEST:
                reason = f"it has no {MANIFEST}"
            case missing:
                reason = f"cannot be unpacked: {missing}: {error.strerror}"
        raise _refused(path, reason) from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise _refused(path, f"cannot be unpacked: {place}{error.strerror or type(error).__name__}") from error
    except RecursionError as error:
        raise _refused(path, f"its {MANIFEST} is nested too deeply") from error
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _refused(path, "is not a bundle: it is not a ZIP file, or is damaged") from error
    except WireError as error:
        raise _refused(path, str(error)) from error
    except ValueError as error:
        raise _refused(path, f"its {MANIFEST} is not JSON") from error
    diagnostics = Diagnostics()
    if (manifest := read_manifest(document, diagnostics)) is None:
        raise ConfigError(str(path), diagnostics.problems)
    return folder, manifest


def _folder_of(path: Path) -> Path:
    """Return the folder of an unpacked bundle, which is in use from now on."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_BUNDLE_BYTES:
            raise WireError(f"the bundle is longer than {MAX_BUNDLE_BYTES:,} bytes")
        folder = state_folder() / "bundles" / hashlib.file_digest(file, "sha256").hexdigest()
        if not folder.is_dir():
            _unpack(file, folder)
    os.utime(folder)
    return folder


def _refused(path: Path, message: str) -> ConfigError:
    return ConfigError(str(path), [ConfigProblem(message)])


def _unpack(file: IO[bytes], folder: Path) -> None:
    """Unpack into a new folder, which appears when it is complete; raises as `unpacked`."""
    make_private_folder(folder.parent)
    _forget_unused(folder.parent)
    new = Path(mkdtemp(prefix=".new-", dir=folder.parent))  # for its user alone
    try:
        with ZipFile(cast("IO[bytes]", _BoundedFile(file))) as archive:
            members = _checked(archive.infolist())
            left = MAX_UNPACKED_BYTES
            for info, parts in members:
                target = new.joinpath(*parts)
                if info.is_dir():
                    target.mkdir(mode=_EXECUTABLE, parents=True, exist_ok=True)
                else:
                    target.parent.mkdir(mode=_EXECUTABLE, parents=True, exist_ok=True)
                    left -= _extract(archive, info, target, MAX_MANIFEST_BYTES if info.filename == MANIFEST else left)
        with suppress(FileExistsError):  # another process was faster
            new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


class _BoundedFile:
    """A file of which little is read at a time, so that `zipfile` does not read a huge list of files.

    Args:
        file: The file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Read bytes, all that are left by default.

        Raises:
            WireError: They are too many.
        """
        found = self._file.read(MAX_DIRECTORY_BYTES + 1 if size < 0 else min(size, MAX_DIRECTORY_BYTES + 1))
        if len(found) > MAX_DIRECTORY_BYTES:
            raise WireError(f"the list of the files of the bundle is longer than {MAX_DIRECTORY_BYTES:,} bytes")
        return found


def _checked(infos: list[ZipInfo]) -> list[tuple[ZipInfo, list[str]]]:
    """Return the members of an archive with the parts of their names.

    Raises:
        WireError: There are too many, or one is not a file or folder below the bundle's own.
    """
    if len(infos) > MAX_FILES:
        raise WireError(f"the bundle has more than {MAX_FILES:,} files")
    if sum(info.file_size for info in infos) > MAX_UNPACKED_BYTES:
        raise WireError(f"the files of the bundle are longer than {MAX_UNPACKED_BYTES:,} bytes together")
    found = []
    names: set[str] = set()
    for info in infos:
        name = info.orig_filename.removesuffix("/")
        parts = name.split("/")
        if len(parts) > _MAX_DEPTH or any(not _is_plain(part) for part in parts):
            raise WireError(
                f"the bundle has a file whose name leads out of its folder, or is not portable: {short_repr(name)}"
            )
        if name.casefold() in names:
            raise WireError(f"the bundle has two files with the name {short_repr(name)}")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR} or info.flag_bits & 1:
            raise WireError(f"the bundle has a link, a device or an encrypted file: {short_repr(name)}")
        if info.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
            raise WireError(f"the bundle has a file that is compressed in an unknown way: {short_repr(name)}")
        names.add(name.casefold())
        found.append((info, parts))
    return found


def _is_plain(part: str) -> bool:
    """True for a name that is the name of a file on every system."""
    is_short = len(part.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    return is_short and part.strip(" ") == part and part.strip(".") != "" and not (_FORBIDDEN & set(part))


def _extract(archive: ZipFile, info: ZipInfo, target: Path, limit: int) -> int:
    """Write a file, which may be longer than its archive says; return its length.

    Raises:
        WireError: It is longer than the limit.
    """
    mode = _EXECUTABLE if (info.external_attr >> 16) & stat.S_IXUSR else _PLAIN
    length = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    with archive.open(info) as packed, os.fdopen(descriptor, "wb") as written:
        while part := packed.read(_PART_BYTES):
            length += len(part)
            if length > limit:
                raise WireError(
                    f"the bundle is longer than its limits when it is unpacked: {short_repr(info.filename)}"
                )
            written.write(part)
    return length


def _forget_unused(parent: Path) -> None:
    """Delete bundles that were not used for a month; what is in use, or of another user, stays."""
    oldest = time.time() - UNUSED_SECONDS
    for folder in parent.iterdir():
        with suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
