"""A server that is killed while its run ends: whoever was told of the end, the outcome is there, or can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import free_endpoint
from processes import HANGS_S, seedbus, wait_for
from worlds import HISO, lossy, outcome

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump

PROGRAM = Path(__file__).parents[1] / "support" / "killed_at.py"
# In the order in which they come: the outcome, three processes told of it (one evaluates), and what these sent since.
POINTS = [
    ("before", "finish", 1, {Exit.OK}),
    ("after", "finish", 1, {Exit.PEER}),
    ("after", "post", 2, {Exit.OK, Exit.PEER}),
    ("after", "post", 3, {Exit.OK}),
    ("before", "finish", 2, {Exit.OK}),
    ("after", "finish", 2, {Exit.OK}),
]
CASES = [
    pytest.param(*point, marks=[pytest.mark.soak] if at % 2 else [], id=" ".join(map(str, point[:3])))
    for at, point in enumerate(POINTS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("when", "method", "number", "codes"), CASES)
def test_a_server_killed_while_its_run_ends_has_the_outcome_that_clients_were_told_of(
    tmp_path: Path, when: str, method: str, number: int, codes: set[Exit]
) -> None:
    what = lossy(algorithm=HISO, stop={"rounds": 8}, evaluation={"every": 4})
    reference, endpoint = run(what, tmp_path / "whole"), free_endpoint(lossy(), tmp_path / "port")
    (tmp_path / "what.yaml").write_text(dump(what.resolved()))
    options = ("--bind", endpoint, "--workers", 2, "-q", "--patience", 60)
    killed_at = (PROGRAM, when, method, number)
    first = seedbus(*killed_at, "server", tmp_path / "what.yaml", *options, "--out", tmp_path / "run")
    wait_for((tmp_path / "run" / "log.jsonl").exists)
    patience_s = 10 if Exit.PEER in codes else 60  # nobody comes to those who are not told
    clients = [seedbus("client", "--connect", endpoint, "--patience", patience_s) for _ in range(2)]
    _, first_stderr = first.communicate(timeout=HANGS_S)
    assert first.returncode == -9, first_stderr
    second = seedbus("server", *options, "--resume", tmp_path / "run")
    _, second_stderr = second.communicate(timeout=HANGS_S / 4)
    assert second.returncode == 0, second_stderr
    said = [client.communicate(timeout=HANGS_S)[1] for client in clients]
    assert {client.returncode for client in clients} <= codes, said  # the evaluator may be any of those that are told
    (mine, my_lines), (its, its_lines) = outcome(Results.read(tmp_path / "run")), outcome(reference)
    for table in ("refusals", "refusal_details"):
        mine[table].pop("stale-session", None)
    assert (mine, my_lines) == (its, its_lines)
