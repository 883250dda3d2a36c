"""How long the studies of the papers' figures take, on a processor and on a GPU: two lines at the head of their files.

    python benchmarks/study_durations.py              # the lines of every study
    python benchmarks/study_durations.py --write      # puts them into the files

*Measured*: the processor time of all runs, from docs/claims.json. *Foreseen from FLOPs*: as `durations.py` does it,
with its rates and assumptions: three forward passes for a gradient, evaluations of 10,000 samples, and no less on a GPU
than the launches of all passes. Texts *without padding* take the seconds a pass of docs/language-models.md, and longer
ones as many times more as they have FLOPs. What tuning and analyses would take is not counted, and none was run on a
GPU.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from claims import KEPT, digest, uncounted
from durations import CPU, GPU, GPU_START_S, KNOWN, LAUNCH_S, OPT, RESNET, TOKENS, Network, about, power, show

from seedbus.models.task import TASKS
from seedbus.scenarios.schema.loading import studies
from seedbus.studies.study.cells import Plan, plan_of

DOCS = Path(__file__).resolve().parent.parent / "docs"
WITHOUT_NETWORK = {"null", "quadratic"}
ATTACK = "blackbox-attack"
LIKE_ATTACKS = "figures/fedzo-figure-1b"
"""The measured study whose time for a forward pass the other attacks are taken to have."""
LSTM = Network(80 * 2 * 4 * 256 * (8 + 256 + 256 + 256), 400)  # 80 symbols, two layers of 256
EVALUATED = 10_000
PACKED = {"full": 0.633, "lora": 0.633, "last-blocks": KNOWN["lm/smollm2"].a_pass}
"""Processor seconds of a pass of 32 texts of SST-2 through SmolLM2-135M without padding, by `task.train`."""
TRAINED = {"fashion-mnist": 60_000}
"""The training samples of tasks whose clients' steps are passes over what they hold."""


class Work(NamedTuple):
    """What the runs of a study compute.

    Attributes:
        flops: of networks' forward passes.
        drawn: coordinates of directions.
        passes: forward passes.
        launches: kernels that a GPU starts, about.
        packed_s: processor seconds of passes without padding.
    """

    flops: float
    drawn: float
    passes: int
    launches: int
    packed_s: float


def work(plan: Plan) -> Work:
    """Add up what all runs of a study compute."""
    flops, drawn, passes, launches, packed_s = 0.0, 0.0, 0, 0, 0.0
    for cell in plan.cells:
        scenario: Any = cell.scenario
        rounds, task = scenario.stop.rounds, scenario.task
        count = sum(scenario.participation.size * scenario.algorithm.work(round).evaluations for round in range(rounds))
        if getattr(scenario.algorithm, "epochs", None) is not None:  # one step of each was counted
            held = TRAINED[task.name] * (1 - task.validation) / scenario.participation.clients
            count *= ceil(held / task.batch_size)
        passes += count
        drawn += 3 * rounds * scenario.algorithm.work(0).scalars * scenario.dimension
        if task.name in WITHOUT_NETWORK:
            continue
        network = Network(0, 10) if task.name == ATTACK else network_of(task)
        launches += count * network.launches
        samples = count * task.batch_size + (rounds // scenario.evaluation.every + 1) * EVALUATED
        flops += network.flops * samples
        packed_s += count * seconds_of(task)
    seeds = len(plan.study.seeds)
    return Work(flops * seeds, drawn * seeds, passes * seeds, launches * seeds, packed_s * seeds)


def seconds_of(task: Any) -> float:
    """Return the processor seconds of a pass of a task whose texts have no padding; 0 for others."""
    if getattr(task, "batching", "") != "packed":
        return 0.0
    usual = task.model_copy(update={"dataset": "sst2"}).pass_cost().flops
    return float(PACKED[task.train.kind] * task.pass_cost().flops / usual)


def network_of(task: Any) -> Network:
    """Return the cost of a task's forward pass."""
    if task.name == "language-model":
        layers = OPT.get(task.model.rpartition("/")[2])
        if layers is None:
            return Network(task.pass_cost().flops, 20 if task.train.kind == "last-blocks" else 600)
        return layers.network(TOKENS[task.dataset])
    if task.name == "shakespeare":
        return LSTM
    if task.model == "resnet-18":
        return RESNET
    return Network(counted(task.name, task.model), 10)


@cache
def counted(name: str, model: str) -> float:
    """Return the floating-point operations that torch counts in a forward pass of one image of the task `name`."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    task = TASKS.all()[name](model=model)
    side = 8 if name == "digits" else 28
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        task.network()(torch.zeros(1, 1, side, side))
    return float(counter.get_total_flops())


def lines(name: str) -> list[str]:
    """Return the two lines of a study's file."""
    plan, kept = plan_of(name), json.loads((DOCS / KEPT).read_text(encoding="utf-8"))
    done, tasks = work(plan), {cell.scenario.task.name for cell in plan.cells}
    runs = f"{len(plan.cells) * len(plan.study.seeds)} runs"
    there = f"{GPU_START_S:.0f} s to start; not run"
    if name in kept and kept[name]["study"] == digest(plan):
        here = f"{about(kept[name]['cpu_s'])}, measured, {runs} on one core of an {maker(kept[name])}"
        here += uncounted(kept[name])
    elif tasks == {ATTACK}:
        a_pass = kept[LIKE_ATTACKS]["cpu_s"] / work(plan_of(LIKE_ATTACKS)).passes
        found = "foreseen from the passes of fedzo-figure-1b, one core of an Intel Xeon"
        here = f"{about(done.passes * a_pass)}, {found}; not run"
    elif done.packed_s:
        here = f"{about(done.packed_s)}, foreseen from seconds a pass without padding, one core of an AMD EPYC; not run"
    else:
        seconds = done.flops / CPU.flops + done.drawn / CPU.coordinates
        found = f"foreseen from FLOPs ({power(done.flops)} at 80 GFLOP/s, one core of an AMD EPYC)"
        here = f"{about(seconds)}, {found}; not run"
    if tasks <= WITHOUT_NETWORK:
        return [f"# CPU: {here}.", "# GPU: needs none, for there is no network."]
    launched = done.launches * LAUNCH_S
    computed = done.flops / GPU.flops + done.drawn / GPU.coordinates
    if computed > launched:
        gpu = f"{about(computed)}, an estimate from FLOPs at 13 TFLOP/s, OPT-125M's on an H200; not run"
    else:
        gpu = f"{about(launched + GPU_START_S)}, an estimate from {done.launches:,} launches at 10 µs, {there}"
    return [f"# CPU: {here}.", f"# GPU: {gpu}."]


def maker(kept: dict[str, Any]) -> str:
    """Return the processor of kept runs in two words."""
    return "AMD EPYC" if "AMD" in kept["processor"] else "Intel Xeon"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the lines into the files")
    asked = parser.parse_args()
    show({name: lines(name) for name in studies()}, writes=asked.write)


if __name__ == "__main__":
    main()
