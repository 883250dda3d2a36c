"""Which clients took part when: a picture of clients over rounds, of a bounded size for any number of either.

Where there are more clients or rounds than cells, a cell stands for several of both, and shows what most of the clients
that it asked did; of equally many, the worse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.availability import Availability
from seedbus.bus import FaultHooks
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.client_names import named
from seedbus.scenarios.reporting.figures import Trace, figure, mark_traces
from seedbus.scenarios.reporting.looks import COLOURS, Marks
from seedbus.scenarios.reporting.round_table import Flags, RoundTable, Whole
from seedbus.scenarios.reporting.statistics import ArrivedReports
from seedbus.scenarios.schema.scenario import Scenario

MAX_ROWS, MAX_COLUMNS = 100, 230
MAX_NAMES = 16  # clients whose names fit beside the picture
FATES = ("dropped", "absent", "late or refused", "took part")
"""What a client that was asked did, the worst first: no report of it arrived; nor could one, since the client was away
when it was asked; its report came too late, or the server refused what it says; it came in time."""
_LOOKS = dict(zip(FATES, (COLOURS[4], COLOURS[8], COLOURS[1], COLOURS[0]), strict=True))


def absences(scenario: Scenario, history: RoundTable) -> Flags:
    """Return whether each of `history.asked` was away when its round opened, by the scenario's faults; bool.

    Nobody counts as away if a fault needs a file that cannot be read any more.
    """
    asked = history.asked
    found = np.zeros(asked.client.size, bool)
    try:
        availability = Availability(FaultHooks(scenario.faults, scenario.seed, history.clients))
    except ScenarioError:
        return found
    if not availability.is_changing:
        return found
    starts = np.searchsorted(asked.round, np.arange(history.opened_ns.size + 1))
    for round, opened_ns in enumerate(history.opened_ns.tolist()):
        availability.advance(round, opened_ns)
        here = slice(starts[round], starts[round + 1])
        found[here] = [client in availability.away for client in asked.client[here].tolist()]
    return found


def fates(history: RoundTable, arrived: ArrivedReports, is_absent: Flags) -> Whole:
    """Return the index into `FATES` of each pair of `history.asked`; is_absent: see `absences`."""
    asked = history.asked.keys(history.clients)
    in_time = np.isin(asked, history.reported.keys(history.clients))
    # without a server no reports arrive, and the step of a slow node becomes a commit in a later round
    began = history.begun * history.clients + history.reported.client
    came = np.isin(asked, arrived.keys) | np.isin(asked, began)
    return np.select([in_time, came, is_absent], [3, 2, 1], 0)


def timeline(history: RoundTable, what: Whole, marks: Marks, names: Sequence[str] = ()) -> str:
    """Return the picture as an HTML figure; its legend counts the pairs of a client and a round.

    Args:
        history: all rounds.
        what: what each of those asked did; see `fates`.
        marks: what is marked at the rounds, by their numbers.
        names: of clients 0, 1, …; none: they have no names.
    """
    rounds = history.opened_ns.size
    rows, columns = min(history.clients, MAX_ROWS), max(min(rounds, MAX_COLUMNS), 1)
    counts = np.zeros((rows, columns, len(FATES)), np.int64)
    row = history.asked.client * rows // history.clients
    column = history.asked.round * columns // max(rounds, 1)
    np.add.at(counts, (row, column, what), 1)
    shown = np.where(counts.sum(axis=2) > 0, counts.argmax(axis=2), -1)  # argmax: the first, and so the worse
    totals = np.bincount(what, minlength=len(FATES)).tolist()
    wide, high = max(rounds, 1) / columns, history.clients / rows
    traces = [
        _cells(f"{FATES[fate]} {totals[fate]:,}", FATES[fate], shown == fate, wide, high)
        for fate in reversed(range(len(FATES)))
        if totals[fate]
    ]
    each = ", ".join(
        f"{math.ceil(count / cells):,} {name}"
        for count, cells, name in ((history.clients, rows, "clients"), (rounds, columns, "rounds"))
        if count > cells
    )
    blank = f"Blank: not asked, {history.clients * rounds - what.size:,} times."
    told = f"{blank} A cell is up to {each}, and shows what most of those asked did." if each else blank
    plain = {"showgrid": False, "zeroline": False}
    x_axis = {"title": {"text": "round"}, "range": [-0.5, max(rounds, 1) - 0.5], **plain}
    y_axis: dict[str, Any] = {"title": {"text": "client"}, "range": [history.clients - 0.5, -0.5], **plain}
    if names and history.clients <= MAX_NAMES:
        labels = [escape(named(client, names)) for client in range(history.clients)]
        y_axis |= {"tickvals": list(range(history.clients)), "ticktext": labels}
    return figure("Which clients took part", [*traces, *mark_traces(marks, -0.5, rounds - 0.5)], x_axis, y_axis, told)


def _cells(name: str, fate: str, mask: NDArray[np.bool_], wide: float, high: float) -> Trace:
    """Return the cells [rows, columns] of one fate."""
    colour, near = _LOOKS[fate], "near " if max(wide, high) > 1 else ""
    return {
        "type": "heatmap",
        "name": name,
        "x0": (wide - 1) / 2,
        "dx": wide,
        "y0": (high - 1) / 2,
        "dy": high,
        "z": [[1 if each else None for each in row] for row in mask.tolist()],
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, colour], [1, colour]],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": f"{fate}: {near}client %{{y:.0f}}, round %{{x:.0f}}<extra></extra>",
    }
