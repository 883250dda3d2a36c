"""What secure aggregation costs: bytes of whole runs beside the same run without it, and time for masks alone.

python benchmarks/secure_aggregation.py bytes [--rounds 50]   digits, 50 clients: bytes a client and round, by message
python benchmarks/secure_aggregation.py cohorts [--rounds 4]  10 to 1,000 clients, 20% of whom drop out: messages, bytes
python benchmarks/secure_aggregation.py time                  milliseconds of processor time for a client's part, and a
                                                              server's
python benchmarks/secure_aggregation.py sharing               milliseconds to share and recover a secret, beside
                                                              pycryptodome and shamirs where these are installed
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from seedbus.agents.policies.participation import Participation
from seedbus.agents.secure.party import Party
from seedbus.agents.secure.secure_round import SecureRound
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.secure.sharing import PRIME, recover, split, weights
from seedbus.agents.secure.stages import AFTER_REPORTS, BEFORE_PLANS
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate

KINDS = ("plan", "report", "ask", "tell")
SETTINGS: dict[str, Mapping[str, Any] | None] = {"without": None, "all": {}, "neighbours: 6": {"neighbours": 6}}


def measure_bytes(rounds: int) -> None:
    """Print the bytes of runs of three cohorts."""
    print(f"{'cohort':>6}  {'secure_aggregation':20}" + "".join(f"{kind:>9}" for kind in KINDS) + f"{'sum':>9}  digest")
    for cohort in (5, 10, 20):
        for name, settings in SETTINGS.items():
            if cohort <= 6 and settings:
                continue
            document = {
                "task": {"name": "digits", "model": "softmax"},
                "partition": {"kind": "dirichlet", "alpha": 1.0},
                "participation": {"clients": 50, "cohort": cohort, "quorum": 2},
            }
            with sent_by(document, settings, rounds) as (results, sent, size):
                each = {kind: size[sent["kind"] == kind.upper()].sum() / rounds / cohort for kind in KINDS}
                columns = "".join(f"{each[kind]:>9.1f}" for kind in KINDS) + f"{sum(each.values()):>9.1f}"
                print(f"{cohort:>6}  {name:20}{columns}  {results.digest[:8]}")


def measure_cohorts(rounds: int) -> None:
    """Print the messages and bytes of a round in which every client is asked and 20% vanish before they report."""
    columns = "".join(f"{kind:>13}" for kind in KINDS)
    print(f"clients  secure_aggregation    commits reports     messages{columns}            sum")
    for count, neighbours in ((10, 0), (10, "all"), (100, 0), (100, "all"), (100, 60), (1000, 0), (1000, 100)):
        document = {
            "task": {"name": "quadratic", "dimension": 650},
            "participation": {"clients": count, "cohort": count, "quorum": 2, "deadline_s": 5},
            "faults": [{"fault": "dropout", "when": "after-training", "probability": 0.2}],
        }
        settings = {"neighbours": neighbours} if neighbours else None
        with sent_by(document, settings, rounds) as (results, sent, size):
            each = {kind: size[sent["kind"] == kind.upper()].sum() / rounds for kind in KINDS}
            messages = sent["kind"].isin([kind.upper() for kind in KINDS]).sum() / rounds
            reports = (sent["kind"] == "REPORT").sum() / rounds
            name = f"neighbours: {neighbours}" if neighbours else "without"
            commits, columns = results.summary["version"], "".join(f"{each[kind]:>13,.0f}" for kind in KINDS)
            print(
                f"{count:>7,}  {name:20}{commits:>6} of {rounds}{reports:>8.1f}{messages:>13,.1f}{columns}"
                f"{sum(each.values()):>15,.0f}",
                flush=True,
            )


@contextmanager
def sent_by(document: Mapping[str, Any], settings: Mapping[str, Any] | None, rounds: int) -> Iterator[Any]:
    """Run a scenario; yield its results, its messages from and to clients, and their sizes."""
    algorithm = {"name": "decomfl", "perturbations": 20, "learning_rate": 0.02, "arithmetic": "integer"}
    whole = {
        "name": "secure",
        "algorithm": algorithm | {"precision": "int32"},
        "evaluation": {"every": rounds},
        "stop": {"rounds": rounds},
        **document,
        **({} if settings is None else {"secure_aggregation": settings}),
    }
    with tempfile.TemporaryDirectory() as folder:
        results = run(validate(whole, "secure"), Path(folder) / "run")
        sent = results.messages.query("sender >= 0 or recipient >= 0")
        yield results, sent, sent["header_bytes"] + sent["payload_bytes"]


def measure_time() -> None:
    """Print the processor time of one client and of the server for a round without a bus; medians of five rounds."""
    print("cohort  neighbours  dropped   client ms   server ms")
    for count, neighbours, dropped in ((10, "all", 0), (10, "all", 2), (100, "all", 10), (100, 20, 10)):
        times = [_time_round(count, neighbours, dropped, round) for round in range(5)]
        client, server = np.median([each[0] for each in times]), np.median([each[1] for each in times])
        print(f"{count:>6}{neighbours!s:>12}{dropped:>9}{client * 1e3:>12.2f}{server * 1e3:>12.2f}")


def _time_round(count: int, neighbours: Any, dropped: int, round: int) -> tuple[float, float]:
    """Return seconds of one client, on average, and of the server."""
    terms = SecureAggregation(neighbours=neighbours), Participation(clients=count, quorum=2)
    cohort = list(range(count))
    server, party = SecureRound(*terms, 1, round, 0, cohort), Party(*terms)
    spent = {"client": 0.0, "server": 0.0}

    def timed(who: str, work: Any, *arguments: Any) -> Any:
        began = time.process_time()
        result = work(*arguments)
        spent[who] += time.process_time() - began
        return result

    numbers = np.ones((1, 20), np.int32)
    masked: dict[int, Any] = {}
    for stage in BEFORE_PLANS:
        for question in timed("server", server.ask, stage):
            timed("server", server.answered, timed("client", party.answer, question))
    server.plans_due()
    for client in cohort:
        party.admit(client, round, server.masks_with(client))
        masked[client] = timed("client", party.mask, client, round, numbers)
    reported = frozenset(cohort[dropped:])
    for stage in AFTER_REPORTS:
        for question in timed("server", server.ask, stage, reported):
            timed("server", server.answered, timed("client", party.answer, question))
    total = timed("server", server.total, {client: masked[client] for client in reported})
    assert (total == len(reported)).all()
    return spent["client"] / count, spent["server"]


def measure_sharing() -> None:
    """Print the milliseconds of processor time in which secrets are shared and recovered, the lowest of three tries."""
    for count, needed in ((10, 6), (101, 51), (512, 257)):
        for name, (share, recovered) in schemes(os.urandom(16), count, needed).items():
            shared, shares = _processor_ms(share)
            back, secret = _processor_ms(partial(recovered, shares))
            assert secret == recovered(share()), name
            print(f"{needed:>4} of {count:<4} {name:14} shared {shared:>9.3f}   recovered {back:>9.3f}")


def schemes(secret: bytes, count: int, needed: int) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return, by package, a function that shares a secret and one that recovers it from shares."""
    found: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "seedbus": (lambda: split(secret, range(count), needed), lambda all: recover(dict(enumerate(all[:needed])))),
    }
    if find_spec("Crypto"):
        shamir = import_module("Crypto.Protocol.SecretSharing").Shamir
        found["pycryptodome"] = (lambda: shamir.split(needed, count, secret), lambda all: shamir.combine(all[:needed]))
    if find_spec("shamirs"):
        module, number = import_module("shamirs"), int.from_bytes(secret, "little")
        found["shamirs"] = (
            lambda: module.shares(number, count, PRIME, needed),
            lambda all: module.interpolate(all[:needed]),
        )
    return found


def _processor_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds, and what the work returns."""
    found = []
    for _ in range(3):
        weights.cache_clear()
        began = time.process_time()
        result = work()
        found.append(1e3 * (time.process_time() - began))
    return min(found), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bytes", "cohorts", "time", "sharing"))
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    if arguments.what == "bytes":
        measure_bytes(arguments.rounds or 50)
    elif arguments.what == "cohorts":
        measure_cohorts(arguments.rounds or 4)
    elif arguments.what == "time":
        measure_time()
    else:
        measure_sharing()


if __name__ == "__main__":
    main()
