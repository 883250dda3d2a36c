"""Texts that stay with their owners: what fits, what is refused with its place, and the same bits wherever they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from owners import own_scenario
from small_language import SENTENCES, write

from seedbus.models.errors import DataError
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.transports.placement import Placement

STATED: dict[str, Any] = {
    "prompt": "{review} It was",
    "target": "stars",
    "answers": {"1": "terrible", "5": "great"},
}


def scenario(model: Path | str, texts: dict[str, Any] = STATED, **more: Any) -> dict[str, Any]:
    task = {"name": "language-model", "model": str(model), "dataset": "own", "texts": texts, "batch_size": 4}
    return own_scenario(**{"task": task, "participation": {"clients": 2, "cohort": 2}, "stop": {"rounds": 4}} | more)


def bound(place: object, clients: list[int], fields: dict[str, Any]) -> Any:
    return bind(with_own(load(fields), str(place), clients, evaluates=False))


def rows_of(owner: int) -> list[dict[str, Any]]:
    chosen = SENTENCES[owner::2] * 3
    return [{"review": f"{text} {row}", "stars": 5 if label else 1} for row, (text, label) in enumerate(chosen)]


def reviews(folder: Path) -> list[Path]:
    """Write the reviews of two owners in two forms."""
    lines = "".join(json.dumps(row) + "\n" for row in rows_of(0))
    table = "stars,other,review\n" + "".join(f'{row["stars"]},x,"{row["review"]}"\n' for row in rows_of(1))
    write(folder / "0.jsonl", lines)
    write(folder / "1.csv", table)
    return [folder / "0.jsonl", folder / "1.csv"]


def test_owners_in_other_processes_and_forms_compute_what_a_rehearsal_does(opt: Path, tmp_path: Path) -> None:
    places, fields = reviews(tmp_path / "owners"), scenario(opt)
    placement = Placement("memory", own=str(tmp_path / "owners" / "*"))
    results = run(load(fields), tmp_path / "run", placement=placement, page=False)
    assert results.summary["metrics"]["samples"] == 2 * round(0.2 * 9)
    together: Any = bind(with_own(load(fields), str(tmp_path / "owners" / "*"), [0, 1], evaluates=True))
    nobody: Any = bind(with_own(load(fields), "", [], evaluates=True))
    alone = [bound(place, [client], fields) for client, place in enumerate(places)]
    assert len({(each.x0().tobytes(), each.identity()) for each in (together, nobody, *alone)}) == 1
    for client, problem in enumerate(alone):
        losses = []
        for of in (problem, together):
            of.objective(client, 3).point[:] = of.x0()
            losses.append(of.objective(client, 3).loss(1))
        assert losses[0] == losses[1]
        assert problem.objective(client, 3).samples == 1, "of a method that does not weigh by samples"
        with pytest.raises(DataError, match=f"partition own: found no samples of client {1 - client}"):
            problem.objective(1 - client, 0).loss(0)


def test_a_public_test_set_is_measured_where_the_server_has_it(opt: Path, tmp_path: Path) -> None:
    reviews(tmp_path / "owners")
    test = write_tsv(tmp_path / "test.tsv", 'stars\treview\n5\t"a journey\n1\tno wit\n')
    placement = Placement("memory", own=str(tmp_path / "owners" / "*"))
    with_test = scenario(opt, STATED | {"test_file": str(test)}, evaluation={"every": 2})
    assert "loss" in run(load(with_test), tmp_path / "run", placement=placement, page=False).summary["metrics"]
    with pytest.raises(ScenarioError, match=r"evaluation\.by is server, which has none of the samples"):
        run(load(scenario(opt, evaluation={})), tmp_path / "other", placement=placement, page=False)


def write_tsv(path: Path, text: str) -> Path:
    write(path, text)
    return path
