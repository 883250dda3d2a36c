"""Runs on devices: the torch path has the processor's bits, alone and beside it, through lag, snapshots and resume."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import free_endpoint
from commands import Command
from devices import DEVICE, IS_PROCESSOR, TORCH_DEVICE
from processes import kill, logged, wait_for
from processes import seedbus as seedbus_process
from small_language import bind, write_model, write_sets
from snapshot_cases import rough
from worker_kills import alike
from worlds import DECOMFL, HISO, go, outcome, scenario

from seedbus.agents.errors import RunFolderError
from seedbus.agents.observer import NullObserver
from seedbus.models.device import check_device, on_device
from seedbus.models.errors import DataError
from seedbus.models.partitions.iid import Iid
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.scenarios.errors import Exit, Interrupted
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement
from seedbus.tensors import TensorVector

DIGITS = {"name": "digits", "batch_size": 8}
INTEGER = {"name": "decomfl", "arithmetic": "integer", "perturbations": 3, "learning_rate": 0.05}
BFLOAT16 = {"name": "hiso", "arithmetic": "bfloat16", "perturbations": 3, "local_steps": 2, "learning_rate": 0.05}
POOL = {"name": "fedkseed", "pool": 64, "perturbations": 3, "learning_rate": 0.05}
DENSE = {"name": "scaffold", "local_steps": 2, "momentum": 0.5, "weight_decay": 0.01}


def without_device(results: Results) -> Any:
    """Return what must be equal on all devices."""
    summary, lines = outcome(results)
    return {name: value for name, value in summary.items() if name != "device"}, lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        DECOMFL,
        HISO,
        HISO | {"revert": "light", "perturbations": 2},
        DECOMFL | {"directions": "rademacher"},
        INTEGER,
        INTEGER | {"revert": "light", "local_steps": 2, "directions": "rademacher", "precision": "int32"},
        BFLOAT16,
        BFLOAT16 | {"revert": "light", "momentum": 0.5, "weight_decay": 0.01},
        POOL,
        DENSE,
    ],
    ids=[
        "decomfl",
        "hiso",
        "light",
        "rademacher",
        "integer",
        "integer-light",
        "bfloat16",
        "bfloat16-light",
        "pool",
        "dense",
    ],
)
def test_a_run_in_torchs_memory_has_the_processors_bits(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    what = scenario(task=DIGITS, algorithm=algorithm, stop={"rounds": 4}, evaluation={"every": 2})
    here = go(tmp_path / "here", what)
    there = run(what, tmp_path / "there", device=DEVICE)
    assert here.summary["device"] == "cpu" and there.summary["device"].startswith(DEVICE)
    assert not there.summary["refusals"] and there.summary["version"] == here.summary["version"]
    if IS_PROCESSOR:
        assert without_device(there) == without_device(here)
    else:
        assert replay(there.folder).digest == there.summary["digest"], "what a GPU measured is replayed here"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [HISO, INTEGER, BFLOAT16], ids=["hiso", "integer", "bfloat16"])
@pytest.mark.usefixtures("warm_workers")
def test_clients_in_torchs_memory_agree_with_an_evaluator_on_the_processor_through_lag_and_snapshots(
    tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    """With `verify`, every report's digests are compared with the evaluator's."""
    lag = {"source": "peer", "window": 16}
    what = rough(0.1, task=DIGITS, algorithm=algorithm, stop={"rounds": 25}, lag=lag, verify=True)
    here = go(tmp_path / "here", what)
    there = run(what, tmp_path / "there", placement=Placement("ipc", workers=2, devices=("cpu", DEVICE)))
    assert not {"diverged", "selftest"} & there.summary["refusals"].keys()
    assert without_device(there) == without_device(here) or not IS_PROCESSOR
    assert here.summary["traffic"]["by_kind"]["snapshot"]["messages"] and "diverged" not in here.summary["refusals"]


@pytest.mark.slow
def test_clients_all_in_torchs_memory_agree_with_an_evaluator_on_the_processor_through_kills_and_resume(
    tmp_path: Path,
) -> None:
    """Server and evaluator are processes on the processor. First the server is killed and resumed, then a client."""
    lag = {"source": "peer", "window": 16}
    what = rough(0.1, task=DIGITS, algorithm=HISO, stop={"rounds": 120}, evaluation={"every": 40}, lag=lag)
    whole = run(what, tmp_path / "whole", device="cpu" if IS_PROCESSOR else DEVICE)
    (tmp_path / "what.yaml").write_text(dump(what.resolved()))
    endpoint, folder = free_endpoint(scenario(stop={"rounds": 1}), tmp_path / "port"), tmp_path / "run"
    options = ("--bind", endpoint, "--workers", 2, "--device", "cpu", "-q")

    started: list[Any] = []

    def start(*arguments: object) -> Any:
        started.append(seedbus_process(*arguments))
        return started[-1]

    def join() -> Any:
        return start("client", "--connect", endpoint, "--patience", 60, "--device", DEVICE)

    def wait_for_rounds(more: int) -> None:
        begun = logged(folder)
        wait_for(lambda: logged(folder) >= begun + more)

    try:
        first = start("server", tmp_path / "what.yaml", *options, "--out", tmp_path / "run")
        clients = [join(), join()]
        wait_for_rounds(20)
        kill(first.pid, signal.SIGKILL)
        first.communicate()
        second = start("server", *options, "--resume", tmp_path / "run")
        wait_for_rounds(20)
        kill(clients[0].pid, signal.SIGKILL)
        assert second.poll() is None, "the run was over before its client was killed"
        clients.append(join())
        _, told = second.communicate()
        assert second.returncode == 0, told
        assert [client.communicate() and client.returncode for client in clients] == [-signal.SIGKILL, 0, 0]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    results = Results.read(tmp_path / "run")
    assert what.verify and results.summary["traffic"]["by_kind"]["snapshot"]["messages"]
    assert "diverged" not in results.summary["refusals"] and results.summary["digest"] == whole.summary["digest"]
    assert alike(results, whole) or not IS_PROCESSOR


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"participation": {"clients": 8}, "topology": {"kind": "gossip", "graph": "ring"}},
        {"participation": {"clients": 8, "cohort": 3, "mode": "stream", "deadline_s": 5}},
    ],
    ids=["gossip", "stream"],
)
def test_runs_without_rounds_in_torchs_memory_have_the_processors_bits(tmp_path: Path, fields: dict[str, Any]) -> None:
    what = {"name": "sums", "task": DIGITS, "algorithm": INTEGER, "evaluation": {"every": 2}, "stop": {"rounds": 4}}
    here, there = (run({**what, **fields}, tmp_path / device, device=device) for device in ("cpu", DEVICE))
    assert not there.summary["refusals"]
    assert without_device(there) == without_device(here) or not IS_PROCESSOR
    assert replay(there.folder).digest == there.summary["digest"]


class StopsAt(NullObserver):
    """Presses Ctrl-C when so many rounds are closed."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self.rounds -= 1
        if not self.rounds:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_goes_on_on_another_device_only_when_told_to(tmp_path: Path) -> None:
    what = scenario(task=DIGITS, algorithm=HISO, stop={"rounds": 6})
    whole = go(tmp_path / "whole", what)
    with pytest.raises(Interrupted):
        run(what, tmp_path / "run", observer=StopsAt(3), device=DEVICE)
    with pytest.raises(RunFolderError, match=rf"it was begun on {DEVICE}.*, and this is cpu: .*--other-device"):
        run(what, tmp_path / "run", resume=True)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    resumed = run(what, tmp_path / "run", resume=True, device=DEVICE)
    placement = Placement("memory", other_device=True)
    moved = run(what, tmp_path / "other", resume=True, placement=placement)
    assert resumed.summary["version"] == moved.summary["version"] == 6
    assert moved.summary["device"] == f"{resumed.summary['device']}, then cpu"
    if IS_PROCESSOR:
        assert resumed.summary["digest"] == moved.summary["digest"] == whole.summary["digest"]


@pytest.mark.parametrize("task", ["quadratic", "null"])
def test_a_task_that_uses_no_device_goes_on_anywhere_and_is_recorded_on_the_processor(
    tmp_path: Path, task: str
) -> None:
    what = scenario(task={"name": task}, stop={"rounds": 4})
    with pytest.raises(Interrupted):
        run(what, tmp_path / "run", observer=StopsAt(2), device="torch")
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    ends = [run(what, tmp_path / "run", resume=True), run(what, tmp_path / "other", resume=True, device="torch")]
    assert [each.summary["device"] for each in ends] == ["cpu", "cpu"] and ends[0].digest == ends[1].digest
    with on_device("torch"):
        problem = what.task.bind(seed=1, clients=8, partition=Iid())
    assert type(problem.objective(0, 0).point) is np.ndarray


@pytest.mark.slow
@pytest.mark.parametrize("train", [{"kind": "full"}, {"kind": "lora", "rank": 2}], ids=["full", "lora"])
def test_a_language_model_in_torchs_memory_has_the_processors_losses(tmp_path: Path, train: Any) -> None:
    folder = write_model(tmp_path / "model")
    task = LanguageModel(model=str(folder), data=str(write_sets(tmp_path / "data") / "sst2"), train=train)
    points = []
    for device in ("cpu", DEVICE):
        with on_device(device):
            problem = bind(task)
        x = problem.x0()
        own = problem.objective(0, 0)
        own.point[:] = x
        losses = [own.loss(step) for step in range(3)]
        assert isinstance(own.point, TensorVector) == (device == DEVICE)
        points.append((losses, problem.evaluate(x, "test"), np.asarray(own.gradient(0)).tobytes()))
    assert points[0] == points[1] or (not IS_PROCESSOR and np.allclose(points[0][0], points[1][0], rtol=1e-4))


def test_results_name_no_device_that_no_process_had(tmp_path: Path) -> None:
    placement = Placement("memory", devices=("torch", "cpu"))
    results = run(scenario(task=DIGITS, stop={"rounds": 1}), tmp_path / "run", placement=placement)
    assert results.summary["device"].startswith("torch, torch ")


def test_digits_are_loaded_beside_the_network(tmp_path: Path) -> None:
    with on_device(DEVICE):
        problem: Any = Digits(name="digits").bind(seed=1, clients=2, partition=Iid())
    assert problem.flat.device is not None and problem.flat.device.type == TORCH_DEVICE.partition(":")[0]


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "cuda:1234", "CPU"])
def test_an_unknown_device_is_one_sentence(name: str) -> None:
    with pytest.raises(DataError, match=r"--device: found .*; expected cpu, torch \(tensors on the processor\), cuda"):
        check_device(name)


def test_a_device_that_is_not_there_is_one_sentence_and_leaves_no_folder(seedbus: Command, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    name = f"cuda:{torch.cuda.device_count()}"
    answer = seedbus("run", "quickstart", "--device", name, "--out", str(tmp_path / "run"))
    assert answer.code == Exit.DATA and name in answer.err and answer.err.count("\n") == 1
    assert not (tmp_path / "run").exists()
