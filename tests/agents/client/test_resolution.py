"""Losses that no longer differ: who is told of them, and how often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbus.agents.client.resolution import FEWEST, LossWatch
from seedbus.models.parameters.losses import BFLOAT16, FLOAT32, Compared
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate


class Notes:
    """An observer that keeps what is noted."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def noted(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))


def objective(*steps: list[float]) -> Compared:
    """Return an objective that has seen the losses of some steps."""
    made = Compared()
    for losses in steps:
        made.compare(losses)
    return made


@pytest.mark.parametrize("resolution", [FLOAT32, BFLOAT16])
def test_losses_are_equal_within_two_steps_of_their_arithmetic_and_nan_never_is(resolution: float) -> None:
    made = Compared()
    made.resolution = resolution
    for distance, is_equal in ((0, True), (2, True), (3, False), (float("nan"), False)):
        before = made.equal
        made.compare([0.7, 0.7 * (1 - distance * resolution * 0.99), 0.7])
        assert made.equal - before == is_equal


def test_a_client_is_noted_when_half_of_its_steps_are_equal_and_again_when_they_have_doubled() -> None:
    watch = LossWatch(notes := Notes())  # type: ignore[arg-type]
    for round in range(4 * FEWEST):
        watch.saw(0, round, objective([1.0, 2.0], [1.0, 1.0]))  # half of the steps
        watch.saw(1, round, objective([1.0, 2.0], [1.0, 3.0], [1.0, 1.0]))  # a third
        watch.saw(2, round, objective([1.0, 1.0]))
        watch.saw(3, round, object())
    assert [event for event, _ in notes.events].count("coarse-losses") == 1
    counted = [(facts["client"], facts["equal"], facts["steps"]) for event, facts in notes.events if "client" in facts]
    times = [FEWEST, 2 * FEWEST, 4 * FEWEST]
    assert sorted(counted) == [(0, equal, 2 * equal) for equal in times] + [(2, equal, equal) for equal in times]


@pytest.mark.parametrize(
    ("smoothing", "mask", "is_told"),
    [(1e-12, None, True), (1e-2, None, False), (1e-12, {"rule": "random", "density": 0.5}, True)],
)
def test_a_run_whose_smoothing_is_lost_in_rounding_says_so_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], smoothing: float, mask: Any, is_told: bool
) -> None:
    algorithm = {"name": "decomfl", "perturbations": 2, "smoothing": smoothing}
    described = {"task": {"name": "digits"}, "mask": mask, "algorithm": algorithm, "participation": {"clients": 2}}
    run(validate({"name": "a", "stop": {"rounds": FEWEST + 1}} | described, "a.yaml"), tmp_path / "a")
    lines = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    counts = [(line["client"], line["equal"]) for line in lines if line["event"] == "equal-losses"]
    assert counts == ([(0, FEWEST), (1, FEWEST)] if is_told else [])
    assert ["larger algorithm.smoothing" in line["what"] for line in lines if line["event"] == "coarse-losses"] == (
        [True] if is_told else []
    )
