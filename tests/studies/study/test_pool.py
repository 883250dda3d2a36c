"""The processes of a study, of which any may end at any moment, cost no run but the one that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import lossy

from seedbus.discovery import PLUGINS, Plugin
from seedbus.scenarios.operations.stopping import stop
from seedbus.studies.study import pool
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.store import Store
from seedbus.studies.study.study import Conduct

pytestmark = pytest.mark.usefixtures("cold_studies")


def test_a_process_that_ends_while_it_has_no_job_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brief.py").write_text("""if input(): print('{"is_done": true}')""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(pool, "WORKER", "brief")
    with pool.Pool(1, stop_s=0.1) as workers:
        for _ in range(2):
            (answer,) = workers.do([pool.Job("run", None, {})])
            assert answer.failure is None
            (child,) = workers._children
            assert child is not None and child.wait() == 0


@pytest.mark.parametrize("line", [b"hello", b"3", b'{"hello": 1}', b"[" * 100_000, b"\xff"])
def test_a_process_that_writes_what_is_no_answer_costs_the_job_that_it_is_at(
    line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is still at that job when the next one is given, and its later answers are to no other job."""
    (tmp_path / "chatty.py").write_text(f"""if True:
        import json, sys
        for job in map(json.loads, sys.stdin):
            if job["number"] == 0:
                sys.stdout.buffer.write({line!r} + bytes([10]))
            print(json.dumps({{"is_done": True, "number": job["number"]}}), flush=True)
    """)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(pool, "WORKER", "chatty")
    with pool.Pool(1, stop_s=0.1) as workers:
        first, *others = workers.do([pool.Job("run", None, {"number": number}) for number in range(3)])
    assert first.failure is not None and first.failure.startswith("its process cannot be used (")
    assert ("which is no answer" in first.failure) != ("decode" in first.failure) and len(first.failure) < 300
    assert [(each.facts["number"], each.job.facts["number"]) for each in others] == [(1, 1), (2, 2)]


@pytest.mark.slow
def test_a_plugin_that_prints_while_it_is_loaded_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chatty = tmp_path / "chatty.py"
    chatty.write_text("print('hello', flush=True)\nfrom torch.nn import Linear\ndef build(): return Linear(2, 2)")
    monkeypatch.setitem(PLUGINS, "chatty", Plugin("chatty", str(chatty), "", []))
    with pool.Pool(1) as workers:
        facts = {"scenario": lossy(0.1, stop={"rounds": 2}).resolved(), "parts": []}
        (answer,) = workers.do([pool.Job("trial", None, facts)])
    assert answer.failure is None and answer.facts["round_bytes"] > 0


@pytest.mark.slow
def test_a_run_of_a_study_that_is_stopped_costs_itself_alone(tmp_path: Path) -> None:
    class Stopper:
        stopped: str | None = None

        def begins(self, *_: Any) -> None: ...

        def advanced(self, row: str, seed: int, rounds: int) -> None:
            if self.stopped is None:
                self.stopped = row
                (begun,) = (tmp_path / "runs").iterdir()
                stop(begun, 30.0)

        def ended(self, *_: Any) -> None: ...

    base = lossy(0.1).resolved() | {"stop": {"rounds": 40}, "verify": False}
    plan = plan_of({"base": base, "grid": {"algorithm.learning_rate": [0.01, 0.02]}, "seeds": [1]})
    with pool.Pool(1) as workers:
        found = Conduct(plan, Store(tmp_path), workers, stopper := Stopper()).run()
        assert workers.folder.is_dir()  # the other processes' temporary files are there
    assert [(each.row, each.reason) for each in found.failures] == [
        (stopper.stopped, "it was stopped; every closed round is kept, and the same study goes on with it")
    ]
    assert len(found.runs) == 1
    with pool.Pool(1) as workers:
        again = Conduct(plan, Store(tmp_path), workers).run()
    assert again.is_complete and not again.failures
