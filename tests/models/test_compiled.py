"""The compiled loss: it is part of the scenario, has the same bits in every process, and is refused if unavailable."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import ServerThread
from power_cuts import PowerCut, cut_power
from processes import wait_for
from worlds import go, reopened, scenario

from seedbus.agents.client.worker import prove
from seedbus.agents.errors import JoinRefused, RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest
from seedbus.bus.zeromq import Joining, follow
from seedbus.models.errors import DataError
from seedbus.models.images.problem import ImageProblem
from seedbus.scenarios.running.prepare import bind_for_clients, recruit
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

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


def test_a_run_is_resumed_only_with_the_same_forward_mode(tmp_path: Path) -> None:
    go(tmp_path / "run", what("eager", stop={"rounds": 2}))
    with pytest.raises(RunFolderError, match=r'task\.forward is "eager" there and "compiled" here'):
        run(what("compiled", stop={"rounds": 2}), tmp_path / "run", resume=True)


def test_a_process_compiles_before_its_first_loss_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def fake(loss: Any, inputs: Any, labels: Any) -> Any:
        calls.append((tuple(inputs.shape), tuple(labels.shape)))
        return lambda *batch: loss(*batch) * 2

    monkeypatch.setattr("seedbus.models.images.sample_problem.compiled", fake)
    notices: list[Any] = []
    compiled, eager = (
        bind_for_clients(what(forward), lambda event, **facts: notices.append((event, facts)))
        for forward in ("compiled", "eager")
    )
    assert isinstance(compiled, ImageProblem) and isinstance(eager, ImageProblem)
    notices = [each for each in notices if each[0] != "kernels"]  # compiling kernels is announced, too
    assert notices == [("compiling", {"what": "the loss of task digits"})] and calls == [((16, 1, 8, 8), (16,))]
    for problem in (compiled, eager):
        problem.flat.point[:] = problem.x0()
    assert compiled.objective(3, 1).loss(0) == 2 * eager.objective(3, 1).loss(0)
    # batches that are not full are computed without the compiled loss
    compiled.parts[3] = eager.parts[3] = eager.parts[3][:15]
    assert compiled.objective(3, 1).loss(0) == eager.objective(3, 1).loss(0)


def in_one_place(factor: float) -> ImageProblem:
    """Return a problem as on a machine whose compiled loss is `factor` times as large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "seedbus.models.images.sample_problem.compiled",
            lambda loss, *_: lambda *batch: loss(*batch) * np.float32(factor),
        )
        problem = bind_for_clients(SHARED, lambda event, **facts: None)
    assert isinstance(problem, ImageProblem)
    return problem


SHARED = what("compiled", participation={"clients": 8, "cohort": 6}, stop={"rounds": 5})
ONE_BIT = 1 + 2**-23


REFUSED = r"\(losses\): its compiled or stacked losses have other bits .* with task.forward: eager nothing is"


def takes_part(endpoint: str, factor: float, first: int, last: int) -> None:
    joining = Joining(endpoint, HostRequest(((first, last),)))
    follow(joining, recruit(SHARED, in_one_place(factor), NullObserver()))


def test_only_compiled_losses_are_part_of_the_proof() -> None:
    eager = bind_for_clients(what("eager"), lambda event, **facts: None)
    assert isinstance(eager, ImageProblem) and eager.probe() == b""
    assert set(prove(SHARED.algorithm, eager)) == {"selftest", "x0"}
    here, other = (prove(SHARED.algorithm, in_one_place(factor)) for factor in (1.0, ONE_BIT))
    assert here == prove(SHARED.algorithm, in_one_place(1.0))
    assert {name for name in here if here[name] != other[name]} == {"losses"}


@pytest.mark.slow
def test_a_process_whose_compiled_losses_differ_in_a_bit_is_refused(tmp_path: Path) -> None:
    alone = _run_of(1.0, tmp_path / "alone")
    with ServerThread(SHARED, tmp_path / "run") as server:
        endpoint = server.watcher.endpoint

        threading.Thread(target=takes_part, args=(endpoint, 1.0, 0, 3), daemon=True).start()
        wait_for(lambda: server.watcher.joined > 0)
        with pytest.raises(JoinRefused, match=REFUSED):
            takes_part(endpoint, ONE_BIT, 4, 7)
        threading.Thread(target=takes_part, args=(endpoint, 1.0, 4, 7), daemon=True).start()
        results = server.results()
    assert results.digest == alone and results.summary["refusals"]["losses"] == {"-4": 1}


def _run_of(factor: float, folder: Path, **options: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seedbus.scenarios.running.prepare.bind_for_clients", lambda scenario, note: in_one_place(factor))
        return run(SHARED, folder, **options).digest


def test_a_run_goes_on_only_where_its_compiled_losses_are_the_same(tmp_path: Path) -> None:
    reference = _run_of(1.0, tmp_path / "run")
    reopened(tmp_path / "run", {})
    with pytest.raises(RunFolderError, match=r"begun with losses [0-9a-f]{16}, and this is losses [0-9a-f]{16}"):
        _run_of(ONE_BIT, tmp_path / "run", resume=True)
    assert _run_of(1.0, tmp_path / "run", resume=True) == reference


@pytest.mark.slow
def test_a_server_that_goes_on_knows_the_compiled_losses_that_its_run_began_with(tmp_path: Path) -> None:
    reference = _run_of(1.0, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(PowerCut):
        cut_power(patch, Journal, "append", 3, before=False)
        _run_of(1.0, tmp_path / "run")
    with ServerThread(SHARED, tmp_path / "run", resume=True) as server:
        with pytest.raises(JoinRefused, match=REFUSED):
            takes_part(server.watcher.endpoint, ONE_BIT, 0, 7)
        threading.Thread(target=takes_part, args=(server.watcher.endpoint, 1.0, 0, 7), daemon=True).start()
        assert server.results().digest == reference


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_compiled_run_has_the_same_bits_here_and_in_two_processes(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings that torch raises about its own code
        compiled = what("compiled", participation={"clients": 8, "cohort": 6}, stop={"rounds": 12})
        here = go(tmp_path / "here", compiled).summary
    spread = run(compiled, tmp_path / "spread", placement=Placement("tcp", workers=2)).summary
    assert (here["digest"], here["rounds"]) == (spread["digest"], 12)
