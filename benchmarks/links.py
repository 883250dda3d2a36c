"""Rounds over real links beside the rounds that simulated time predicts for them.

    python benchmarks/links.py [--rounds 15]

Server and two workers, of one client each, run in three network namespaces (tests/support/namespaces.py), in real time
and with keys. The kernel's TCP carries their messages over links that delay, pace and lose IP packets. The same
latency and bandwidth, as the `network` of the scenario, give the prediction: rounds in simulated time, in one process.
Its times leave out computing, TCP's slow start, and loss; its bytes have frames, keys,
headers of TCP and IP, acknowledgements, and what is sent again (`seedbus.bus.wire`), and heartbeats for as long as it
really took, with the wait before the first round.
Needs Linux and the right to make namespaces; elsewhere it says what the kernel refuses and ends with exit code 3.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from namespaces import Federation, Machines, Refused

from seedbus.bus import wire
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.yaml_text import dump

HEADS = (
    "what",
    "link",
    "a round, predicted",
    "measured: median, fastest",
    "error",
    "payload",
    "on wires, predicted",
    "on wires, measured",
    "error",
)
WORKERS = ("worker 0", "worker 1")
FEDAVG: dict[str, Any] = {"name": "fedavg", "local_steps": 1, "learning_rate": 0.1}
DECOMFL: dict[str, Any] = {"name": "decomfl", "perturbations": 5, "learning_rate": 0.001}


class Case(NamedTuple):
    """Links, and what goes over them.

    Attributes:
        name: the algorithm's, in the table.
        algorithm: its fields.
        dimension: d of the quadratic.
        latency_s: one way.
        mbps: Mbit/s, each way and for each worker.
        loss: probability that a packet is lost.
    """

    name: str
    algorithm: dict[str, Any]
    dimension: int
    latency_s: float
    mbps: float
    loss: float = 0.0


CASES = [
    Case("DeComFL", DECOMFL, 1000, 0.02, 10),
    Case("DeComFL", DECOMFL, 1000, 0.2, 1),
    Case("FedAvg, 4 kB", FEDAVG, 1000, 0.2, 1),
    Case("FedAvg, 40 kB", FEDAVG, 10_000, 0.05, 1),
    Case("FedAvg, 400 kB", FEDAVG, 100_000, 0.05, 10),
    Case("FedAvg, 400 kB", FEDAVG, 100_000, 0.05, 10, 0.01),
]


class Figures(NamedTuple):
    """Prediction and measurement of one case.

    Attributes:
        predicted_s: median seconds of a round in simulated time; the first is left out.
        median_s: the same, measured.
        fastest_s: the fastest round.
        bytes: of all envelopes of plans and reports, predicted.
        wire: of the IP packets that the links carry, predicted.
        envelopes: the same, measured.
        carried: bytes of the IP packets that the links carried, from the first handshake to the last goodbye.
    """

    predicted_s: float
    median_s: float
    fastest_s: float
    bytes: int
    wire: int
    envelopes: int
    carried: int


def measure(case: Case, rounds: int) -> Figures:
    """Run a case in simulated and in real time. Raises `Refused` where the kernel does."""
    document = {
        "name": "links",
        "task": {"name": "quadratic", "dimension": case.dimension},
        "algorithm": case.algorithm,
        "participation": {"clients": 2, "cohort": 2},
        "evaluation": {"every": rounds},
        "stop": {"rounds": rounds},
    }
    network = {"latency": case.latency_s, "up_mbps": case.mbps, "down_mbps": case.mbps}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        predicted = run(validate(document | {"network": network}, "a case"), folder / "predicted")
        (folder / "real.yaml").write_text(dump(validate(document | {"clock": "wall"}, "a case").resolved()))
        with Machines("server", *WORKERS) as machines:
            for worker in WORKERS:
                machines.link("server", worker, latency_s=case.latency_s, mbps=case.mbps, loss=case.loss)
            federation = Federation(machines, folder, folder / "real.yaml", ["0-0", "1-1"], in_turn=True)
            federation.finish()
            carried = sum(each.bytes for worker in WORKERS for each in machines.between("server", worker))
        measured = Results.read(federation.run)
        waited_s = federation.lasted_s - predicted.summary["simulated_s"]
        beats = wire.heartbeats(len(WORKERS), int(waited_s * 1e9))
        took_s, told = measured.rounds.took_s[1:], predicted.summary["traffic"]["wire"]
        return Figures(
            float(predicted.rounds.took_s[1:].median()),
            float(took_s.median()),
            float(took_s.min()),
            _envelopes(predicted),
            sum(each["bytes"] + round(100 * case.loss * each["resent_of_percent"]) for each in told.values())
            + beats.up.wire
            + beats.down.wire,
            _envelopes(measured),
            carried,
        )


def _envelopes(results: Results) -> int:
    by_kind = results.summary["traffic"]["by_kind"]
    return sum(int(by_kind[kind]["bytes"]) for kind in ("plan", "report"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    cpus = os.cpu_count() or 1
    print(f"{rounds} rounds of two clients; {cpus} CPUs, load {os.getloadavg()[0]:.1f} at the beginning\n")
    print("| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|")
    for case in CASES:
        try:
            found = measure(case, rounds)
        except Refused as refused:
            print(f"this kernel refuses: {refused}", file=sys.stderr)
            sys.exit(3)
        assert found.envelopes == found.bytes, f"{case}: {found}"
        link = f"{1e3 * case.latency_s:g} ms, {case.mbps:g} Mbit/s" + f", {case.loss:.0%} lost" * bool(case.loss)
        print(
            f"| {case.name} | {link} | {found.predicted_s:.3f} s | {found.median_s:.3f} s, {found.fastest_s:.3f} s"
            f" | {found.median_s / found.predicted_s - 1:+.0%}, {found.fastest_s / found.predicted_s - 1:+.0%}"
            f" | {found.bytes:,} | {found.wire:,} | {found.carried:,} | {found.carried / found.wire - 1:+.1%} |",
            flush=True,
        )
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
