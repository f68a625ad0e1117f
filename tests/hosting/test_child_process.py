from __future__ import annotations

import pytest

from bridge.hosting.child_process import without_secrets


@pytest.mark.parametrize(
    ("arguments", "kept", "environment"),
    [
        (["serve", "t.py"], ["serve", "t.py"], {}),
        (["serve", "--api-key", "s1", "t.py"], ["serve", "t.py"], {"BRIDGE_API_KEY": "s1"}),
        (["serve", "--api-key=s1", "--api-key", "s2,s3"], ["serve"], {"BRIDGE_API_KEY": "s1,s2,s3"}),
        (
            ["serve", "--oauth-client-secret", "a", "--oauth-client-secret=b=c"],
            ["serve"],
            {"BRIDGE_OAUTH_CLIENT_SECRET": "b=c"},
        ),
        (["serve", "--", "run", "--api-key", "its-own"], ["serve", "--", "run", "--api-key", "its-own"], {}),
        (["serve", "--api-keys", "file"], ["serve", "--api-keys", "file"], {}),
        (["serve", "--api-key"], ["serve"], {"BRIDGE_API_KEY": ""}),
    ],
)
def test_a_childs_command_line_shows_no_secret(
    arguments: list[str], kept: list[str], environment: dict[str, str]
) -> None:
    assert without_secrets(arguments) == (kept, environment)
