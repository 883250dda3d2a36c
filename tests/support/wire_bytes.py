"""The bytes on the wire according to a run's ledger."""

from __future__ import annotations

from seedbus.bus import Kind, read_ledger
from seedbus.scenarios.reporting.results import Results


def bytes_on_wire(results: Results, *, up: bool) -> int:
    """Return the bytes on the wire in one direction by the ledger: envelopes, their framing, and link messages."""
    rows = read_ledger(results.folder / "messages")
    size = rows["header_bytes"] + rows["payload_bytes"] + rows["framing_bytes"]
    is_link = rows["kind"] == Kind.LINK
    is_up = (is_link & (rows["recipient"] == -1)) | sum(rows["kind"] == kind for kind in Kind if kind.is_upward).astype(
        bool
    )
    # what a fault copies on its way up, or drops on its way down, is in the simulation only, and has no framing
    is_carried = rows["framing_bytes"] > 0
    return int(size[is_carried & (is_up if up else ~is_up)].sum())


FAULTS = [
    {"fault": "drop", "probability": 0.1},
    {"fault": "corrupt", "probability": 0.1},
    {"fault": "duplicate", "probability": 0.1},
    {"fault": "dropout", "probability": 0.1, "when": "after-training"},
]
