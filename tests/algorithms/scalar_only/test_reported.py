"""What a client reports of its scalars is what it goes on from, and what everybody replays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import scenario

from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.scenarios.running.run import run


@pytest.mark.parametrize("local_steps", [1, 3])
def test_a_run_that_reports_signs_alone_replays_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_steps: int
) -> None:
    reported: list[list[float]] = []

    def signs(self: Any, scalars: Sequence[float]) -> Sequence[float]:
        reported.append(list(np.sign(scalars)))
        return reported[-1]

    algorithm = {"name": "decomfl", "perturbations": 2, "local_steps": local_steps, "learning_rate": 0.01}
    what = scenario(algorithm=algorithm, verify=True, stop={"rounds": 8})
    plain = run(what, tmp_path / "plain").summary
    monkeypatch.setattr(DeComFL, "reported", signs, raising=False)
    summary = run(what, tmp_path / "signs").summary
    assert not summary["refusals"] and summary["version"] == 8, "replicas that differ would be refused as diverged"
    assert summary["digest"] != plain["digest"]
    assert reported and all(set(each) <= {-1.0, 0.0, 1.0} for each in reported)
