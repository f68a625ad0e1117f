from __future__ import annotations

import pytest

from bridge.server.http.host_origin import AllowedHosts, host_name


@pytest.mark.parametrize("port", ["", ":80", ":8000"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LocalHost", "localhost."])
@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "::"])
def test_this_machine_is_always_let_in(bound: str, host: str, port: str) -> None:
    assert AllowedHosts(bound).admits_host(host + port)


@pytest.mark.parametrize(
    ("bound", "host"),
    [("tools.local", "tools.local:8000"), ("0.0.0.0", "0.0.0.0:80"), ("::", "[::]:80"), ("fe80::1", "[fe80::1]")],
)
def test_so_is_the_name_that_the_server_is_bound_to(bound: str, host: str) -> None:
    assert AllowedHosts(bound).admits_host(host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:localhost", "localhost:",
     "localhost:x", "localhost:8000:8000", "user@localhost", "localhost/", " localhost", "[::2]", "::1", "localhost:*"],
)  # fmt: skip
def test_any_other_is_not(host: str) -> None:
    assert not AllowedHosts("127.0.0.1").admits_host(host)


@pytest.mark.parametrize(
    ("entry", "admitted", "refused"),
    [
        ("tools.example.com", ["tools.example.com", "TOOLS.example.com:99", "tools.example.com.:1"], ["example.com"]),
        ("tools.example.com:*", ["tools.example.com", "tools.example.com:99"], ["a.tools.example.com"]),
        ("tools.example.com:99", ["tools.example.com:99"], ["tools.example.com", "tools.example.com:9"]),
        ("*.example.com", ["a.example.com", "a.b.example.com:1"], ["example.com", "badexample.com", "a.example.org"]),
        ("*.example.com:1", ["a.example.com:1"], ["a.example.com:2"]),
        ("*", ["anything:1", "x"], ["a b", "a/b"]),
        ("fe80::1", ["[fe80::1]:5"], ["[fe80::2]:5"]),
    ],
)
def test_an_allowed_host_is_written_in_one_of_these_ways(entry: str, admitted: list[str], refused: list[str]) -> None:
    names = AllowedHosts("127.0.0.1", [entry])
    assert [host for host in admitted if not names.admits_host(host)] == []
    assert [host for host in refused if names.admits_host(host)] == []


@pytest.mark.parametrize(
    "origin", ["http://localhost", "https://localhost:3000", "http://127.0.0.1:1", "http://[::1]:1", "http://bound:5"]
)
def test_pages_of_this_machine_may_use_the_server(origin: str) -> None:
    assert AllowedHosts("bound").admits_origin(origin, "localhost:8000")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "localhost", "http://localhost.evil.example", "http://a@localhost", "//x"]
)
def test_no_other_pages_may(origin: str) -> None:
    assert not AllowedHosts("127.0.0.1").admits_origin(origin, "localhost:8000")


def test_pages_of_the_very_host_that_was_asked_may_use_it() -> None:
    names = AllowedHosts("127.0.0.1", ["tools.example.com"])
    assert names.admits_origin("https://tools.example.com", "tools.example.com")
    assert not names.admits_origin("https://tools.example.com:1", "tools.example.com")


@pytest.mark.parametrize(
    ("entry", "admitted", "refused"),
    [
        ("https://app.example.com", ["https://app.example.com"], ["http://app.example.com", "https://app.example.com:1"]),
        ("https://app.example.com/", ["https://app.example.com"], ["https://example.com"]),
        ("https://app.example.com:8443", ["https://app.example.com:8443"], ["https://app.example.com"]),
        ("https://app.example.com:*", ["https://app.example.com:1", "https://app.example.com"], ["http://app.example.com"]),
        ("https://*.example.com", ["https://a.example.com"], ["https://example.com", "https://a.example.com.evil.org"]),
        ("*", ["https://anything", "null"], []),
    ],
)  # fmt: skip
def test_an_allowed_origin_is_written_in_one_of_these_ways(entry: str, admitted: list[str], refused: list[str]) -> None:
    names = AllowedHosts("127.0.0.1", origins=[entry])
    assert [origin for origin in admitted if not names.admits_origin(origin, "localhost")] == []
    assert [origin for origin in refused if names.admits_origin(origin, "localhost")] == []


@pytest.mark.parametrize("entry", ["", "http://x", "a b", "x/y", "x:y"])
def test_an_allowed_host_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="an allowed host is a name"):
        AllowedHosts("127.0.0.1", [entry])


@pytest.mark.parametrize("entry", ["", "app.example.com", "https://", "https://a/b", "null"])
def test_an_allowed_origin_that_is_no_origin_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="an allowed origin has a scheme"):
        AllowedHosts("127.0.0.1", origins=[entry])


@pytest.mark.parametrize(("host", "name"), [("Tools:80", "tools"), ("[::2]:80", "[::2]"), ("a b", "a b")])
def test_a_host_has_a_name_without_its_port(host: str, name: str) -> None:
    assert host_name(host) == name
