"""Whole runs with `arithmetic: bfloat16`: power cuts, lag, snapshots and late reports change no bit of x."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command
from power_cuts import run_with_power_cuts
from snapshot_cases import rough
from worlds import outcome

from seedbus.algorithms.directions.bfloat16 import widened
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run

BFLOAT16: dict[str, Any] = {"name": "decomfl", "arithmetic": "bfloat16", "perturbations": 5, "learning_rate": 0.01}


def test_a_run_cut_off_again_and_again_ends_alike_and_its_saved_model_has_the_bits_of_x(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seedbus: Command
) -> None:
    from safetensors import safe_open

    what = rough(0.2, algorithm=BFLOAT16 | {"momentum": 0.5}, stop={"rounds": 8}, verify=True)
    whole = run(what, tmp_path / "whole")
    results, cuts = run_with_power_cuts(what, tmp_path / "cut", monkeypatch, [(3, True), (3, False)])
    assert cuts > 2 and outcome(results) == outcome(whole)
    assert results.summary["traffic"]["by_kind"]["snapshot"]  # chunks of 2 bytes a coordinate
    replayed = replay(tmp_path / "cut")
    assert replayed.digest == whole.digest

    file = tmp_path / "model.safetensors"
    done = seedbus("export", tmp_path / "cut", "--out", file)
    assert done.code == 0, done
    with safe_open(file, "np") as saved:
        assert saved.metadata()["digest"] == whole.digest
        tensors = {name: saved.get_tensor(name) for name in saved.keys()}
    bits, momentum = replayed.replica.x, replayed.replica.fields["momentum"]
    (x,) = (tensor.ravel() for tensor in tensors.values())
    assert bits.dtype == np.int16 and x.dtype == momentum.dtype == np.float32
    assert x.tobytes() == np.asarray(widened(bits)).tobytes()
