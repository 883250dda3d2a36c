"""Seedbus, in memory; its null round is DeComFL's, a scalar for each client."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from work import Job, Meter

from seedbus.agents.observer import NullObserver
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate

job, meter = Job.read(), Meter()


class Laps(NullObserver):
    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        meter.lap()


document: dict[str, Any] = {
    "name": "peers",
    "participation": {"clients": job.clients, "cohort": job.cohort},
    "evaluation": {"every": job.rounds},
    "stop": {"rounds": job.rounds},
}
if job.model == "null":
    document |= {"task": {"name": "null"}, "algorithm": {"name": "decomfl", "perturbations": 1}}
else:
    document |= {
        "task": {
            "name": "fashion-mnist",
            "model": {"cnn": "mnist-cnn"}.get(job.model, job.model),
            "batch_size": job.batch,
            "batches": "passes",
            "validation": 1 - job.clients * job.samples / 60_000,
        },
        "partition": {"kind": "iid"},
        "algorithm": {
            "name": "fedavg",
            "local_steps": job.epochs * job.samples // job.batch,
            "learning_rate": job.rate,
        },
    }
with tempfile.TemporaryDirectory() as folder:
    summary = run(validate(document, "a benchmark"), Path(folder) / "run", observer=Laps()).summary
meter.report(version("seedbus"), summary["metrics"].get("accuracy"))
