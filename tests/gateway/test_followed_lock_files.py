"""``bridge serve --reload`` follows lock files, wherever they come from."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
from mcp import Client

from tests.gateway.conftest import write_config
from tests.gateway.test_serve_gateway import DEADLINE_SECONDS, HTTP, SERVE, names, served_entry
from tests.processes import ROOT, serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("named_by", ["option", "configuration"])
async def test_a_lock_file_is_read_again(named_by: str, tmp_path: Path) -> None:
    config, lock = write_config(tmp_path / "mcp.json", one=served_entry()), tmp_path / "some.lock"
    run = [sys.executable, "-m", "bridge", "pin", config, "--lock", str(lock)]
    await anyio.run_process(run, cwd=ROOT)
    whole = lock.read_text()
    pins = json.loads(whole)
    del pins["servers"]["one"]["tools"]["add"]
    lock.write_text(json.dumps(pins))
    if named_by == "configuration":
        write_config(tmp_path / "mcp.json", one=served_entry(pins=str(lock)))
    options = ("--pins", str(lock)) if named_by == "option" else ()
    with serving(*SERVE, config, *options, "--reload", *HTTP) as gateway, anyio.fail_after(DEADLINE_SECONDS):
        async with Client(f"{gateway.origin}/mcp") as client, client.listen(tools_list_changed=True) as changes:
            assert "add" not in await names(client)
            (tmp_path / "next").write_text(whole)
            (tmp_path / "next").replace(lock)
            while "add" not in await names(client):
                await anext(changes)


@pytest.mark.parametrize("how", ["named by a reload", "missing at the start", "behind a link", "workers"])
async def test_a_lock_file_is_followed_wherever_it_comes_from(how: str, tmp_path: Path) -> None:
    config, old, whole = tmp_path / "mcp.json", tmp_path / "old" / "some.lock", tmp_path / "whole.lock"
    write_config(config, one=served_entry(), two=served_entry())
    await anyio.run_process([sys.executable, "-m", "bridge", "pin", str(config), "--lock", str(whole)], cwd=ROOT)
    pins = json.loads(whole.read_text())
    for server in pins["servers"].values():
        del server["tools"]["add"]
    old.parent.mkdir()
    old.write_text(json.dumps(pins))
    lock = old
    if how == "behind a link":  # as Kubernetes replaces files of a ConfigMap
        (tmp_path / "data").symlink_to("old")
        lock = tmp_path / "data" / "some.lock"
    elif how in {"missing at the start", "named by a reload"}:
        lock = tmp_path / "later" / "some.lock"
    named = old if how == "named by a reload" else lock
    servers = {name: served_entry(pins=str(named)) for name in ("one", "two")}
    servers["none"] = served_entry()
    write_config(config, **servers)
    options = ("--workers", "2") if how == "workers" else ()
    listed = {"one_add", "two_add"}
    with serving(*SERVE, str(config), *options, "--reload", *HTTP) as gateway, anyio.fail_after(DEADLINE_SECONDS):

        async def now() -> set[str]:
            async with Client(f"{gateway.origin}/mcp") as client:
                return listed & set(await names(client))

        assert await now() == set()
        if how == "named by a reload":
            lock.parent.mkdir()
            lock.write_text(json.dumps(pins))
            write_config(config, **{name: served_entry(pins=str(lock)) for name in ("one", "two")})
            async with Client(f"{gateway.origin}/mcp") as client:
                while "none_add" in await names(client):
                    await anyio.lowlevel.checkpoint()
        if how == "behind a link":
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "some.lock").write_text(whole.read_text())
            (tmp_path / "next").symlink_to("new")
            (tmp_path / "next").replace(tmp_path / "data")
        else:
            lock.parent.mkdir(exist_ok=True)
            whole.replace(lock)
        while await now() != listed:
            await anyio.lowlevel.checkpoint()
