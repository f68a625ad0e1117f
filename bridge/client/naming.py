"""Naming: what tools of many servers are called here, whatever the order in which they came.

    wish ──> forbidden characters become "_" ──> wished by several servers, or taken? server's name before it
         ──> too long, or still the same as another? a hash at its end

A name depends on the set of tools and on nothing else: not on the order of servers or pages, nor on what was there
before. Of several tools whose names come out the same, the one that wished for exactly that name keeps it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from bridge.tools.toolbox import MAX_NAME_CHARS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")
_HASH_CHARS = 8


class RemoteName(NamedTuple):
    """What a tool is called where it lives."""

    server: str
    """The server's name, as it is configured."""
    tool: str
    """The tool's name on the server."""


def local_names(
    wishes: Mapping[RemoteName, str],
    *,
    taken: Collection[str] = (),
    always_prefix: Collection[str] = (),
) -> dict[RemoteName, str]:
    """Names for tools that are safe, bounded, and all different.

    Args:
        wishes: What each tool would be called if it were alone.
        taken: Names that none of them may have.
        always_prefix: The servers whose names stand before those of their tools whether there is a need or not.

    Returns:
        For each tool its name, in the order of the wishes.
    """
    plain = {origin: _clean(wish) for origin, wish in wishes.items()}
    wishers: defaultdict[str, set[str]] = defaultdict(set)
    for origin, name in plain.items():
        wishers[name].add(origin.server)
    wanted = {
        origin: _clean(f"{origin.server}_{wishes[origin]}")
        if origin.server in always_prefix or len(wishers[name]) > 1 or name in taken
        else name
        for origin, name in plain.items()
    }
    rivals = Counter(wanted.values())
    exact = Counter(name for origin, name in wanted.items() if name == wishes[origin])
    named = {
        origin: name
        for origin, name in wanted.items()
        if 0 < len(name) <= MAX_NAME_CHARS
        and name not in taken
        and (rivals[name] == 1 or (exact[name] == 1 and name == wishes[origin]))
    }
    used = {*named.values(), *taken}
    for origin in sorted(wanted.keys() - named.keys()):
        named[origin] = next(name for name in _hashed(wanted[origin], origin) if name not in used)
        used.add(named[origin])
    return {origin: named[origin] for origin in wishes}


def _clean(name: str) -> str:
    return _FORBIDDEN.sub("_", name)


def _hashed(name: str, origin: RemoteName) -> Iterator[str]:
    """Names with a hash; more than one, since somebody may have named a tool so that it looks like the first."""
    for attempt in count():
        seed = "\0".join((*origin, str(attempt))).encode(errors="surrogatepass")
        yield f"{name[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{sha256(seed).hexdigest()[:_HASH_CHARS]}"
