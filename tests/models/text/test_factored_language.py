"""Losses of a language model by factors of directions are those at x + μz, whatever is trained, padded or packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_language import bind, write_model
from test_language_families import write_family

from seedbus.algorithms.directions.laws.gaussian import Gaussian
from seedbus.algorithms.directions.low_rank import Layers, LowRankDirections
from seedbus.models.tasks.language_model import LanguageModel

TRAINED = [{"kind": "full"}, {"kind": "last-blocks"}, {"kind": "lora"}, {"kind": "layernorm"}]
SHIFTS = [(0, 0.0), (0, 0.05), (1, -0.05), (2, 0.05)]

pytestmark = [pytest.mark.usefixtures("one_thread", "opt"), pytest.mark.slow]


@pytest.mark.parametrize("batching", ["padded", "packed"])
@pytest.mark.parametrize("family", ["opt", "llama"])
@pytest.mark.parametrize("train", TRAINED, ids=lambda train: str(train["kind"]))
def test_losses_are_those_at_points(tmp_path: Path, texts: Path, family: str, train: Any, batching: str) -> None:
    folder = write_model(tmp_path / "model") if family == "opt" else write_family(tmp_path, family)
    fields = {"model": str(folder), "data": str(texts / "sst2"), "batch_size": 4, "loss": "options"}
    problem = bind(LanguageModel.model_validate(fields | {"train": train, "batching": batching}))
    problem.check_factors()
    directions = LowRankDirections(Gaussian(), Layers.of(problem.shapes(), 2), v_seed=7)
    x, objective, single = problem.x0(), problem.objective(0, 1), []
    if train["kind"] == "lora":
        x[:] = np.random.default_rng(0).standard_normal(x.size, np.float32) / 4  # B begins at 0
    for p, scale in SHIFTS:
        directions.perturb(objective.point, x, scale, seed=3, step=0, perturbation=p, start=0)
        single.append(objective.loss(0))
    objective.point[:] = x
    found = objective.read([objective.measure_factored(0, directions.factors(SHIFTS, seed=3, step=0))])
    assert found == pytest.approx(single, rel=5e-6)
    assert np.ptp(single) > 1e-4 * single[0], "the directions change the loss"
