"""CSV files about clients, or about real devices: when they were available, and how fast they and their links were."""

from __future__ import annotations

import csv
import hashlib
import os
import stat
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo

from seedbus.bus import KeyedRandom
from seedbus.bus.event_queue import LAST_NS
from seedbus.models.data.untrusted import csv_rows
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.base import ClientSelector
from seedbus.scenarios.sentences import quoted

LATEST_S = 1e12
_MOST_DEVICES = 30  # of which each has a group of its own
_LONGEST_NAME = 60
_MOST_BYTES = 256 * 2**20

Owner = int | str
"""A client's number, or the name of a device."""
Line = TypeVar("Line", bound=tuple[float, ...])


def _make_absolute(value: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder") or ""
    return str(Path(folder, value).absolute())


TraceFile = Annotated[
    str,
    Field(
        min_length=1,
        repr=False,  # the path of the file keys no draw
        description="the CSV file; a relative path is relative to the scenario's file",
    ),
    AfterValidator(_make_absolute),
]
"""The path of such a file, a field of a fault."""


class Expected(ValueError):
    """What a line would have to say."""


def read_trace(
    path: str,
    columns: Sequence[str],
    clients: int,
    parse: Callable[[list[str]], Line],
    form: str,
    *,
    optional: str = "",
    has_one_each: bool = False,
) -> dict[Owner, list[Line]]:
    """Return the lines of a file by client or device, each in the file's order.

    Args:
        path: the file. Its first column is `client`, or `device`.
        columns: its other columns.
        clients: number of clients of the run.
        parse: the values of a line but the first → what it says. Raises `ValueError` if they have another form, and
            `Expected` if they are not accepted.
        form: the form of a line, after its client or device, in words.
        optional: the first of these columns, if a file may lack it; its values are 0 then.
        has_one_each: whether a client or device has one line at most.

    Raises:
        ScenarioError: the file cannot be read, or has an invalid line.
    """
    lines: dict[Owner, list[Line]] = {}
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:  # reading a device may never end
            what = f"of {status.st_size:,} bytes" if stat.S_ISREG(status.st_mode) else "no file"
            raise ScenarioError(path, [f"it is {what}; expected a file of at most {_MOST_BYTES:,} bytes"])
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = csv_rows(file)
            _, header = next(rows, (1, []))
            shorter = [each for each in columns if each != optional]
            if header[:1] not in (["client"], ["device"]) or header[1:] not in (columns, shorter):
                names = f"the columns {','.join(['client', *columns])}, or device in place of client"
                names += f"; {optional} may be left out" if optional else ""
                raise _refusal(path, 1, header, names)
            first, added = header[0], ["0"] * (len(columns) - len(header[1:]))
            for number, row in rows:
                if not row:
                    continue
                try:
                    is_whole = len(row) == len(header)
                    owner = _device(row[0]) if first == "device" else _client(row[0], clients, is_whole=is_whole)
                    if has_one_each and owner in lines:
                        raise Expected(f"one line for each {first}")
                    lines.setdefault(owner, []).append(parse([*added, *row[1:]]))
                except Expected as error:
                    raise _refusal(path, number, row, str(error)) from None
                except ValueError:
                    dates = ", which begin with the run at 0, and no dates" if any(map(_is_date, row[1:])) else ""
                    raise _refusal(path, number, row, f"a {first} and {form}{dates}") from None
    except (OSError, ValueError, csv.Error) as error:
        if isinstance(error, ScenarioError):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(path, [f"it cannot be read as CSV text ({why})"]) from None
    return lines


def _client(text: str, clients: int, *, is_whole: bool) -> int:
    try:
        client = int(text)
    except ValueError:
        if not is_whole:
            raise
        raise Expected(f"a client's number from 0 to {clients - 1}, or names under the column device") from None
    if not 0 <= client < clients:
        raise Expected(f"a client from 0 to {clients - 1}")
    return client


def _device(name: str) -> str:
    if not (0 < len(name) <= _LONGEST_NAME and name.isprintable()):
        raise Expected(f"a device with a name of 1 to {_LONGEST_NAME} printable characters")
    return name


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "-" in text or ":" in text


def refuse_late(path: str, first_ns: int) -> None:
    """Raise `ScenarioError` if simulated time ends before the first line, as before seconds since 1970."""
    if first_ns > LAST_NS:
        raise ScenarioError(
            path,
            [
                f"its first line begins at {first_ns / 1e9:,.0f} s, and simulated time ends at {LAST_NS / 1e9:,.0f} s; "
                "expected seconds from the beginning of the run"
            ],
        )


def _refusal(path: str, line: int, row: list[str], expected: str) -> ScenarioError:
    form = (
        ", with commas between them and decimal points" if any(mark in cell for cell in row for mark in ";\t,") else ""
    )
    found = quoted(",".join(row))
    return ScenarioError(f"{path}, line {line}", [f"{found} is not accepted; expected {expected}{form}"])


def whose(owner: Owner) -> str:
    """Return in words whose lines are meant."""
    return f"client {owner}" if isinstance(owner, int) else f"device {quoted(owner)}"


class FollowsFile(ClientSelector):
    """Each selected client follows the lines of its number in a file, or those of its device."""

    @abstractmethod
    def lines(self, clients: int) -> Mapping[Owner, Sequence[tuple[float, ...]]]:
        """Return the lines of each client or device.

        Args:
            clients: number of clients of the run.

        Raises:
            ScenarioError: the file cannot be read, or has an invalid line.
        """

    def file_digest(self, clients: int) -> str:
        """Return a digest of what the file says, whatever the order of its lines."""
        digest = hashlib.blake2b(digest_size=16)
        lines = self.lines(clients)
        for owner in sorted(lines, key=str):
            digest.update(f"{owner!r} {sorted(lines[owner])}\n".encode())
        return digest.hexdigest()

    def followed(self, lines: Mapping[Owner, object], clients: int, random: KeyedRandom) -> dict[int, Owner]:
        """Return client → whose lines it follows, of the selected clients that have lines.

        Args:
            lines: client → its lines, or device → its lines; then each client has one of the devices, drawn once, and
                the same one in all files that have the same devices.
            clients: number of clients of the run.
            random: draws of the fault.
        """
        chosen = self.chosen(clients, random)
        devices = sorted(owner for owner in lines if isinstance(owner, str))
        if not devices:
            return {client: client for client in chosen if client in lines}
        return {client: devices[int(random.alike("device", client) * len(devices))] for client in chosen}

    def unlisted(self, lines: Mapping[Owner, object], clients: int, random: KeyedRandom) -> list[int]:
        """Return the selected clients that have no lines, ascending. Arguments: `followed`."""
        followed = self.followed(lines, clients, random)
        return [client for client in self.chosen(clients, random) if client not in followed]

    @abstractmethod
    def oddities(self, clients: int, random: KeyedRandom) -> list[tuple[str, list[int]]]:
        """Return what the file may not have been meant to say: words with {} for clients, and these clients."""

    def client_groups(self, clients: int, random: KeyedRandom) -> dict[str, list[int]]:
        """Return the selected clients that have lines: those of each device apart if these are few, else together."""
        groups: dict[str, list[int]] = {}
        name = str(type(self).model_fields["fault"].default)
        followed = self.followed(self.lines(clients), clients, random)
        for client, owner in sorted(followed.items()):
            groups.setdefault(name if isinstance(owner, int) else f"device {owner}", []).append(client)
        return groups if len(groups) <= _MOST_DEVICES else {name: sorted(followed)}

    def client_devices(self, clients: int, random: KeyedRandom) -> dict[int, str]:
        followed = self.followed(self.lines(clients), clients, random)
        return {client: owner for client, owner in followed.items() if isinstance(owner, str)}
