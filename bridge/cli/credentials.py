"""``bridge credentials``: list and forget the credentials of a gateway's callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bridge.cli.options import group_values, options_of
from bridge.cli.reporting import FAILED, CommandError, logging_option
from bridge.cli.serve.credential_options import CredentialOptions
from bridge.cli.serve.deployment_options import ScalingOptions
from bridge.cli.terminal import table, write_json, write_report
from bridge.hosting.process import print_message, run_interruptible
from bridge.text import utc_time, with_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.gateway.credentials.store import CredentialRecord, CredentialStore
    from bridge.types import Json

_COLUMNS = ("ISSUER", "SUBJECT", "SERVER", "TYPE", "CONNECTED", "CHANGED", "EXPIRES")


@click.command(short_help="List or forget the credentials of a gateway's callers.")
@click.argument("action", type=click.Choice(["list", "forget"]))
@click.option("--issuer", help="Only callers of this issuer; key for those with API keys.")
@click.option("--subject", help="Only this caller.")
@click.option("--server", help="Only credentials for this server.")
@click.option("--all", "is_all", is_flag=True, help="Forget the credentials of all callers for all servers.")
@click.option("--json", "as_json", is_flag=True, help="List as an array of objects.")
@click.option(
    "--name",
    envvar="BRIDGE_NAME",
    show_envvar=True,
    help="Required for credentials in Redis: the gateway's name, which bridge serve shows at the start.",
)
@options_of(CredentialOptions, {"credential_store"})
@options_of(ScalingOptions, {"redis_url", "state_keys"})
@logging_option("warning")
@click.pass_context
def command(ctx: click.Context, /, action: str, is_all: bool, as_json: bool, name: str | None, **settings: Any) -> int:
    """List the credentials that a gateway keeps for its callers, or forget some; their values are never shown.

    Tokens of logins are revoked if the authorization server supports that (RFC 7009). A gateway that runs stops using
    a forgotten credential within 5 seconds. Give the same store and keys as to bridge serve.
    """
    selected = {part: settings.pop(part) for part in ("issuer", "subject", "server")}
    if action == "forget" and is_all == any(selected.values()):
        raise click.UsageError("name what to forget by --issuer, --subject or --server, or give --all", ctx)
    scaling = group_values(ScalingOptions, settings)
    options = group_values(CredentialOptions, settings)
    if name is None and scaling.redis_url is not None and options.credential_store is None:
        raise click.UsageError("give the --name of the gateway whose credentials are in Redis", ctx)
    store = options.store(name or "", scaling.secrets(ctx), scaling.redis_url)

    from bridge.gateway.credentials.errors import CredentialStoreError  # noqa: PLC0415 - after usage errors

    try:
        records = run_interruptible(_found, store, selected, action == "forget")
    except CredentialStoreError as error:
        raise CommandError(str(error)) from error
    if action == "forget":
        print_message(f"forgot {with_count(len(records), 'credential')}")
        return 0 if records else FAILED
    if as_json:
        write_json([_as_json(record) for record in records])
    else:
        write_report(table([_COLUMNS, *map(_as_row, records)]))
    return 0


async def _found(store: CredentialStore, selected: dict[str, str | None], forgets: bool) -> Sequence[CredentialRecord]:
    await store.open()
    try:
        records = await store.list(**selected)
        if forgets:
            from bridge.gateway.credentials.broker import CredentialBroker  # noqa: PLC0415 - imports the SDK

            broker = CredentialBroker(store)
            for record in records:
                await broker.forget(record.key)
        return records
    finally:
        await store.close()


def _as_json(record: CredentialRecord) -> Json:
    key = record.key
    return {
        "issuer": key.issuer,
        "subject": key.subject,
        "server": key.server,
        "type": record.kind,
        "connectedAt": utc_time(record.made_at),
        "changedAt": utc_time(record.changed_at),
        "expiresAt": None if record.expires_at is None else utc_time(record.expires_at),
    }


def _as_row(record: CredentialRecord) -> tuple[str, ...]:
    return tuple("-" if value in {None, ""} else str(value) for value in _as_json(record).values())
