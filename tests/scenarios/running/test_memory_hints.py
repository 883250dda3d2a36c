"""What is said when a GPU's memory runs out. There is no GPU here: its reading and torch's error are given."""

from __future__ import annotations

import pytest
import torch

from seedbus.models.device import GpuMemory, gpu_name
from seedbus.models.errors import DataError
from seedbus.scenarios.running import memory_hints as module
from seedbus.scenarios.running.limits import farewell_code
from seedbus.scenarios.running.memory_hints import memory_hints
from seedbus.scenarios.schema.loading import validate

ASKED = "CUDA out of memory. Tried to allocate 2.00 GiB."
GIB = 2**30


@pytest.mark.parametrize(
    ("total", "peak", "expected"),
    [
        (16 * GIB, 3 * GIB, "at most 3 processes on cuda:0 (this one takes 5.00 GiB of 16.00 GiB), or"),
        (16 * GIB, 7 * GIB, "one process on cuda:0 (this one takes 9.00 GiB of 16.00 GiB), or"),
        (16 * GIB, 15 * GIB, "expected algorithm.revert: light, or"),  # not even one fits
    ],
)
def test_a_full_gpu_is_one_sentence_with_the_number_of_processes_that_fit(
    total: int, peak: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gpu_name", lambda name: "a-gpu")
    monkeypatch.setattr(module, "gpu_memory", lambda name: GpuMemory(total, peak, 0))
    document = {
        "name": "full",
        "task": {"name": "digits"},
        "algorithm": {"name": "decomfl"},
        "participation": {"clients": 4},
        "stop": {"rounds": 1},
    }
    scenario = validate(document, "here")
    with pytest.raises(DataError) as raised, memory_hints(scenario, "cuda:0"):
        raise torch.OutOfMemoryError(ASKED)
    assert "full: found no memory for 2.00 GiB more" in str(raised.value)
    assert expected in str(raised.value)
    assert farewell_code(raised.value) == "memory"


def test_a_processor_has_no_reading() -> None:
    assert gpu_name("cpu") is None and gpu_name("torch") is None
