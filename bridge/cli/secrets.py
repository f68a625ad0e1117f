"""Secrets on a command line, which every user of the machine sees: a child gets them in its environment instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECRETS = {
    "--api-key": "BRIDGE_API_KEY",
    "--oauth-client-secret": "BRIDGE_OAUTH_CLIENT_SECRET",
    "--state-keys": "BRIDGE_STATE_KEYS",
    "--redis-url": "BRIDGE_REDIS_URL",
}
_REPEATABLE = frozenset({"--api-key", "--state-keys"})


def without_secrets(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """A command line for a child.

    Args:
        arguments: This process's own, without the program.

    Returns:
        The arguments without those that are secret, and what the child's environment has to say instead.
    """
    kept: list[str] = []
    found: dict[str, list[str]] = {}
    rest = iter(arguments)
    for argument in rest:
        name, sign, value = argument.partition("=")
        if argument == "--":
            kept += [argument, *rest]  # another program's
        elif name in _SECRETS:
            found.setdefault(name, []).append(value if sign else next(rest, ""))
        else:
            kept.append(argument)
    environment = {
        _SECRETS[name]: ",".join(values) if name in _REPEATABLE else values[-1] for name, values in found.items()
    }
    return kept, environment
