"""The gateway of ``examples/deploy/credentials``, run as its compose file says, with servers that say whom they see."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests import processes
from tests.client.auth import authority as authorities
from tests.gateway.credentials.connected import ADA, BOB, Reached
from tests.gateway.credentials.seeing import seeing
from tests.gateway.credentials.test_questions_for_credentials import asked_url, connect, modern_call
from tests.gateway.credentials.test_served_gateway import at_authority, text_of
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = processes.ROOT / "examples" / "deploy" / "credentials"
PUBLIC_URL = "http://localhost:8000"


def environment(folder: Path, port: int) -> dict[str, str]:
    """Return the environment of the gateway, with files in a folder in place of those of the container."""
    compose = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    service = yaml.safe_load(compose)["services"]["gateway"]
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    for path in ("state", "secrets"):
        (folder / path).mkdir(mode=0o700)
    (folder / "secrets" / "keys").write_text(f"ada {ADA}\nbob {BOB}\n", encoding="utf-8")
    (folder / "secrets" / "keys").chmod(0o400)
    text = json.dumps(service["environment"])
    replaced = {
        "/run/secrets": f"{folder}/secrets",
        "/state/": f"{folder}/state/",
        PUBLIC_URL: f"http://127.0.0.1:{port}",
    }
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    text, count = re.subn(r"\$\{BRIDGE_STATE_KEYS:\?[^}]*\}", "a" * 64, text)
    assert count == 1
    given: dict[str, str] = json.loads(text)
    return given | {"BRIDGE_TRANSPORT": "http", "BRIDGE_HOST": "127.0.0.1", "BRIDGE_PORT": str(port)}


@pytest.mark.slow
def test_each_caller_of_the_example_connects_by_a_token_and_by_a_login(tmp_path: Path) -> None:
    config: dict[str, Any] = json.loads((FOLDER / "mcp.json").read_text(encoding="utf-8"))
    port = free_port()
    settings = environment(tmp_path, port)
    with seeing() as github, seeing() as notion, authorities.running() as authority:
        github.accepted, github.needs_credentials = {"Bearer of-ada"}, True
        notion.accepted, notion.needs_credentials, notion.authority = set(), True, authority.origin
        for name, server in (("github", github), ("notion", notion)):
            config["mcpServers"][name]["url"] = server.url
        (tmp_path / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
        arguments = ("-m", "bridge", "serve", str(tmp_path / "mcp.json"))
        with processes.serving(*arguments, environment=settings) as process:
            gateway = Reached(process.origin)
            with gateway.program() as ada, gateway.program(BOB) as bob:
                connect(gateway, asked_url(modern_call(ada, "github_connect")), ADA, "of-ada")
                assert text_of(modern_call(ada, "github_whoami")) == "Bearer of-ada 0"
                browser, back = at_authority(gateway, asked_url(modern_call(ada, "notion_connect")))
                assert "notion is connected" in browser.open(str(back)).text
                notion.accepted |= {f"Bearer {token}" for token in authority.issued}
                assert text_of(modern_call(ada, "notion_whoami")).startswith("Bearer ")
                assert asked_url(modern_call(bob, "github_connect"))
            gateway.close()
    assert (tmp_path / "state" / "credentials.db").stat().st_mode & 0o777 == 0o600
