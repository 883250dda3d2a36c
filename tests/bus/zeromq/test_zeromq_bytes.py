"""The ledger's bytes are the wire's: a proxy between the processes counts the same, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clusters import Following, Serving
from tcp_proxy import CountingProxy
from worlds import HISO, lossy

from seedbus.bus import HostRequest, Kind, read_ledger
from seedbus.bus.ledger import Fate
from seedbus.scenarios.reporting.results import Results

UP = (Kind.JOIN, Kind.REPORT, Kind.EVALUATION, Kind.DECLINE, Kind.PULL, Kind.PIECE)
LAG = {"snapshot_after_commits": 3, "chunk_bytes": 128, "window": 4, "source": "peer"}


def carried(results: Results, *, up: bool) -> int:
    """Bytes that the ledger says were on the wire in one direction: envelopes, their framing, and the links' own."""
    rows = read_ledger(results.folder / "messages")
    envelopes = rows["header_bytes"] + rows["payload_bytes"] + rows["framing_bytes"]
    is_link = rows["kind"] == Kind.LINK
    is_up = (is_link & (rows["recipient"] == -1)) | sum(rows["kind"] == kind for kind in UP).astype(bool)
    # a rule loses what travels down before the wire has it, and what travels up when it has come over the wire
    return int(envelopes[is_up].sum() if up else envelopes[~is_up & (rows["fate"] == Fate.DELIVERED)].sum())


FAULTS = [
    {"fault": "drop", "probability": 0.1},
    {"fault": "corrupt", "probability": 0.1},
    {"fault": "duplicate", "probability": 0.1, "direction": "down"},
    {"fault": "dropout", "probability": 0.1, "when": "after-training"},
]


@pytest.mark.parametrize("lag", [None, LAG], ids=["replays", "snapshots"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_the_ledger_holds_every_byte_of_the_wire(tmp_path: Path, hosts: int, lag: Any) -> None:
    what = lossy(algorithm=HISO, stop={"rounds": 60}, faults=FAULTS, lag=lag)
    with Serving(what, tmp_path / "run", expect=hosts, heartbeat_s=0.5) as server, CountingProxy(port(server)) as proxy:
        clients = [Following(what, proxy.endpoint, HostRequest(evaluates=number == 0)) for number in range(hosts)]
        results = server.results()
        for client in clients:
            client.join(10)
            assert client.failure is None
        counted = proxy.up, proxy.down
    ledger = carried(results, up=True), carried(results, up=False)
    print(f"proxy {counted}, ledger {ledger}")
    assert ledger == counted


def port(server: Serving) -> int:
    return int(server.watcher.endpoint.rpartition(":")[2])
