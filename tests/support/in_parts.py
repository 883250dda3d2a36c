"""Limits that are so small that the messages of small models are long: in pieces, in parts, and in several rows.

    python in_parts.py FOLDER TRANSPORT WORKERS PLACE CALL VICTIM

runs `scenario_in_parts` in a folder, or resumes it there, and kills VICTIM ("server" or "workers") at call number CALL
of PLACE ("part", when one is sent, "taken", when one has come, or "row", when one is journalled); 0: never. It prints
the digest, the digest of the ledger but for the transport's rows, and how often the places were called.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import workers_of
from worlds import scenario

from seedbus import pieces
from seedbus.agents.journal import long_values
from seedbus.bus.zeromq import parts
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

SMALL: list[tuple[Any, str, int]] = [
    (pieces, "WHOLE", 3_000),
    (pieces, "SHORT", 500),
    (parts, "PART", 30_000),
    (long_values, "ROW", 70_000),
]
DIMENSION = 50_000
"""Coordinates of a vector that is long then: 200 kB, in seven parts and three rows."""
PLACES = {"part": (parts._Long, "next"), "taken": (parts.Inbox, "add"), "row": (long_values.LongValues, "_insert")}


def make_small(set_to: Callable[[Any, str, int], None] = setattr) -> None:
    for module, name, value in SMALL:
        set_to(module, name, value)


def scenario_in_parts(**changes: Any) -> Scenario:
    task = {"name": "quadratic", "dimension": DIMENSION}
    return scenario(
        **(
            {
                "task": task,
                "algorithm": {"name": "fedavg"},
                "participation": {"clients": 4, "cohort": 3},
                "stop": {"rounds": 4},
                "evaluation": {"every": 2},
            }
            | changes
        )
    )


def main(folder: str, transport: str, workers: str, place: str, call: str, victim: str) -> None:
    make_small()
    with_workers(Path(folder).parent)
    calls: Counter[str] = Counter()
    for name, (owner, method) in PLACES.items():
        honest = getattr(owner, method)

        def counted(*args: Any, honest: Any = honest, name: str = name) -> Any:
            calls[name] += 1
            if name == place and calls[name] == int(call):
                for pid in [os.getpid()] if victim == "server" else workers_of(os.getpid()):
                    os.kill(pid, signal.SIGKILL)
            return honest(*args)

        setattr(owner, method, counted)
    placement = Placement(transport, workers=int(workers))
    is_there = (Path(folder) / "journal.sqlite").exists()
    results = run(scenario_in_parts(), Path(folder), placement=placement, resume=is_there)
    print(json.dumps([results.summary["digest"], results.summary["ledger_hash"], calls]))


def with_workers(folder: Path) -> None:
    """Give worker processes the same limits, by a file in a folder that Python runs when it starts."""
    lines = [f"import {module.__name__}\n{module.__name__}.{name} = {value}\n" for module, name, value in SMALL]
    (folder / "sitecustomize.py").write_text("".join(lines))
    os.environ["PYTHONPATH"] = str(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
