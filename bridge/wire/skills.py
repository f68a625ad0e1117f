"""Conversion of skills to MCP JSON and back (extension ``io.modelcontextprotocol/skills``, SEP-2640)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from bridge.errors import WireError
from bridge.skills.skill import DIRECTORY_TYPE, Skill, SkillFile
from bridge.text import short_repr
from bridge.types import require_object, require_text
from bridge.wire.extension import Extension

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.types import Json

SKILLS = Extension(id="io.modelcontextprotocol/skills", settings={"directoryRead": True})
"""Skills, as a server announces them."""
_DYNAMIC = "dynamic"


def skill_to_wire(skill: Skill) -> Json:
    """Convert a skill to an entry (``Skill``)."""
    files: Any = _DYNAMIC
    if skill.files is not None:
        files = [{"uri": each.uri, "digest": each.digest, "size": each.size} for each in skill.files]
    return {"uri": skill.uri, "frontmatter": dict(skill.frontmatter), "resources": files}


def skill_from_wire(wire: Mapping[str, Any], server: str | None = None) -> Skill:
    """Convert an entry to a skill.

    Args:
        wire: The entry.
        server: Configured name of its server.

    Raises:
        WireError: A member is missing or has the wrong type.
        DefinitionError: It violates the specification.
    """
    resources = wire.get("resources")
    if resources != _DYNAMIC and not isinstance(resources, list):
        raise WireError(f"'resources' of a skill is a list, or {_DYNAMIC!r}: {short_repr(wire)}")
    files = None if resources == _DYNAMIC else tuple(map(_file_from_wire, resources))
    source = "a skill" if server is None else f"server {server!r}"
    frontmatter = require_object(wire.get("frontmatter"), "'frontmatter' of a skill")
    return Skill(uri=require_text(wire.get("uri")), frontmatter=frontmatter, files=files, source=source, server=server)


def _file_from_wire(wire: Any) -> SkillFile:
    file = require_object(wire, "a file of a skill")
    return SkillFile(require_text(file.get("uri")), require_text(file.get("digest")), file.get("size", -1))


def directory_to_wire(skills: Iterable[Skill], uri: str) -> list[Json] | None:
    """Return the direct children of a directory of skills as MCP's ``Resource``; None if there is no such directory."""
    beginning = f"{uri}/"
    children: dict[str, Json] = {}
    for each in (file for skill in skills if _meets(skill.root, uri) for file in skill.files or ()):
        if each.uri.startswith(beginning):
            name, is_deeper, _ = each.uri[len(beginning) :].partition("/")
            child: Json = {"uri": beginning + name, "name": unquote(name)}
            children[name] = child | ({"mimeType": DIRECTORY_TYPE} if is_deeper else {"size": each.size})
    return list(children.values()) or None


def _meets(root: str, uri: str) -> bool:
    """True for the folder of a skill, and those in it."""
    return uri == root or uri.startswith(f"{root}/")
