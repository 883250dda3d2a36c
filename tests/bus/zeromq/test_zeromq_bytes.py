"""The ledger's bytes equal the bytes on the wire that a proxy between the processes counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clusters import ClientsThread, ServerThread
from tcp_proxy import CountingProxy
from wire_bytes import FAULTS, bytes_on_wire
from worlds import HISO, lossy

from seedbus.bus import HostRequest

LAG = {"snapshot_after_commits": 3, "chunk_bytes": 128, "window": 4, "source": "peer"}


@pytest.mark.few(1)
@pytest.mark.parametrize("lag", [None, LAG], ids=["replays", "snapshots"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_the_ledger_holds_every_byte_of_the_wire(tmp_path: Path, hosts: int, lag: Any) -> None:
    what = lossy(algorithm=HISO, stop={"rounds": 60}, faults=FAULTS, lag=lag)
    with (
        ServerThread(what, tmp_path / "run", expect=hosts, heartbeat_s=0.5) as server,
        CountingProxy(server.port) as proxy,
    ):
        clients = [ClientsThread(what, proxy.endpoint, HostRequest(evaluates=number == 0)) for number in range(hosts)]
        results = server.results()
        for client in clients:
            client.join()
            assert client.failure is None
        counted = proxy.up, proxy.down
    ledger = bytes_on_wire(results, up=True), bytes_on_wire(results, up=False)
    print(f"proxy {counted}, ledger {ledger}")
    assert ledger == counted
