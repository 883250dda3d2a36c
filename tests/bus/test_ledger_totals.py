"""The ledger's totals are those of its rows, also of a ledger in use that goes back to a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from seedbus.bus import EVALUATOR, SERVER, Fate, Kind, Ledger
from seedbus.bus.ledger import INSTRUMENT, SUMMED, Row

ENDS = [
    (SERVER, 3, Kind.PLAN),
    (3, SERVER, Kind.REPORT),
    (SERVER, EVALUATOR, Kind.FETCH),
    (EVALUATOR, SERVER, Kind.PIECE),
]
EVERY = [
    Row(at, at + 1, at // 4, kind, sender, recipient, 8, 30 + at, 5, 2, at, 10, 1, Fate.DELIVERED)
    for at in range(24)
    for sender, recipient, kind in [ENDS[at % 4]]
]


def totals(rows: Sequence[Row]) -> Counter[tuple[Kind, str]]:
    counted: Counter[tuple[Kind, str]] = Counter()
    for row in rows:
        is_instrument = EVALUATOR in (row.sender, row.recipient)
        counted[Kind(row.kind), INSTRUMENT] += is_instrument * (row.header_bytes + row.payload_bytes)
        counted[Kind(row.kind), "messages"] += 1
        for name in SUMMED:
            counted[Kind(row.kind), name] += getattr(row, name)
    return counted


def test_totals_are_those_of_the_rows_and_go_back_with_them(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for at, row in enumerate(EVERY):
        ledger.append(row)
        if at == 9:
            ledger.write_segment()
        if at == 14:
            pending = ledger.take_new()
        if at % 6 == 0:  # counted from time to time
            assert ledger.totals == totals(EVERY[: at + 1])
    assert ledger.totals == totals(EVERY)
    ledger.restore(1, pending)
    assert ledger.totals == totals(EVERY[:15])
    ledger.append(EVERY[15])
    assert ledger.totals == totals(EVERY[:16])
