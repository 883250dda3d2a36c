"""The bytes of a run in its summary, beside its ledger and the papers' conventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import go, lossy

DENSE = {"name": "fedavg", "local_steps": 1}


@pytest.mark.parametrize("algorithm", [{"name": "decomfl"}, DENSE])
def test_the_summary_counts_as_many_replayed_commits_as_the_table_of_clients(tmp_path: Path, algorithm: Any) -> None:
    results = go(tmp_path / "run", lossy(algorithm=algorithm, stop={"rounds": 10}))
    assert results.summary["traffic"]["replayed"] == results.clients["replayed"].sum()
    assert (results.clients["replayed"].sum() > 0) == (algorithm is not DENSE)
