"""Which clients took part when: a picture of clients over rounds, of a bounded size for any number of either.

Where there are more clients or rounds than cells, a cell stands for several of both, and shows what most of the clients
that it asked did; of equally many, the worse.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from seedbus.scenarios.reporting.axes import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, ticks
from seedbus.scenarios.reporting.figures import COLOURS, Marks, figure, legend, mark_parts, number_text, text_at
from seedbus.scenarios.reporting.round_table import RoundTable
from seedbus.scenarios.reporting.statistics import ArrivedReports

MAX_ROWS, MAX_COLUMNS = 100, 230
FATES = ("dropped", "late", "took part")
"""What a client that was asked did, the worst first: no report of it arrived; it came too late; it came in time."""
_LOOKS = dict(zip(FATES, (COLOURS[4], COLOURS[1], COLOURS[0]), strict=True))


def fates(history: RoundTable, arrived: ArrivedReports) -> NDArray[np.int64]:
    """Return the index into `FATES` of each pair of `history.asked`."""
    asked = history.asked.keys(history.clients)
    in_time = np.isin(asked, history.reported.keys(history.clients))
    return np.where(in_time, 2, np.isin(asked, arrived.keys)).astype(np.int64)


def timeline(history: RoundTable, arrived: ArrivedReports, marks: Marks) -> str:
    """Return the picture as an HTML figure; its legend counts the pairs of a client and a round."""
    rounds = history.opened_ns.size
    what = fates(history, arrived)
    rows, columns = min(history.clients, MAX_ROWS), max(min(rounds, MAX_COLUMNS), 1)
    row = history.asked.client * rows // history.clients
    column = history.asked.round * columns // max(rounds, 1)
    counts = np.zeros((rows, columns, len(FATES)), np.int64)
    np.add.at(counts, (row, column, what), 1)
    shown = np.where(counts.sum(axis=2) > 0, counts.argmax(axis=2), -1)  # argmax: the first, and so the worse

    wide, high = (WIDTH - LEFT - RIGHT) / columns, (HEIGHT - TOP - BOTTOM) / rows
    parts = [f'<g fill="none" transform="translate({LEFT} {TOP}) scale({wide:.6g} {high:.6g})">']
    parts += [
        f'<path stroke="{_LOOKS[name]}" d="{_runs(shown == number)}"/>'
        for number, name in enumerate(FATES)
        if (shown == number).any()
    ]
    parts += ["</g>", *_axes(history.clients, rounds), *mark_parts(marks, 0, rounds)]
    all_pairs = history.clients * rounds
    totals = np.bincount(what, minlength=len(FATES)).tolist()
    keys = [
        (f"{name} {total:,}", f'stroke="{_LOOKS[name]}" stroke-width="8"')
        for name, total in zip(FATES[::-1], totals[::-1], strict=True)
        if total
    ]
    keys.append((f"absent (not asked) {all_pairs - what.size:,}", 'stroke="none"'))
    each = ", ".join(
        f"{math.ceil(count / cells):,} {name}"
        for count, cells, name in ((history.clients, rows, "clients"), (rounds, columns, "rounds"))
        if count > cells
    )
    told = f'<p class="legend">a cell is up to {each}, and shows what most of those asked did</p>' if each else ""
    return figure("Which clients took part", parts, legend([*keys, *marks.keys()]) + told, kind="cells")


def _runs(mask: NDArray[np.bool_]) -> str:
    """Return a path through the middle of the cells [rows, columns] that are true, in units of a cell."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    start_rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    return "".join(
        f"M{x} {y}.5h{length}"
        for x, y, length in zip(starts.tolist(), start_rows.tolist(), (ends - starts).tolist(), strict=True)
    )


def _axes(clients: int, rounds: int) -> list[str]:
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [
        text_at((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "rounds", "middle", "name"),
        text_at(16, (TOP + HEIGHT - BOTTOM) / 2, "client", "middle", "name turned"),
    ]
    for tick in (each for each in ticks(0, rounds) if each <= rounds and each == int(each)):
        parts.append(text_at(LEFT + across * tick / max(rounds, 1), HEIGHT - BOTTOM + 18, number_text(tick), "middle"))
    for tick in (each for each in ticks(0, clients) if each < clients and each == int(each)):
        parts.append(text_at(LEFT - 6, TOP + down * (tick + 0.5) / clients + 4, number_text(tick), "end"))
    return parts
