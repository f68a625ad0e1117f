from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any

import pytest

from bridge.errors import DefinitionError
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.auth import keys as module

pytestmark = pytest.mark.anyio

SECRET = "3f9c2a7d3f9c2a7d3f9c2a7d"


async def test_a_key_is_its_bearers() -> None:
    keys = ApiKeys(ApiKey("ci", SECRET, tools=("b", "a", "a"), scopes=frozenset({"x"})), ApiKey("ada", "another-one"))
    found = await keys.verify_token(SECRET)
    assert found is not None
    assert (found.client_id, found.tools, found.scopes, found.has_all_scopes) == ("ci", ("a", "b"), ["x"], False)
    other = await keys.verify_token("another-one")
    assert other is not None
    assert (other.client_id, other.tools, other.has_all_scopes) == ("ada", None, True)


@pytest.mark.parametrize(
    "token", ["", "x", SECRET[:-1], SECRET + "0", "é", "\udcff", sha256(SECRET.encode()).hexdigest()]
)
async def test_what_is_no_key_is_nobodys(token: str) -> None:
    assert await ApiKeys(ApiKey("ci", SECRET)).verify_token(token) is None


async def test_a_digest_stands_for_its_key_and_is_none_itself() -> None:
    written = "sha256:" + sha256(SECRET.encode()).hexdigest()
    keys = ApiKeys(ApiKey("ci", written))
    assert await keys.verify_token(SECRET) is not None
    assert await keys.verify_token(written) is None


async def test_every_key_is_compared_whichever_it_is_and_by_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []

    def compare(left: Any, right: Any) -> bool:
        compared.append((left, right))
        return hmac.compare_digest(left, right)

    monkeypatch.setattr(module, "compare_digest", compare)
    keys = [ApiKey(f"k{number}", f"{SECRET}{number}") for number in range(5)]
    for token in (f"{SECRET}0", f"{SECRET}4", "none"):
        compared.clear()
        await ApiKeys(*keys).verify_token(token)
        assert compared == [(sha256(token.encode()).digest(), key.digest) for key in keys]


async def test_nothing_that_is_shown_holds_a_key() -> None:
    keys = ApiKeys(ApiKey("ci", SECRET))
    found = await keys.verify_token(SECRET)
    assert repr(keys) == "ApiKeys(ci)"
    assert SECRET not in f"{ApiKey('ci', SECRET)!r} {keys!r} {found!r} {found!s}"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("a b", SECRET), {}, "the name of a key has"),
        (("", SECRET), {}, "the name of a key has"),
        (("a\n", SECRET), {}, "the name of a key has"),
        (("a", ""), {}, "a key is visible ASCII"),
        (("a", "with space"), {}, "a key is visible ASCII"),
        (("a", "sha256:12"), {}, "the 64 hexadecimal digits"),
        (("a", SECRET), {"tools": ("a b",)}, "names and patterns such as search_"),
        (("a", SECRET), {"scopes": frozenset({"a b"})}, "a scope is visible ASCII"),
    ],
)
def test_what_is_not_written_as_it_has_to_be_is_refused(
    arguments: tuple[str, str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        ApiKey(*arguments, **options)
    assert SECRET not in str(caught.value)


def test_one_key_is_not_two_bearers() -> None:
    with pytest.raises(DefinitionError, match="the keys of 'a' and 'b' are the same"):
        ApiKeys(ApiKey("a", SECRET), ApiKey("b", SECRET))
