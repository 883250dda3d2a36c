"""A study with more rounds goes on from its shorter runs, and finds what one finds that makes its runs anew."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from worlds import outcome, reopened

import seedbus
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.studies.study.store import Store
from seedbus.studies.study.study import study

BASE: dict[str, Any] = {
    "name": "tiny",
    "task": {"name": "quadratic", "dimension": 20},
    "algorithm": {"name": "decomfl"},
    "participation": {"clients": 6, "cohort": 3, "deadline_s": 2.0},
    "faults": [{"fault": "drop", "probability": 0.2}],
    "network": {"latency": 0.1},
    "evaluation": {"every": 4},
    "stop": {"rounds": 6},
}


def fields(rounds: int, **changes: Any) -> dict[str, Any]:
    base = BASE | {"stop": {"rounds": rounds}} | changes
    return {"name": "longer", "base": base, "seeds": [1, 2], "variants": {"mean": {}, "hiso": {"algorithm": "hiso"}}}


def runs(folder: Path) -> dict[str, Results]:
    return {path.parent.name: Results.read(path.parent) for path in sorted((folder / "runs").glob("*/results.json"))}


@pytest.mark.slow
def test_a_study_of_more_rounds_goes_on_from_its_shorter_runs(tmp_path: Path) -> None:
    study(fields(6), tmp_path / "a")
    short = runs(tmp_path / "a")
    study(fields(9), tmp_path / "a")
    found = study(fields(15), tmp_path / "a")
    whole = study(fields(15), tmp_path / "b")
    longer, anew = runs(tmp_path / "a"), runs(tmp_path / "b")
    assert len(short) == 4 and len(longer) == 12 and len(anew) == 4 and anew.keys() < longer.keys()
    for name, results in anew.items():
        assert longer[name].summary["was_resumed"] and not results.summary["was_resumed"]
        assert outcome(longer[name]) == outcome(results)
    assert found.failures == whole.failures == []
    assert {name: outcome(each) for name, each in runs(tmp_path / "a").items() if name in short} == {
        name: outcome(each) for name, each in short.items()
    }, "the shorter runs are kept"
    assert not [path for path in (tmp_path / "a" / "runs").iterdir() if path.name not in longer and path.is_dir()]


@pytest.mark.slow
def test_a_run_that_cannot_go_on_is_made_anew(tmp_path: Path) -> None:
    met = {"rounds": 6, "target": {"metric": "loss", "value": 1e9, "direction": "below"}}
    study(fields(6, stop=met), tmp_path)
    found = study(fields(9, stop=met | {"rounds": 9}), tmp_path)
    assert not found.failures and len(runs(tmp_path)) == 8
    assert not any(each.summary["was_resumed"] for each in runs(tmp_path).values())


def test_finished_runs_that_cannot_be_gone_on_with_are_passed_over(tmp_path: Path) -> None:
    """Somebody else's folder may hold anything, and a run on another device has other bits."""
    torch = {"task": {"name": "digits", "model": "softmax"}, "participation": {"clients": 4}, "faults": []}
    short, long = (seedbus.load(BASE | torch | {"stop": {"rounds": rounds}}) for rounds in (2, 3))
    store = Store(tmp_path)
    run(short, store.stored(short).folder)
    for number, text in enumerate(("[]", '{"stop": 3}', '{"stop": {"rounds": [2]}, "plugins": []}')):
        folder = Path(shutil.copytree(store.stored(short).folder, tmp_path / "runs" / f"{number}"))
        reopened(folder, {"scenario": text})
        (folder / "results.json").touch()
    shorter = Store(tmp_path).shorter(long)
    assert shorter == store.stored(short).folder and Store(tmp_path).of_other_sources({"mine": "00"}) == {}
    longer = store.stored(long)
    for other, device in ((shorter, "torch"), (tmp_path / "runs" / "0", "cpu"), (tmp_path / "runs" / "1", "cpu")):
        longer.begin_with(other, device)
        assert not longer.folder.exists(), "it is to be made anew"
    longer.begin_with(shorter, "cpu")
    assert run(long, longer.folder, resume=True).summary["rounds"] == 3


def test_a_run_on_files_that_have_changed_is_not_gone_on_with_and_only_files_of_equal_scenarios_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a folder of many images the digest of its files takes longer than all else."""
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_bytes(bytes(16))
    monkeypatch.setenv("SEEDBUS_SEED_SECRET", str(secret))
    short, long = (
        seedbus.load(BASE | {"seed_shift": True, "stop": {"rounds": rounds}, "faults": []}) for rounds in (2, 3)
    )
    stored = Store(tmp_path).stored(short)
    seedbus.run(short, stored.folder)
    assert Store(tmp_path).shorter(long) == stored.folder
    secret.write_bytes(bytes([1] * 16))
    assert Store(tmp_path).shorter(long) is None
    monkeypatch.setattr("seedbus.studies.study.store.key", None)
    assert Store(tmp_path).shorter(seedbus.load(BASE | {"stop": {"rounds": 3}})) is None


def test_only_a_run_of_the_same_content_is_gone_on_with(tmp_path: Path) -> None:
    store, scenario = Store(tmp_path), seedbus.load(BASE)
    stored = store.stored(scenario)
    seedbus.run(scenario, stored.folder)
    longer = {"stop": {"rounds": 9}}
    assert Store(tmp_path).shorter(seedbus.load(BASE | longer)) == stored.folder
    for changes in ({"stop": {"rounds": 6}}, {"stop": {"rounds": 5}}, longer | {"seed": 2}, longer | {"verify": True}):
        assert Store(tmp_path).shorter(seedbus.load(BASE | changes)) is None
    real = {"clock": "wall", "network": {}, "faults": []}  # where the bytes of a run that goes on are others
    one = seedbus.load(BASE | real | {"stop": {"rounds": 1}})
    seedbus.run(one, store.stored(one).folder)
    assert Store(tmp_path).shorter(seedbus.load(BASE | real)) is None
    (stored.folder / "results.json").unlink()
    assert Store(tmp_path).shorter(seedbus.load(BASE | longer)) is None
