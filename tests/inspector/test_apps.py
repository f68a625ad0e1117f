"""Apps are read as the specification says, and their documents run under the policy of what they declare."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.inspector.apps import App, app_of
from bridge.wire.extension import APP_TYPE
from tests.client.conftest import forked
from tests.inspector.conftest import inspecting, travel

if TYPE_CHECKING:
    from bridge.types import Json

BOARD = "tests/inspector/board.py"


def found(ui: Any = None, listed: Any = None, **item: Any) -> App:
    """The app of contents with this metadata."""
    contents: Json = {"uri": "ui://x", "mimeType": APP_TYPE, "text": "<p>", **item}
    app = app_of({"contents": [contents | ({} if ui is None else {"_meta": {"ui": ui}})]}, listed)
    assert app is not None
    return app


def directives(policy: str) -> dict[str, str]:
    """The directives of a policy."""
    return dict(each.split(" ", 1) for each in policy.split("; "))


def test_an_app_that_declares_nothing_reaches_nothing() -> None:
    assert directives(found().policy) == {
        "sandbox": "allow-scripts allow-forms",
        "default-src": "'none'",
        "script-src": "'unsafe-inline'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "media-src": "data:",
        "font-src": "data:",
        "connect-src": "'none'",
        "frame-src": "'none'",
        "base-uri": "'none'",
        "object-src": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'self'",
    }


def test_declared_domains_are_in_the_directives_that_the_specification_names() -> None:
    csp = {
        "connectDomains": ["https://api.example", "wss://live.example:8443"],
        "resourceDomains": ["https://*.cdn.example"],
        "frameDomains": ["https://frames.example"],
        "baseUriDomains": ["https://base.example"],
    }
    app = found({"csp": csp, "permissions": {"camera": {}, "clipboardWrite": {}, "usb": {}, "microphone": None}})
    policy = directives(app.policy)
    assert policy["connect-src"] == "https://api.example wss://live.example:8443"
    for name in ("script-src", "style-src"):
        assert policy[name] == "'unsafe-inline' https://*.cdn.example"
    for name in ("img-src", "media-src", "font-src"):
        assert policy[name] == "data: https://*.cdn.example"
    assert policy["frame-src"] == "https://frames.example"
    assert policy["base-uri"] == "https://base.example"
    assert app.summary() == {
        "domains": csp,
        "refused": [],
        "permissions": ["camera", "clipboardWrite"],
        "allow": "camera *; clipboard-write *",
    }


@pytest.mark.parametrize(
    "domain",
    [
        "*",
        "https:",
        "https://*",
        "https://a.example; script-src *",
        "https://a.example 'unsafe-eval'",
        "'self'",
        "data:",
        "https://a.example,b",
        "https://a.example\nx: y",
        "javascript:1",
        "//a.example",
        "https://a.example/path",
        5,
        None,
    ],
)
def test_what_is_no_origin_is_left_out_and_named(domain: object) -> None:
    app = found({"csp": {"connectDomains": [domain, "https://b.example/"]}})
    assert directives(app.policy)["connect-src"] == "https://b.example/"
    assert app.refused == [str(domain)]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["csp", "permissions", "connectDomains", "resourceDomains", "camera", "ui"]), x
            )
        ),
    )
)
def test_no_metadata_adds_a_directive(ui: Any) -> None:
    policy = found(ui).policy
    assert list(directives(policy)) == list(directives(found().policy))
    assert policy.isprintable()


def test_metadata_of_the_list_count_where_the_contents_have_none() -> None:
    listed = {"_meta": {"ui": {"csp": {"connectDomains": ["https://listed.example"]}}}}
    own = {"csp": {"connectDomains": ["https://own.example"]}}
    assert found(None, listed).domains == {"connectDomains": ["https://listed.example"]}
    assert found(own, listed).domains == own["csp"]


def test_an_app_is_read_from_text_or_base64_of_its_type_alone() -> None:
    assert found(text=None, blob=b64encode("é".encode()).decode()).html == "é"
    assert found(mimeType="Text/HTML; profile=mcp-app").html == "<p>"
    app: Json = {"mimeType": APP_TYPE}
    for contents in (None, [], [5], [{**app, "mimeType": "text/html", "text": "x"}], [app], [{**app, "blob": "é"}]):
        assert app_of({"contents": contents}, None) is None


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_servers_know_that_the_page_shows_apps_and_their_documents_have_their_policy(protocol: str) -> None:
    transport = forked("-m", "bridge", "serve", BOARD, inherit_env="all")
    async with inspecting(travel(protocol=protocol, transport=transport)) as page:
        await page.listed()
        answer = (await page.ended(await page.call("broken")))["answer"]
        assert "'io.modelcontextprotocol/ui'" in answer["result"]["content"][0]["text"]
        number = await page.start("resources/read", uri="ui://spy")
        await page.ended(number)
        asked = await page.get(f"/requests/{number}/app")
        assert asked["domains"] == {"connectDomains": ["https://api.example"]}
        assert asked["frame"] == f"{page.tokens.frames_path(number)}/app"
        frame = await page.frame(number, "app")
        assert directives(frame.headers["content-security-policy"])["connect-src"] == "https://api.example"
        assert frame.headers["x-dns-prefetch-control"] == "off"
        document = await page.frame(number, 0)
        assert "default-src 'none'" in document.headers["content-security-policy"]
        assert "api.example" not in document.headers["content-security-policy"]
        other = await page.call("broken")
        await page.ended(other)
        for missing in (
            await page.client.get(f"/requests/{other}/app"),
            await page.frame(other, "app"),
            await page.frame(99, "app"),
        ):
            assert missing.status_code == 404
