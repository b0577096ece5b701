"""`gateway keys`: create, list and revoke the API keys in a file."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from gateway.auth.key_changes import UnknownKeyIdError, add_key, revoke_key
from gateway.auth.keys import KeyEntry, KeyFileError, read_keys
from gateway.cli.command import Command
from gateway.cli.exit_codes import fail, misuse

keys = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Create, list and revoke API keys."
)

KeyFileOption = Annotated[Path, typer.Option("--file", metavar="FILE", help="Key file.", dir_okay=False)]

_DURATION = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


@keys.command(cls=Command)
def add(
    file: KeyFileOption,
    principal: Annotated[
        str, typer.Option("--principal", metavar="NAME", help="Principal that the key authenticates.")
    ],
    expires: Annotated[
        str,
        typer.Option(
            "--expires",
            metavar="WHEN",
            help="Expiry: a time such as 2027-01-31 or 2027-01-31T12:00Z, or a duration such as 90d.",
        ),
    ] = "",
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Purpose of the key.")] = "",
) -> None:
    """Create a key, and print it at the end of the line. Save the key: the file contains only its digest, so the
    command cannot print the key again. If the file does not exist, the command creates it."""
    if not principal:
        misuse("--principal: expected a name")
    end = _time(expires) if expires else None
    with _reporting_errors(file):
        key, entry = add_key(file, principal, end, note)
    until = f", until {_shown(end)}" if end is not None else ""
    print(f"key {entry.id} of {principal}{until}: {key}")


@keys.command("list", cls=Command)
def list_keys(file: KeyFileOption) -> None:
    """List the keys with their ID, principal, state, creation time and note. The file does not contain the keys
    themselves."""
    now = datetime.now(UTC)
    rows = [("ID", "PRINCIPAL", "STATE", "MADE", "NOTE")]
    rows += [(each.id, each.principal, _state(each, now), _shown(each.created), each.note) for each in _entries(file)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip())


@keys.command(cls=Command)
def revoke(
    file: KeyFileOption,
    id: Annotated[str, typer.Argument(metavar="ID", help="ID of the key, from `gateway keys list`.")],
) -> None:
    """Revoke a key. Gateways that watch the file then reject the key."""
    _must_exist(file)
    with _reporting_errors(file):
        revoke_key(file, id)
    print(f"key {id} is revoked")


def _state(entry: KeyEntry, now: datetime) -> str:
    if entry.revoked is not None:
        return f"revoked {_shown(entry.revoked)}"
    if entry.expires is None:
        return "valid"
    return f"{'expired' if entry.expires <= now else 'valid until'} {_shown(entry.expires)}"


def _shown(time: datetime | None) -> str:
    return "" if time is None else time.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def _time(text: str) -> datetime:
    """Return a time in the future: a date, a date and time (default time zone: UTC), or a duration from now."""
    now = datetime.now(UTC)
    duration = _DURATION.fullmatch(text)
    if duration is not None:
        return (now + timedelta(**{_UNITS[duration[2]]: int(duration[1])})).replace(microsecond=0)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        misuse(f"--expires: expected a time such as 2027-01-31 or 2027-01-31T12:00Z, or 90d, got {text!r}")
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    if found <= now:
        misuse(f"--expires: {text} is in the past")
    return found


def _entries(file: Path) -> tuple[KeyEntry, ...]:
    _must_exist(file)
    with _reporting_errors(file):
        return read_keys(file).entries


def _must_exist(file: Path) -> None:
    if not file.exists():
        misuse(f"{file}: no such file")


@contextmanager
def _reporting_errors(file: Path) -> Iterator[None]:
    """If the file is unusable, end the command with an error."""
    try:
        yield
    except KeyFileError as error:
        fail(f"{file}: {error}")
    except UnknownKeyIdError as error:
        fail(str(error))
    except OSError as error:
        misuse(f"{file} cannot be written: {error.strerror}")
