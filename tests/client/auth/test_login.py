from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.client.auth.store import LoginStore, login_key
from bridge.errors import ServerAuthError
from tests.client.auth.conftest import log_in, sum_by

if TYPE_CHECKING:
    from tests.client.auth.resource import Resource

pytestmark = pytest.mark.anyio


async def test_a_file_that_holds_no_login_is_named_and_kept(resource: Resource) -> None:
    path = LoginStore().path(login_key(resource.url))
    path.parent.mkdir(parents=True)
    path.write_text('{"tokens": 1, "half', encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(ServerAuthError, match=f"(?s){path}.*is not a valid login.*bridge login"):
        await sum_by(resource.url)
    assert path.read_text(encoding="utf-8") == '{"tokens": 1, "half'
    await log_in(resource.url)
    assert path.with_suffix(".bad").read_text(encoding="utf-8") == '{"tokens": 1, "half'
    assert await sum_by(resource.url) == 3
