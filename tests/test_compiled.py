"""The compiled loss: a part of the scenario, the same bits in every process, and refused where it cannot be had."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from worlds import go, scenario

from seedbus.agents.errors import RunFolderError
from seedbus.models.errors import DataError
from seedbus.models.image_problem import ImageProblem
from seedbus.scenarios.cluster import Placement
from seedbus.scenarios.run import hosted, run

TASK: dict[str, Any] = {"name": "digits", "model": "cnn", "batch_size": 16}


def what(forward: str, **changes: Any) -> Any:
    document = {"task": TASK | {"forward": forward}, "verify": False, "evaluation": {"every": 50}}
    return scenario(**document | changes)


def test_without_a_compiler_a_compiled_run_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    expected = "found no C.. compiler here; expected no-such-compiler and its headers, or task.forward: eager"
    with pytest.raises(DataError, match=expected):
        go(tmp_path / "run", what("compiled"))
    assert not (tmp_path / "run").exists()
    assert go(tmp_path / "run", what("eager", stop={"rounds": 2})).summary["rounds"] == 2


def test_a_run_goes_on_only_as_it_began(tmp_path: Path) -> None:
    go(tmp_path / "run", what("eager", stop={"rounds": 2}))
    with pytest.raises(RunFolderError, match=r'task\.forward is "eager" there and "compiled" here'):
        run(what("compiled", stop={"rounds": 2}), tmp_path / "run", resume=True)


def test_a_process_compiles_before_its_first_loss_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def fake(loss: Any, inputs: Any, labels: Any) -> Any:
        calls.append((tuple(inputs.shape), tuple(labels.shape)))
        return lambda *batch: loss(*batch) * 2

    monkeypatch.setattr("seedbus.models.image_problem.compiled", fake)
    told: list[Any] = []
    compiled, eager = (
        hosted(what(forward), lambda event, **facts: told.append((event, facts))) for forward in ("compiled", "eager")
    )
    assert isinstance(compiled, ImageProblem) and isinstance(eager, ImageProblem)
    told = [each for each in told if each[0] != "kernels"]  # which may have been compiled, too
    assert told == [("compiling", {"what": "the loss of task digits"})] and calls == [((16, 1, 8, 8), (16,))]
    for problem in (compiled, eager):
        problem.flat.point[:] = problem.x0()
    assert compiled.objective(3, 1).loss(0) == 2 * eager.objective(3, 1).loss(0)
    # a client with less than a batch is not compiled for
    compiled.parts[3] = eager.parts[3] = eager.parts[3][:15]
    assert compiled.objective(3, 1).loss(0) == eager.objective(3, 1).loss(0)


@pytest.mark.slow
def test_a_compiled_run_has_the_same_bits_here_and_in_two_processes(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about itself
        compiled = what("compiled", participation={"clients": 8, "cohort": 6}, stop={"rounds": 12})
        here = go(tmp_path / "here", compiled).summary
    spread = run(compiled, tmp_path / "spread", placement=Placement("tcp", workers=2)).summary
    assert (here["digest"], here["rounds"]) == (spread["digest"], 12)
