"""Server and workers on machines of their own (network namespaces), over links that delay, lose and are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from namespaces import Federation, Machines, Refused
from processes import wait_for
from worlds import scenario

from seedbus.bus import SERVER, read_ledger, wire
from seedbus.bus.ledger import MESSAGES, Columns
from seedbus.scenarios.reporting.accounting import offered_bytes
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump

pytestmark = pytest.mark.slow
SHARES = ["0-3", "4-7"]
MINE = "clients 0…3"  # as the log names those of worker 0


@pytest.fixture
def machines() -> Iterator[Machines]:
    try:
        made = Machines("server", "worker 0", "worker 1")
    except Refused as refused:
        pytest.skip(f"this kernel refuses: {refused}")
    with made:
        for worker in ("worker 0", "worker 1"):
            made.link("server", worker, latency_s=0.01, mbps=20.0, loss=0.01)
        yield made


def begun(machines: Machines, folder: Path, what: Scenario) -> Federation:
    (folder / "what.yaml").write_text(dump(what.resolved()))
    return Federation(machines, folder, folder / "what.yaml", SHARES)


def events(federation: Federation, name: str) -> list[dict[str, Any]]:
    """Return the lines of the log with this event, of worker 0's clients if it is about a process."""
    lines = [json.loads(line) for line in federation.log.splitlines()]
    return [each for each in lines if each["event"] == name and each.get("clients", MINE) == MINE]


def has(federation: Federation, name: str, count: int) -> bool:
    return len(events(federation, name)) >= count


def test_a_run_whose_link_is_cut_both_ways_and_one_way_ends_in_the_bits_of_one_process(
    machines: Machines, tmp_path: Path
) -> None:
    what = scenario(stop={"rounds": 80})
    federation = begun(machines, tmp_path, what)
    up, _ = machines.between("worker 0", "server")

    def cable(is_in: bool) -> None:
        (machines["worker 0"].plug if is_in else machines["worker 0"].unplug)()

    def upward(passes: bool) -> None:
        up.is_cut = not passes

    for turn, connect in enumerate((cable, upward), 1):
        wait_for(partial(has, federation, "round", 20 * turn + 1))
        connect(False)
        wait_for(partial(has, federation, "gone", turn))
        connect(True)
        wait_for(partial(has, federation, "joined", turn + 1))
    federation.finish()
    assert up.dropped
    assert bits(Results.read(federation.run)) == bits(run(what, tmp_path / "one"))
    whys = [each["why"] for each in events(federation, "gone")]
    assert all(machines["worker 0"].address in why and "it said nothing for 3 heartbeats" in why for why in whys), whys


def bits(results: Results) -> tuple[Any, ...]:
    """Return what cuts may not change: the model, the measurements, and the ledger of the rounds."""
    return results.digest, results.lines, results.summary["ledger_hash"]


def test_in_real_time_a_run_goes_on_without_a_worker_that_is_heard_and_does_not_hear(
    machines: Machines, tmp_path: Path
) -> None:
    what = scenario(clock="wall", network={}, stop={"rounds": 250}, participation={"clients": 8, "cohort": 3})
    federation = begun(machines, tmp_path, what)
    wait_for(lambda: has(federation, "round", 11))
    _, down = machines.between("worker 0", "server")
    down.is_cut = True
    wait_for(lambda: has(federation, "gone", 1))
    since = len(events(federation, "round"))
    wait_for(lambda: has(federation, "round", since + 20))
    assert len(events(federation, "joined")) == 1, "worker 0 is not back, and the rounds went on"
    down.is_cut = False
    wait_for(lambda: has(federation, "joined", 2))
    federation.finish()
    results = Results.read(federation.run)
    assert results.summary["rounds"] == 250 and replay(results.folder).digest == results.digest


def test_simulated_links_predict_the_rounds_and_the_bytes_of_real_ones(machines: Machines, tmp_path: Path) -> None:
    latency_s, mbps, rounds = 0.05, 4.0, 12
    for worker in ("worker 0", "worker 1"):
        machines.link("server", worker, latency_s=latency_s, mbps=mbps, loss=0.0)
    world = {
        "algorithm": {"name": "fedavg", "local_steps": 1, "learning_rate": 0.1},
        "task": {"name": "quadratic", "dimension": 5000},
        "participation": {"clients": 2, "cohort": 2},
        "stop": {"rounds": rounds},
        "verify": False,
    }
    links = {"latency": latency_s, "up_mbps": mbps, "down_mbps": mbps}
    predicted = run(scenario(**world, network=links), tmp_path / "predicted")
    what = scenario(**world, network={}, clock="wall")
    (tmp_path / "what.yaml").write_text(dump(what.resolved()))
    federation = Federation(machines, tmp_path, tmp_path / "what.yaml", ["0-0", "1-1"])
    federation.finish()
    measured = Results.read(federation.run)
    for kind in ("plan", "report"):
        told, real = (each.summary["traffic"]["by_kind"][kind]["bytes"] for each in (predicted, measured))
        assert told == real
    told_s, real_s = (each.rounds.took_s[1:].median() for each in (predicted, measured))
    assert told_s < real_s < 1.5 * told_s, f"predicted {told_s:.3f} s a round, measured {real_s:.3f} s"
    for up, down in (machines.between(worker, "server") for worker in ("worker 0", "worker 1")):
        assert up.bytes > measured.summary["traffic"]["by_kind"]["report"]["bytes"] / 2
        assert down.bytes > measured.summary["traffic"]["by_kind"]["plan"]["bytes"] / 2


LATENCY_S, MBPS = 0.01, 20.0
SCALARS = {"name": "decomfl", "learning_rate": 0.01}
KINDS: dict[str, dict[str, Any]] = {
    "five scalars": {
        "algorithm": SCALARS | {"perturbations": 5},
        "participation": {"clients": 4, "cohort": 1},
        "stop": {"rounds": 200},
    },
    "a hundred scalars": {
        "algorithm": SCALARS | {"perturbations": 100},
        "participation": {"clients": 2, "cohort": 2},
        "stop": {"rounds": 80},
    },
    "snapshots": {
        "task": {"name": "quadratic", "dimension": 5000},
        "algorithm": SCALARS | {"perturbations": 5},
        "participation": {"clients": 4, "cohort": 1},
        "lag": {"snapshot_after_commits": 3},
        "stop": {"rounds": 80},
    },
    "models": {
        "task": {"name": "quadratic", "dimension": 5000},
        "algorithm": {"name": "fedavg", "local_steps": 1, "learning_rate": 0.1},
        "participation": {"clients": 2, "cohort": 2},
        "stop": {"rounds": 25},
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_on_wires_are_predicted(kind: str, tmp_path: Path) -> None:
    """A process a client. The simulation knows what is sent; when, it does not where cores are busy, and that decides
    which acknowledgements travel alone. So these are foreseen once by its times, and once by those of the real run."""
    world = KINDS[kind] | {"verify": False, "evaluation": {"every": 50}}
    clients = world["participation"]["clients"]
    links = {"latency": LATENCY_S, "up_mbps": MBPS, "down_mbps": MBPS}
    simulated = run(scenario(**world, network=links), tmp_path / "simulated")
    what = scenario(**world, network={}, clock="wall")
    (tmp_path / "what.yaml").write_text(dump(what.resolved()))
    try:
        machines = Machines("server", *(f"worker {client}" for client in range(clients)))
    except Refused as refused:
        pytest.skip(f"this kernel refuses: {refused}")
    with machines:
        for client in range(clients):
            machines.link("server", f"worker {client}", latency_s=LATENCY_S, mbps=MBPS)
        shares = [f"{client}-{client}" for client in range(clients)]
        federation = Federation(machines, tmp_path, tmp_path / "what.yaml", shares, in_turn=True)
        federation.finish()
        carried = sum(each.bytes for each in machines.wires.values())
    # those before the first round too, which a simulation does not know
    beats = wire.heartbeats(clients, int(federation.lasted_s * 1e9))
    ledgers = {
        "simulated": read_ledger(simulated.folder / MESSAGES),
        "real": timed(read_ledger(federation.run / MESSAGES)),
    }
    framed = set()
    for name, most in (("simulated", 0.05), ("real", 0.02)):
        found = wire.predict(ledgers[name], clients=clients, lasts_ns=0, scenario_bytes=offered_bytes(what))
        total = found.rounds.plus(found.connections).plus(beats)
        told = total.up.wire + total.down.wire
        framed.add((found.rounds.up.framed, found.rounds.down.framed))
        assert abs(told / carried - 1) < most, f"{name}: {told:,} bytes foreseen, {carried:,} carried"
        acks = wire.HEADERS * sum(each.acks for each in total)
        headers = wire.HEADERS * sum(each.packets for each in total)
        assert (told - headers) / carried < 0.97, "without headers it is seen to be wrong"
        assert kind != "five scalars" or (told - acks) / carried < 0.95, "and so it is without acknowledgements"
    assert len(framed) == 1, f"what is sent: {framed}"


def timed(columns: Columns) -> Columns:
    """Return a real run's ledger, which has the server's times, with those at clients: a latency later, or before."""
    latency_ns, is_down = int(LATENCY_S * 1e9), columns["sender"] == SERVER
    times = {
        "sent_ns": np.where(is_down, columns["sent_ns"], columns["arrived_ns"] - latency_ns),
        "arrived_ns": np.where(is_down, columns["arrived_ns"] + latency_ns, columns["arrived_ns"]),
    }
    return columns | times
