"""The processes of a study, of which any may end at any moment, cost no run but the one that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbus.scenarios.study import pool


def test_a_process_that_ends_while_it_has_no_job_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brief.py").write_text("""if input(): print('{"is_done": true}')""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(pool, "WORKER", "brief")
    with pool.Pool(1, stop_s=0.1) as workers:
        for _ in range(2):
            (answer,) = workers.do([pool.Job("run", None, {})])
            assert answer.failure is None
            (child,) = workers._children
            assert child is not None and child.wait(30) == 0
