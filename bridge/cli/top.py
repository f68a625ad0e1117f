"""``bridge top``: show what a running server does, as its admin page does."""

from __future__ import annotations

import json
import os
import sys
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.options import Number
from bridge.cli.reporting import CommandError, logging_option
from bridge.cli.terminal import table, write_json, write_report
from bridge.server.limits import Rate
from bridge.text import clip, with_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import httpx2

    from bridge.types import Json

_KEY_VARIABLE = "BRIDGE_ADMIN_KEY"
_TIMEOUT_SECONDS = 15.0
_MAX_ROWS = 15
_MAX_CHARS = 60
_CLEAR = "\x1b[H\x1b[2J"
"""Moves the cursor to the beginning of an empty screen."""
_ACTIONS = {"cancel": "call", "cancel-task": "task", "restart": "server", "disable": "tool", "enable": "tool"}


@click.command(short_help="Show what the server at a URL does, and act on it.")
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="Write the whole state once, as JSON.")
@click.option("--once", is_flag=True, help="Write the tables once, as is done where standard output is a pipe.")
@click.option("--interval", type=Number(0.1), default=2.0, metavar="SECONDS", help="Seconds between two states.")
@click.option("--cancel", metavar="CALL", help="Cancel the call with this id.")
@click.option("--cancel-task", metavar="TASK", help="Cancel the task whose id begins so.")
@click.option("--restart", metavar="SERVER", help="Restart this server of a gateway.")
@click.option("--disable", metavar="TOOL", help="Disable this tool until it is enabled, or the server is restarted.")
@click.option("--enable", metavar="TOOL", help="Enable this tool again.")
@click.option("--reload", is_flag=True, help="Read the configuration again.")
@click.option("--drain", is_flag=True, help="End the server gracefully, as SIGTERM does.")
@logging_option("warning")
@click.pass_context
def command(
    ctx: click.Context, /, url: str, as_json: bool, once: bool, interval: float, **actions: str | bool | None
) -> None:
    """Show the servers, the calls under way, the teams and the last calls of a server, until Ctrl-C.

    The URL is that of the admin port: bridge serve … --admin-port 9000 --admin-key KEY is at http://127.0.0.1:9000.
    The key is read from the variable BRIDGE_ADMIN_KEY.
    """
    wanted = [(name.replace("_", "-"), value) for name, value in actions.items() if value]
    if len(wanted) > 1:
        raise click.UsageError("give one action at a time", ctx)
    key = os.environ.get(_KEY_VARIABLE, "").partition(",")[0].strip()
    if not key:
        raise click.UsageError(f"set the key of an operator in {_KEY_VARIABLE}", ctx)
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"{url!r} is not the URL of an admin port, such as http://127.0.0.1:9000", ctx)
    import httpx2  # noqa: PLC0415 - after usage errors

    base = url.rstrip("/").removesuffix("/admin") + "/admin"
    with httpx2.Client(headers={"authorization": f"Bearer {key}"}, timeout=_TIMEOUT_SECONDS) as client:
        if wanted:
            _act(client, base, *wanted[0])
            return
        state = _state(client, base)
        if as_json:
            write_json(state)
        elif once or not sys.stdout.isatty():
            write_report("\n".join(described(state)))
        else:
            while True:
                sys.stdout.write(_CLEAR)
                write_report("\n".join(described(state)), style=_styled)
                time.sleep(interval)
                state = _state(client, base)


def _state(client: httpx2.Client, base: str) -> Json:
    state: Json = _answered(client, "GET", f"{base}/state").json()
    return state


def _act(client: httpx2.Client, base: str, action: str, target: str | bool) -> None:
    """Do an action.

    Raises:
        CommandError: It was not done.
    """
    body = {"action": action} | ({_ACTIONS[action]: target} if action in _ACTIONS else {})
    response = _answered(client, "POST", f"{base}/actions", json.dumps(body))
    if not response.is_success:
        raise CommandError(f"{action} was not done: {response.json()['problem']}")


def _answered(client: httpx2.Client, method: str, url: str, content: str | None = None) -> httpx2.Response:
    """Return the response of the admin port.

    Raises:
        CommandError: There is none, or it is not one of the administration.
    """
    import httpx2  # noqa: PLC0415 - as above

    headers = {} if content is None else {"content-type": "application/json"}
    try:
        response = client.request(method, url, content=content, headers=headers)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise CommandError(
            f"{url} does not answer: {str(error) or type(error).__name__}; is this the admin port?"
        ) from error
    if response.status_code in {401, 403}:
        raise CommandError(
            f"{url} refuses the key in {_KEY_VARIABLE}: it is not one of --admin-key or --admin-keys, or this is not "
            "the admin port"
        )
    if response.status_code == HTTPStatus.NOT_FOUND:
        raise CommandError(
            f"{url} is not there (404): give the URL of the admin port of a server with --admin-key or --admin-keys"
        )
    if response.status_code not in {200, 409}:
        raise CommandError(f"{url} answers with the status {response.status_code}: {clip(response.text.strip())}")
    return response


def described(state: Json) -> Iterator[str]:
    """Yield the lines of a state: a summary, then tables."""
    processes = state.get("processes", ())
    parts = [
        f"{state['name']}: {state['state']}",
        f"up {_age(state['uptimeSeconds'])}",
        *([f"{len(processes)} workers"] if processes else []),
        with_count(state["callCount"], "call"),
        with_count(state["sessionCount"], "session"),
        with_count(state["taskCount"], "task"),
    ]
    yield ", ".join(parts)
    for reason in state["missing"]:
        yield f"  {reason}"
    yield from _section(
        ("SERVER", "STATE", "TOOLS", "RESTARTS", "MEMORY", "P50", "P95", "LAST ERROR"), map(_server, state["servers"])
    )
    yield from _section(("CALL", "AGE", "CALLER", "TEAM", "PROGRESS", "ID"), map(_call, state["calls"]))
    teams = [(name, *_team(usage)) for name, usage in state["teams"].items()]
    yield from _section(("TEAM", "CALLS", "ERRORS", "SECONDS", "BYTES", "TOKENS"), teams)
    limited = [each for each in state["callers"] if each["rate"] or each["bytes"] or each["maxCalls"]]
    yield from _section(("LIMITS OF", "CALLS", "RATE", "BYTES"), map(_limits, limited))
    yield from _section(("TASK", "TOOL", "STATE", "AGE", "CALLER"), map(_task, state["tasks"]))
    yield from _section(("RECENT", "CALLER", "OUTCOME", "MS", "BYTES", "ID"), map(_record, state["recent"]))
    refusals = [
        (each["time"][11:19], str(each["status"]), clip(each["reason"], _MAX_CHARS)) for each in state["refusals"]
    ]
    yield from _section(("REFUSED", "STATUS", "REASON"), refusals)


def _section(heading: tuple[str, ...], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    found = list(rows)
    if not found:
        return
    yield ""
    yield from table([heading, *found[:_MAX_ROWS]]).splitlines()
    if len(found) > _MAX_ROWS:
        yield f"  and {len(found) - _MAX_ROWS} more"


def _server(row: Json) -> tuple[str, ...]:
    latency, memory = row["latency"] or {}, row.get("memoryBytes")
    return (
        _with_worker(row["name"], row),
        row["state"],
        str(len(row["tools"])),
        str(max(row.get("restarts") or 0, row["reconnects"])),
        f"{memory / 1e6:.0f} MB" if memory else "-",
        _milliseconds(latency.get("p50Ms")),
        _milliseconds(latency.get("p95Ms")),
        clip(row["lastError"] or "", _MAX_CHARS),
    )


def _call(row: Json) -> tuple[str, ...]:
    progress = "-"
    if row["progress"] is not None:
        progress = f"{row['progress']:g}" + (f"/{row['total']:g}" if row["total"] else "")
    name = _with_worker(row["name"] or "-", row)
    return name, _age(row["ageSeconds"]), row["caller"] or "-", row["team"] or "-", progress, row["id"]


def _team(usage: Json) -> tuple[str, ...]:
    errors = sum(usage["errors"].values())
    return tuple(
        f"{value:,}"
        for value in (usage["calls"], errors, usage["seconds"], usage["resultBytes"], usage["estimatedResultTokens"])
    )


def _limits(row: Json) -> tuple[str, ...]:
    calls = str(row["calls"]) if row["maxCalls"] is None else f"{row['calls']} of {row['maxCalls']}"
    rate = of_bytes = "-"
    if (found := row["rate"]) is not None:
        rate = f"{row['rateUsed']:.0%} of {Rate(found['calls'], found['perSeconds'])}"
    if (found := row["bytes"]) is not None:
        of_bytes = f"{row['bytesUsed']:.0%} of {Rate(found['bytes'], found['perSeconds']).of_bytes}"
    name = row["name"] if row["kind"] == "caller" else f"{row['kind']} {row['name']}"
    return _with_worker(name, row), calls, rate, of_bytes


def _task(row: Json) -> tuple[str, ...]:
    return f"{row['id']}…", row["tool"], row["status"], _age(row["ageSeconds"]), row["caller"] or "-"


def _record(row: Json) -> tuple[str, ...]:
    what = (
        row.get("tool") or row.get("resource") or row.get("prompt") or f"{row.get('action')} {row.get('target') or ''}"
    )
    outcome = f"error {row['error']}" if row["outcome"] == "error" and "error" in row else row["outcome"]
    milliseconds = f"{row['duration_ms']:.1f}" if "duration_ms" in row else "-"
    size = str(row.get("result_bytes") or "-")
    name = f"{row['time'][11:19]} {clip(what.strip(), _MAX_CHARS)}"
    return name, row["caller"] or "-", clip(outcome, _MAX_CHARS), milliseconds, size, row.get("request_id") or "-"


def _with_worker(name: str, row: Json) -> str:
    return f"{name} ({row['worker']})" if "worker" in row else name


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.3g} s"


def _milliseconds(value: Any) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def _styled(line: str) -> str:
    """Make headings bold."""
    words = line.split()
    return click.style(line, bold=True) if words and words[0].isupper() and len(words[0]) > 1 else line
