"""Writing of MCP Bundles (MCPB, 0.4) whose server is ``bridge serve`` with Python files, run by uv."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from bridge.client.config.bundle import MAX_FILES, MAX_UNPACKED_BYTES
from bridge.client.config.formats import BUNDLE_SUFFIX
from bridge.client.config.manifest import MANIFEST
from bridge.errors import WireError
from bridge.text import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bridge.client.config.manifest import SettingKind
    from bridge.types import Json

MANIFEST_VERSION = "0.4"
"""Version of the manifests that are written."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FIRST_VERSION = "0.0.1"
_SYSTEMS = {
    "Operating System :: MacOS": "darwin",
    "Operating System :: POSIX :: Linux": "linux",
    "Operating System :: Microsoft :: Windows": "win32",
}
"""Names of systems in a manifest, by the classifiers of a project."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""Time of all files of a bundle, so that the same files make the same bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A value that users are asked for, and its environment variable in the server."""

    variable: str
    """Name of the variable: ``WEATHER_KEY``."""
    type: SettingKind = "string"
    """Type of the value."""
    description: str = ""
    """Meaning; empty for the variable's name in words."""
    is_secret: bool = False
    """True for a value that hosts store safely, and do not show."""

    @property
    def key(self) -> str:
        """Key in ``user_config``."""
        return self.variable.lower()

    def setting(self) -> Json:
        """The entry of ``user_config``."""
        title = self.variable.replace("_", " ").capitalize()
        found: Json = {"type": self.type, "title": title, "description": self.description or title, "required": True}
        return found | ({"sensitive": True} if self.is_secret else {})


def manifest_of(
    project: Mapping[str, Any],
    targets: Sequence[str],
    tools: Iterable[tuple[str, str]],
    *,
    has_prompts: bool = False,
    asked: Sequence[Asked] = (),
) -> Json:
    """Return the manifest of a bundle whose server is ``bridge serve`` with the Python files in it, run by uv.

    Args:
        project: Like the section ``[project]`` of a ``pyproject.toml``: name, version, and more.
        targets: Paths of the files in the bundle, each maybe with ``:object``.
        tools: Names and descriptions of the tools.
        has_prompts: True if the server has prompts.
        asked: What users are asked for.

    Raises:
        WireError: The name is malformed, or is missing.
    """
    name = project.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WireError(f"the name of a bundle has letters, digits, '-', '_' and '.', not {short_repr(name)}")
    served = [f"${{__dirname}}/{target}" for target in targets]
    command = ["run", "--directory", "${__dirname}", "mcp-toolbridge", "serve", *served, "--name", name]
    environment = {each.variable: f"${{user_config.{each.key}}}" for each in asked}
    authors = [each["name"] for each in project.get("authors") or () if each.get("name")]
    urls = {key.lower(): url for key, url in (project.get("urls") or {}).items()}
    repository = next((urls[key] for key in ("repository", "source", "code") if key in urls), None)
    license_name = project.get("license")
    classifiers = project.get("classifiers") or ()
    platforms = [name for start, name in _SYSTEMS.items() if any(each.startswith(start) for each in classifiers)]
    runtimes = {"runtimes": {"python": project.get("requires-python") or ">=3.11"}}
    optional = {
        "license": license_name if isinstance(license_name, str) else None,
        "homepage": urls.get("homepage"),
        "documentation": urls.get("documentation"),
        "repository": repository and {"type": "git", "url": repository},
        "user_config": {each.key: each.setting() for each in asked} or None,
        "prompts_generated": has_prompts or None,
    }
    return {
        "manifest_version": MANIFEST_VERSION,
        "name": name,
        "version": project.get("version") or _FIRST_VERSION,
        "description": project.get("description") or f"Tools of {name}",
        "author": {"name": ", ".join(authors) or "Unknown"},
        "server": {
            "type": "uv",
            "entry_point": targets[0].partition(":")[0],
            "mcp_config": {"command": "uv", "args": command, "env": environment},
        },
        "tools": [
            {"name": tool} | ({"description": description} if description else {}) for tool, description in tools
        ],
        "compatibility": ({"platforms": platforms} if platforms else {}) | runtimes,
        **{key: value for key, value in optional.items() if value is not None},
    }


def project_file(project: Mapping[str, Any], requirements: Iterable[str]) -> str:
    """Return the ``pyproject.toml`` of a bundle, from which uv installs packages.

    Args:
        project: As for `manifest_of`.
        requirements: Packages that the server needs.
    """
    values = {
        "name": project["name"],
        "version": project.get("version") or _FIRST_VERSION,
        "requires-python": project.get("requires-python") or ">=3.11",
        "dependencies": list(requirements),
    }
    return "[project]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def write_bundle(path: Path, manifest: Json, files: Mapping[str, bytes | Path]) -> int:
    """Write a bundle; the same files make the same bundle. Return its length in bytes.

    Args:
        path: The bundle, which is replaced if it exists.
        manifest: Its manifest.
        files: Its other files by their names in it, with ``/`` between folders.

    Raises:
        OSError: A file cannot be read, or the bundle cannot be written; an earlier one is unchanged.
        WireError: There are too many files, or they are too long.
    """
    contents: dict[str, Any] = {MANIFEST: (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode(), **files}
    lengths = [len(each) if isinstance(each, bytes) else each.stat().st_size for each in contents.values()]
    if len(contents) > MAX_FILES or sum(lengths) > MAX_UNPACKED_BYTES:
        message = f"a bundle has at most {MAX_FILES:,} files and {MAX_UNPACKED_BYTES:,} bytes together"
        raise WireError(f"{message}, and these are {len(contents):,} files and {sum(lengths):,} bytes")
    descriptor, name = mkstemp(prefix=".new-", suffix=BUNDLE_SUFFIX, dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file, ZipFile(file, "w", ZIP_DEFLATED) as archive:
            for member in (MANIFEST, *sorted(contents.keys() - {MANIFEST})):
                content = contents[member]
                is_program = isinstance(content, Path) and bool(content.stat().st_mode & stat.S_IXUSR)
                info = ZipInfo(member, _LONG_AGO)
                info.compress_type = ZIP_DEFLATED
                info.external_attr = (stat.S_IFREG | (0o755 if is_program else 0o644)) << 16
                archive.writestr(info, content.read_bytes() if isinstance(content, Path) else content)
        new.chmod(0o644)
        length = new.stat().st_size
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return length
