"""Groups of clients, each beside the others: those that the scenario names, and those that a fault strikes; devices.

Whom a fault strikes is drawn by key, so the groups of a run follow from its scenario, also after it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from seedbus.bus.keyed_random import KeyedRandom
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.trace_file import FollowsFile
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.round_table import Flags
from seedbus.scenarios.reporting.statistics import Table
from seedbus.scenarios.reporting.terminal import shown
from seedbus.scenarios.schema.scenario import Scenario

Groups = Mapping[str, Flags]
"""Name → which clients are in the group, bool [N]; at least one is, and at least one is not."""
NOTE = (
    "The second line of each group tells of all other clients. Bytes are means of a client; those of commits and "
    "snapshots are a part of those down."
)


def groups_of(scenario: Scenario, files: Mapping[str, str] | None = None) -> Groups:
    """Return the groups of a run: those under `client_groups`, then those of faults, as `fault NUMBER: NAME`.

    The clients of a device that faults have in several files are a group of the first of these.

    Args:
        scenario: the run's scenario.
        files: digests of the files that it named when the run began, see `Scenario.check`; None: it has not begun. A
            fault whose file is another one now, or cannot be read, has no groups.
    """
    clients = scenario.participation.clients
    found: dict[str, Iterable[int]] = dict(scenario.client_groups)
    of_devices: list[tuple[str, list[int]]] = []
    for number, fault, random in _faults(scenario, files):
        own = fault.client_groups(clients, random)
        if isinstance(fault, FollowsFile):
            own = {name: members for name, members in own.items() if (name, members) not in of_devices}
            of_devices += own.items()
        found |= {f"fault {number}: {name}": members for name, members in own.items()}
    masks = {name: np.isin(np.arange(clients), list(members)) for name, members in found.items()}
    return {name: mask for name, mask in masks.items() if mask.any() and not mask.all()}


def devices_of(scenario: Scenario, files: Mapping[str, str]) -> dict[str, list[str | None]]:
    """Return the devices of clients 0, 1, … that have one of a file: the column `device`; none if no file has devices.

    If a client has several, in several files, there is a column for each fault. Arguments: `groups_of`.
    """
    clients = scenario.participation.clients
    found = {number: fault.client_devices(clients, random) for number, fault, random in _faults(scenario, files)}
    named = {f"device, fault {number}": devices for number, devices in found.items() if devices}
    together: dict[int, str] = {}
    for devices in named.values():
        together = dict(devices) | together
    if all(together[client] == device for devices in named.values() for client, device in devices.items()):
        named = {"device": together} if together else {}
    return {name: [devices.get(client) for client in range(clients)] for name, devices in named.items()}


def _faults(scenario: Scenario, files: Mapping[str, str] | None) -> Iterator[tuple[int, Any, KeyedRandom]]:
    """Yield each fault whose file is as it was when the run began, with its number and its draws."""
    clients = scenario.participation.clients
    for number, (fault, random) in enumerate(scenario.faults_with_draws):
        with suppress(ScenarioError):
            if files is None or fault.file_digest(clients) == files.get(f"faults.{number}.file", ""):
                yield number, fault, random


def figures(groups: Groups, table: Table) -> dict[str, dict[str, Any]]:
    """Return the `groups` part of a run's summary: name → figures of the group, and under `others` those of the others.

    Args:
        groups: the run's groups.
        table: the columns of `statistics.clients_table`.
    """
    return {name: _figures(mask, table) | {"others": _figures(~mask, table)} for name, mask in groups.items()}


def _figures(mask: Flags, table: Table) -> dict[str, Any]:
    counted, asked = table["counted"][mask], table["asked"][mask]
    total, lags = int(table["counted"].sum()), float((table["lag_mean"][mask] * asked).sum())
    sizes = {f"{name}_per_client": float(table[name][mask].mean()) for name in ("bytes_up", "bytes_down")}
    return {
        "clients": int(mask.sum()),
        "reports": int(counted.sum()),
        "reports_median": float(np.median(counted)),
        "reports_share": int(counted.sum()) / total if total else 0.0,
        **sizes,
        "catchup_bytes_per_client": float(table["catchup_bytes"][mask].mean()),
        "lag_mean": lags / int(asked.sum()) if asked.any() else None,
    }


def heads(*, has_server: bool) -> list[str]:
    """Return the headings of `rows`; without a server nodes make commits, and report to nobody."""
    counted = "reports counted" if has_server else "rounds with commits"
    return [
        "group",
        "clients",
        f"{counted} (median)",
        "of all",
        "bytes up",
        "bytes down",
        "commits and snapshots",
        "mean lag",
    ]


def rows(summary: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield a row for each group, as `heads` says; a second line in each cell is of the others. All is safe to print.

    Args:
        summary: the run's; that of an earlier version has no groups.
    """
    for name, each in summary.get("groups", {}).items():
        cells = zip(_cells(each), _cells(each["others"]), strict=True)
        yield [f"{shown(name)}\nthe others", *map("\n".join, cells)]


def _cells(of: Mapping[str, Any]) -> list[str]:
    lag = of["lag_mean"]
    names = ("bytes_up_per_client", "bytes_down_per_client", "catchup_bytes_per_client")
    return [
        f"{of['clients']:,}",
        f"{of['reports_median']:,g}",
        f"{of['reports_share']:.1%}",
        *(readable(of[name]) for name in names),
        "–" if lag is None else f"{lag:.3g}",
    ]
