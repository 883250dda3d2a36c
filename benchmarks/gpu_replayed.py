"""One run of the library's lm/ on a device, which a process that sees no GPU replays to the same digest.

The scenario is lm/opt-125m-sst2-decomfl with random weights of OPT-125M's shape and random sentences, for 50 rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gpu_rounds import DRY_OPT, OPT
from memory import write

from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load

SCENARIO, MODEL, ROUNDS, SENTENCES = "lm/opt-125m-sst2-decomfl", "OPT-125M", 50, 512


@dataclass(frozen=True)
class Replayed:
    """A run on a device, and its replay on the processor.

    Attributes:
        device: where its clients computed, as its results say.
        dimension: d.
        digest: of the model after the last round, on the device.
        replayed: the digest that the processor came to.
        seconds: of the run.
        replay_seconds: of the replay, with the loading of the model.
    """

    device: str
    dimension: int
    rounds: int
    digest: str
    replayed: str
    seconds: float
    replay_seconds: float

    @property
    def is_same(self) -> bool:
        return self.digest == self.replayed


def measure(device: str, *, is_dry: bool, rounds: int = ROUNDS) -> Replayed:
    """Run the scenario on a device and replay it on the processor; is_dry: with a model of a few thousand weights."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder / "model", (DRY_OPT if is_dry else OPT)[MODEL], SENTENCES)
        settings = [f"task.model={folder / 'model'}", f"task.data={folder / 'model'}", f"stop.rounds={rounds}"]
        if is_dry:
            settings += ["task.batch_size=2", "algorithm.perturbations=3"]
        scenario = load(SCENARIO, [*settings, f"evaluation.every={rounds}"])
        began = time.perf_counter()
        results = run(scenario, folder / "run", device=device)
        seconds, began = time.perf_counter() - began, time.perf_counter()
        replayed = digest_on_the_processor(folder / "run")
        told = results.summary
        taken = time.perf_counter() - began
        return Replayed(told["device"], scenario.dimension, told["rounds"], told["digest"], replayed, seconds, taken)


def digest_on_the_processor(run_folder: Path) -> str:
    """Return the digest of a run's last model, from a process that sees no GPU."""
    command = [sys.executable, "-m", "seedbus", "export", str(run_folder), "--format", "json"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return str(json.loads(told)["digest"])
