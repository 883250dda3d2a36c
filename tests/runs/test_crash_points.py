"""A process that is killed at any write, any send or any instant loses no commit and repeats none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worlds import DECOMFL, HISO

PROGRAM = Path(__file__).parents[1] / "support" / "crash_points.py"


AIR = {"name": "scaffold", "learning_rate": 0.05, "channel": {"kind": "aircomp", "threshold": 0.5}}


def run_program(folder: Path, **task: Any) -> dict[str, Any]:
    """Run `crash_points.py`, which must fork without other threads, and return what it prints."""
    command = [sys.executable, str(PROGRAM), str(folder), json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert not result["failures"], "\n".join([*result["failures"], done.stderr])
    return result


def names(value: Any) -> str | None:
    return str(value["name"]) if isinstance(value, dict) else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "points", "seed"),
    [
        (HISO, 20, 1),
        pytest.param(HISO, 200, 2, marks=pytest.mark.soak),
        (AIR, 8, 6),
        ({"name": "mifa", "learning_rate": 0.05}, 5, 7),
        pytest.param(DECOMFL, 200, 2, marks=pytest.mark.soak),
        pytest.param(HISO, 0, 3, marks=pytest.mark.soak),
        pytest.param(DECOMFL, 0, 3, marks=pytest.mark.soak),
    ],
    ids=names,
)
def test_a_process_killed_at_any_write_and_any_send_goes_on_as_if_it_had_not(
    memory: Path, algorithm: dict[str, Any], points: int, seed: int
) -> None:
    found = run_program(memory, scenario={"algorithm": algorithm, "stop": {"rounds": 12}}, points=points, seed=seed)
    print(f"{found['kills']} kills at {found['points']} of {found['of']} points: 0 commits lost or doubled")
    assert found["kills"] == found["points"] >= points


@pytest.mark.parametrize(
    ("kills", "seed"),
    [pytest.param(30, 4, marks=pytest.mark.slow), pytest.param(2000, 5, marks=pytest.mark.soak)],
)
def test_a_run_killed_again_and_again_at_any_instant_ends_as_if_it_had_not(memory: Path, kills: int, seed: int) -> None:
    found = run_program(memory, scenario={"algorithm": HISO, "stop": {"rounds": 40}}, kills=kills, seed=seed)
    print(f"{found['kills']} kills in {found['runs']} runs: 0 commits lost or doubled")
    assert found["kills"] >= kills
