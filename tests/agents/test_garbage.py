"""What a run exempts from Python's cyclic garbage collector, and gives back."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from worlds import scenario

from seedbus.agents.observer import NullObserver
from seedbus.scenarios.running.run import run


class Counts(NullObserver):
    """How many objects are exempt when rounds close."""

    def __init__(self) -> None:
        self.during: list[int] = []

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self.during.append(gc.get_freeze_count())


def test_a_runs_objects_are_exempt_until_it_ends(tmp_path: Path) -> None:
    counts = Counts()
    run(scenario(stop={"rounds": 2}), tmp_path / "run", observer=counts)
    assert min(counts.during) > 10_000 and gc.get_freeze_count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 3])
def test_in_a_program_that_exempts_its_own_nothing_of_a_run_is_kept_for_ever(tmp_path: Path, rounds: int) -> None:
    counts = Counts()
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        run(scenario(stop={"rounds": rounds}), tmp_path / "run", observer=counts)
        assert before >= max(counts.during) and before >= gc.get_freeze_count() > 0.9 * before
    finally:
        gc.unfreeze()
