"""Where a process computes: the variable that names it, torch's settings there, and what a run records of it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from commands import Command
from devices import DEVICE
from torch.nn.functional import cross_entropy
from worlds import scenario

from seedbus.bus.zeromq.worker.worker_thread import WorkerThread
from seedbus.models import device
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.images import networks
from seedbus.models.parameters.derivatives import loss_derivatives
from seedbus.models.parameters.flat import FlatModule, initial_values
from seedbus.models.parameters.gradients import backward
from seedbus.models.text.problem import PretrainedProblem
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.launchers.ray import Ray
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
DIGITS = {"name": "digits", "batch_size": 8}


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch with the settings that make it fast and its bits uncertain; its own settings come back."""
    monkeypatch.setenv(WORKSPACE, "")
    monkeypatch.delenv(WORKSPACE)
    places = [(torch.backends.cuda.matmul, "allow_tf32"), (torch.backends.cudnn, "allow_tf32")]
    places.append((torch.backends.cudnn, "benchmark"))
    own = [(place, name, getattr(place, name)) for place, name in places]
    deterministic, warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(False)
    for place, name in places:
        setattr(place, name, True)
    yield
    torch.use_deterministic_algorithms(deterministic, warn_only=warns)
    for place, name, value in [*((layers, "fp32_precision", "none") for layers in CUDNN), *own]:
        setattr(place, name, value)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]


CUDNN = [getattr(torch.backends.cudnn, name) for name in ("conv", "rnn") if hasattr(torch.backends.cudnn, name)]
"""What has a precision of its own since torch 2.9."""


def settings() -> dict[str, Any]:
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.backends.cuda.matmul.allow_tf32,
        "cudnn": torch.backends.cudnn.allow_tf32,
        "benchmark": torch.backends.cudnn.benchmark,
        "workspace": os.environ.get(WORKSPACE),
    }


@pytest.mark.usefixtures("careless")
def test_on_a_gpu_torch_is_deterministic_and_tf32_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings()
    with device.on_device("cpu"), device.on_device("torch"):
        assert settings() == before
    monkeypatch.setattr(device, "check_device", lambda name: None)
    expected = {"deterministic": True, "matmul": False, "cudnn": False, "benchmark": False, "workspace": ":4096:8"}
    with device.on_device("cuda"):
        assert settings() == expected and settings() != before
        for layers in CUDNN:  # "not allowed" alone would follow a user's torch.backends.fp32_precision
            assert layers.fp32_precision == "ieee"
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with device.on_device("cuda:1"):
        assert settings() == expected | {"workspace": ":16:8"}, "the user's own is kept"


def test_weights_that_are_read_from_their_files_again_take_no_memory_of_the_device() -> None:
    """The network lies there already, and a second one may not fit beside it."""
    loaded: list[Any] = []

    def load() -> Any:
        loaded.append(device.torch_device())
        return SimpleNamespace(values=lambda: np.ones(3, np.float32))

    problem: Any = SimpleNamespace(
        _x0=None, _x0_digest=b"", load=load, trained=SimpleNamespace(has_initial_values=False)
    )
    with device.on_device("torch"):
        assert PretrainedProblem.x0(problem).tolist() == [1, 1, 1] and loaded == [None]


def test_recurrent_layers_have_gradients_on_a_gpu_without_cudnn() -> None:
    """cuDNN's have none in evaluation mode, and nowhere second ones; other networks keep it."""
    gpu, lstm, cnn = torch.device("cuda"), networks.character_lstm(5), networks.digits_cnn()
    for network, where, has_cudnn in ((lstm, gpu, False), (cnn, gpu, True), (lstm, torch.device("cpu"), True)):
        with device.repeatable_gradients(network, where):
            assert torch.backends.cudnn.enabled == has_cudnn
        assert torch.backends.cudnn.enabled


@pytest.mark.slow
def test_first_and_second_derivatives_of_recurrent_layers_are_those_of_the_processor() -> None:
    found = []
    for name in ("cpu", DEVICE):
        with device.on_device(name):
            flat = FlatModule(networks.character_lstm(5))
        texts, labels = device.moved((torch.tensor([[0, 1, 2], [3, 4, 0]]), torch.tensor([1, 2])), flat.device)
        x = initial_values(flat.module, generator("x0"))
        flat.point[:] = x

        def loss(flat: FlatModule = flat, texts: Any = texts, labels: Any = labels) -> torch.Tensor:
            return cross_entropy(flat.module(texts), labels)

        first = np.asarray(backward(flat, [loss])).copy()
        with loss_derivatives(flat, x, [loss]) as derivatives:
            found.append((first, derivatives.gradient(), derivatives.times(x.astype(np.float64))))
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_the_variable_names_the_default_device_of_commands_and_of_python(
    monkeypatch: pytest.MonkeyPatch, seedbus: Command, tmp_path: Path
) -> None:
    what = scenario(task=DIGITS, stop={"rounds": 1})
    monkeypatch.setenv(device.VARIABLE, DEVICE)
    assert device.devices_of("") == (DEVICE,) and device.devices_of("cpu") == ("cpu",)
    assert run(what, tmp_path / "python").summary["device"].startswith(DEVICE)
    assert run(what, tmp_path / "option", device="cpu").summary["device"] == "cpu"
    Path("digits.yaml").write_text(dump(what.resolved()), encoding="utf-8")
    assert seedbus("run", "digits.yaml", "--out", tmp_path / "command", "-q").code == 0
    assert Results.read(tmp_path / "command").summary["device"].startswith(DEVICE)
    monkeypatch.setenv(device.VARIABLE, "gpu")
    with pytest.raises(DataError, match="SEEDBUS_DEVICE: found 'gpu'; expected cpu, torch"):
        device.devices_of("")
    answer = seedbus("run", "small.yaml", "--out", tmp_path / "mistake", "-q")
    assert answer.code == Exit.DATA and answer.err.startswith("seedbus: SEEDBUS_DEVICE: found 'gpu'; expected cpu")


def test_a_device_that_is_given_counts_whatever_the_variable_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(device.VARIABLE, "cpu,torch")  # as for two workers
    with pytest.raises(DataError, match="--device: found 'gpu'"):
        run(scenario(), tmp_path / "run", device="gpu")


def library(code: int) -> Any:
    """Return NVML as ctypes loads it, which tells a version if the code is 0."""

    def tell(buffer: Any, length: ctypes.c_uint) -> int:
        buffer.value = b"550.54.15"
        assert length.value >= 80
        return code

    return SimpleNamespace(nvmlInit_v2=lambda: 0, nvmlSystemGetDriverVersion=tell)


@pytest.mark.parametrize(
    ("loaded", "driver"),
    [(library(0), "550.54.15"), (library(9), "unknown"), (SimpleNamespace(), "unknown"), (OSError("none"), "unknown")],
    ids=["there", "fails", "another library", "none"],
)
def test_what_decides_the_bits_of_a_gpu_is_told_with_its_driver(
    monkeypatch: pytest.MonkeyPatch, loaded: Any, driver: str
) -> None:
    def load(name: str) -> Any:
        if isinstance(loaded, OSError):
            raise loaded
        return loaded

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda name: f"card {name}")
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    told = f"cuda:0 (card cuda:0), cpu, torch {torch.__version__}, CUDA 12.6, driver {driver}"
    assert device.device_text(["cuda:0", "cpu", "cuda:0"]) == told
    assert device.device_text(["cpu"]) == "cpu" and "driver" not in device.device_text(["torch"])
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert device.device_text(["cuda"]) == f"cuda (card cuda), torch {torch.__version__}, ROCm 7.0"


def test_gpus_of_other_machines_are_known_by_name_and_this_process_computes_on_its_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DataError, match="--device: found cuda:3, and"):
        device.devices_of("cuda:3")
    with pytest.raises(DataError, match="--device: found 'gpu'"):
        device.devices_of("gpu", are_here=False)
    devices = device.devices_of("cuda:3, cuda", 2, are_here=False)
    assert device.device_text(devices) == f"cuda:3, cuda, torch {torch.__version__}"
    there, here = Placement("tcp", 2, devices=devices, launcher=Ray()), Placement("tcp", 2, devices=devices)
    assert (there.own_device, here.own_device) == ("cpu", "cuda:3")


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        (("run", "small.yaml"), 1),
        (("run", "small.yaml", "--workers", "2"), 2),
        (("server", "small.yaml"), 1),
        (("client", "--connect", "tcp://127.0.0.1:1"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_more_devices_than_processes_are_one_sentence(
    command: tuple[str, ...], processes: int, seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    computing = {1: "one process computes", 2: "2 processes compute"}[processes]
    sentence = f"found cpu,torch,cpu; expected {processes} at most, because {computing}\n"
    refused = seedbus(*command, "--device", "cpu,torch, cpu")
    assert (refused.code, refused.err) == (Exit.DATA, f"seedbus: --device: {sentence}")
    monkeypatch.setenv(device.VARIABLE, "cpu,torch,cpu")
    refused = seedbus(*command)
    assert (refused.code, refused.err) == (Exit.DATA, f"seedbus: SEEDBUS_DEVICE: {sentence}")
    assert not Path("runs").exists()


def test_threads_have_devices_of_their_own() -> None:
    """Runs of several threads overlap in any order."""
    with device.on_device("torch"), ThreadPoolExecutor(1) as other:
        inner = device.on_device("cpu")
        other.submit(inner.__enter__).result()
        assert device.torch_device() == torch.device("cpu")
        assert other.submit(device.torch_device).result() is None
        other.submit(inner.__exit__, None, None, None).result()
    assert device.torch_device() is None


def test_what_a_worker_process_computes_is_on_its_device() -> None:
    """Its followers bind their problem on a thread of their own."""
    found: list[Any] = []
    with device.on_device("torch"):
        worker_thread = WorkerThread()
        worker_thread.do(lambda: found.append(device.torch_device()))
        worker_thread.close()
    assert found == [torch.device("cpu")]
