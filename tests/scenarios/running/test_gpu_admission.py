"""Processes that share a GPU are measured one after the other, and what does not fit ends before the run begins.

There is no GPU here: the reading of its memory is given, and what reads it is the code of every run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from worlds import DECOMFL, outcome, scenario

from seedbus.agents.observer import NullObserver
from seedbus.agents.round_record import ClosedRound
from seedbus.models.device import GpuMemory
from seedbus.models.errors import DataError
from seedbus.scenarios.errors import Exit, WorkerFailed
from seedbus.scenarios.running import gpu_admission as module
from seedbus.scenarios.running.gpu_admission import RUNTIME, GpuAdmission
from seedbus.scenarios.running.limits import farewell_code
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

GIB = 2**30
PARTS = {"clients": 8, "cohort": 3, "deadline_s": 10}
CROWDED = Path(__file__).resolve().parents[2] / "support" / "plugins" / "crowded.py"


class Gpu:
    """A reading of 16 GiB, of which each process takes some."""

    def __init__(self) -> None:
        self.free = 16 * GIB
        self.later: list[int] = []
        self.processes: list[GpuAdmission] = []

    def reading(self, name: str) -> GpuMemory:
        return GpuMemory(16 * GIB, 0, self.free)

    def take(self, size: int) -> None:
        self.free -= size

    def hold(self, name: str, size: int) -> None:
        self.later.append(size)
        self.free -= size


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Gpu]:
    gpu = Gpu()
    monkeypatch.setenv(RUNTIME, str(tmp_path))
    monkeypatch.setattr(module, "gpu_name", lambda name: "a-gpu" if name.startswith("cuda") else None)
    monkeypatch.setattr(module, "gpu_memory", gpu.reading)
    monkeypatch.setattr(module, "hold_memory", gpu.hold)
    yield gpu
    end(gpu)


def end(gpu: Gpu) -> None:
    """End all processes: the system gives their locks up."""
    for process in gpu.processes:
        process.close()


def enter(gpu: Gpu, gib: float, run: bytes = b"run", later: int = 0, device: str = "cuda:0") -> None:
    """Admit a process whose first round takes so much."""
    notes: list[str] = []
    admission = GpuAdmission(device, lambda event, **facts: notes.append(event))
    with admission.turn(run) as measure:
        measure(lambda: gpu.take(int(gib * GIB)), later)
    gpu.processes.append(admission)
    assert notes == (["measured"] if device.startswith("cuda") else [])


@pytest.mark.slow
def test_a_process_that_does_not_fit_is_refused_with_the_number_that_does(gpu: Gpu) -> None:
    enter(gpu, 4.5)
    enter(gpu, 4.0, later=GIB)
    enter(gpu, 5.0)
    assert gpu.later == [0, GIB, 0] and gpu.free == int(1.5 * GIB)
    with pytest.raises(DataError) as raised:
        enter(gpu, 0)
    assert str(raised.value) == (
        "cuda:0: found not enough memory for another process of this run: 1.50 GiB of 16.00 GiB are free, and each of "
        "3 takes 5.00 GiB; expected --workers 3 for each GPU (under Ray --launch worker_gpus=0.333)"
    )
    assert farewell_code(raised.value) == "memory"
    enter(gpu, 1.0, run=b"another")  # of which nothing is known yet
    with pytest.raises(
        DataError, match=r"0.50 GiB of 16.00 GiB are free, and one takes 1.00 GiB; expected --workers 1 "
    ):
        enter(gpu, 0, run=b"another")


@pytest.mark.slow
def test_the_place_of_a_process_that_has_ended_is_free(gpu: Gpu) -> None:
    enter(gpu, 9.0)
    with pytest.raises(DataError, match=r"7\.00 GiB of 16\.00 GiB are free"):
        enter(gpu, 0)
    end(gpu)
    enter(gpu, 4.0)  # of a run whose processes have all ended nothing is known
    with pytest.raises(DataError, match=r"3\.00 GiB of 16\.00 GiB are free, and one takes 4\.00 GiB"):
        enter(gpu, 0)


@pytest.mark.slow
def test_processes_are_measured_one_at_a_time(gpu: Gpu) -> None:
    order: list[str] = []
    waits = threading.Event()

    def note(event: str, **facts: Any) -> None:
        order.append(event)
        waits.set()

    def second() -> None:
        with GpuAdmission("cuda:0", note).turn(b"run"):
            order.append("second")

    thread = threading.Thread(target=second)
    with GpuAdmission("cuda:0", lambda event, **facts: None).turn(b"run"):
        thread.start()
        waits.wait()
        order.append("first")
    thread.join()
    assert order == ["turn", "first", "second"]


@pytest.mark.slow
def test_a_process_of_many_links_is_measured_over_its_first(gpu: Gpu) -> None:
    admission = GpuAdmission("cuda:0", lambda event, **facts: None)
    gpu.processes.append(admission)
    with admission.turn(b"run") as measure:
        for _ in range(3):
            measure(lambda: gpu.take(4 * GIB), 0)
    assert gpu.free == 12 * GIB


def test_nothing_is_measured_elsewhere(gpu: Gpu, tmp_path: Path) -> None:
    enter(gpu, 1.0, device="torch")
    assert gpu.free == 16 * GIB and list(tmp_path.iterdir()) == []


def test_the_folder_of_another_user_is_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "seedbus").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="found a folder of another user, or no folder; expected XDG_RUNTIME_DIR"):
        enter(gpu, 1.0)


def test_a_place_for_a_folder_at_which_there_is_a_file_or_no_right_to_write_is_said(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "seedbus").touch()
    with pytest.raises(DataError, match=r"seedbus: found .*, or no folder; expected XDG_RUNTIME_DIR"):
        enter(gpu, 1.0)
    (tmp_path / "seedbus").unlink()

    def refused(path: Path, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(DataError, match=r"found no folder that can be written \(Permission denied\); expected XDG_RUN"):
        enter(gpu, 1.0)


@pytest.mark.slow
def test_a_process_that_is_sent_to_another_run_gives_its_place_up(gpu: Gpu) -> None:
    """Otherwise it would find its own place, taken by a process of the run to which it returns."""
    admission = GpuAdmission("cuda:0", lambda event, **facts: None)
    gpu.processes.append(admission)
    for name in (b"run", b"another", b"run"):
        gpu.free = 7 * GIB
        with admission.turn(name) as measure:
            measure(lambda: gpu.take(4 * GIB), 0)
            gpu.free = 3 * GIB
    with pytest.raises(DataError, match=r"and one takes 4\.00 GiB; expected --workers 1 "):
        enter(gpu, 0)
    enter(gpu, 1.0, run=b"another")


class Cuda:
    """What torch.cuda tells of 16 GiB, of which its allocator keeps what tensors no longer need."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.used = self.kept = self.peak = 0
        patch.setattr(torch.cuda, "get_device_properties", lambda name: SimpleNamespace(uuid="a-gpu"))
        patch.setattr(torch.cuda, "mem_get_info", lambda name: (16 * GIB - self.kept, 16 * GIB))
        patch.setattr(torch.cuda, "max_memory_reserved", lambda name: self.peak)
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        patch.setattr(torch.cuda, "empty_cache", lambda: self.keep(self.used))
        patch.setattr(torch.cuda, "reset_peak_memory_stats", lambda name: setattr(self, "peak", self.kept))

    def keep(self, size: int) -> None:
        self.kept, self.peak = size, max(self.peak, size)

    def take(self, gib: int) -> None:
        self.used += gib * GIB
        self.keep(max(self.kept, self.used))


@pytest.mark.slow
def test_what_torch_kept_of_a_run_that_has_ended_is_free_for_the_next_and_no_part_of_its_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(RUNTIME, str(tmp_path))
    cuda, told = Cuda(monkeypatch), list[tuple[str, str]]()
    admission = GpuAdmission("cuda:0", lambda event, **facts: told.append((facts["takes"], facts["free"])))
    for name, gib in ((b"large", 12), (b"small", 2), (b"larger", 13)):
        with admission.turn(name) as measure:
            measure(partial(cuda.take, gib), 0)
        cuda.used = 0  # the run has ended, and its tensors are gone
    admission.close()
    assert told == [("12.00 GiB", "4.00 GiB"), ("2.00 GiB", "14.00 GiB"), ("13.00 GiB", "3.00 GiB")]


@pytest.mark.parametrize(
    "faults",
    [
        [{"fault": "server-crash", "at_round": 1, "phase": "gathering", "down_s": 1}],
        [{"fault": "hostile", "clients": [0]}],
    ],
    ids=["whose-server-crashes", "whose-clients-forge"],
)
@pytest.mark.slow
def test_a_run_in_one_process_waits_for_its_turn_which_ends_with_its_first_round(
    faults: list[dict[str, Any]], gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gpu_name", lambda name: "a-gpu")
    what = scenario(task={"name": "digits", "batch_size": 8}, faults=faults, stop={"rounds": 3}, participation=PARTS)
    measured, release = threading.Event(), threading.Event()

    def another() -> None:
        with GpuAdmission("torch", lambda event, **facts: None).turn(b"another"):
            measured.set()
            release.wait()

    thread = threading.Thread(target=another)
    thread.start()
    measured.wait()
    watch = Watch(release)
    shared = run(what, tmp_path / "shared", device="torch", observer=watch)
    thread.join()
    assert watch.events == ["turn", "measured", *["round"] * 3]
    monkeypatch.setattr(module, "gpu_name", lambda name: None)
    alone = run(what, tmp_path / "alone", device="torch")
    assert outcome(shared) == outcome(alone)


class Watch(NullObserver):
    """Ends another process's turn when a run waits for it, and takes a turn itself after each round."""

    def __init__(self, release: threading.Event) -> None:
        self._release = release
        self.events: list[str] = []

    def noted(self, event: str, **facts: Any) -> None:
        if event in ("turn", "measured"):
            self.events.append(event)
            self._release.set()

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        def waits(event: str, **facts: Any) -> None:
            raise AssertionError("the run still has its turn")

        with GpuAdmission("torch", waits).turn(b"a third"):
            self.events.append("round")


@pytest.mark.slow
def test_a_run_with_more_processes_than_fit_ends_before_its_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], no_plugins: None
) -> None:
    """Of 16 GiB each process takes 4, and 0.5 for CUDA, as a plug-in says that replaces the readings in the workers."""
    from seedbus.plugin import load_plugin

    (tmp_path / "gpu").mkdir()
    monkeypatch.setenv(RUNTIME, str(tmp_path))
    load_plugin(str(CROWDED))
    monkeypatch.setenv("SEEDBUS_TEST_GPU", str(tmp_path / "gpu"))
    what = scenario(
        task={"name": "digits", "batch_size": 8}, algorithm=DECOMFL, stop={"rounds": 2}, participation={"clients": 8}
    )
    three = run(what, tmp_path / "three", placement=Placement("ipc", workers=3, devices=("torch",)))
    monkeypatch.delenv("SEEDBUS_TEST_GPU")
    alone = run(what, tmp_path / "alone", device="torch")
    assert outcome(three)[1] == outcome(alone)[1] and three.summary["digest"] == alone.summary["digest"]
    monkeypatch.setenv("SEEDBUS_TEST_GPU", str(tmp_path / "gpu"))
    capfd.readouterr()
    with pytest.raises(WorkerFailed) as raised:
        run(what, tmp_path / "four", placement=Placement("ipc", workers=4, devices=("torch",)))
    assert raised.value.code == Exit.DATA
    assert "each of 3 takes 4.00 GiB; expected --workers 3 for each GPU (under Ray --launch worker_gpus=0.333)" in (
        capfd.readouterr().err
    )
