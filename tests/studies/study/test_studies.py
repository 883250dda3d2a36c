"""A study expands into rows, makes every run once, survives whatever stops it, and reports what its runs say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from commands import Command
from pages import allowed, own
from pages import plots as drawings
from processes import is_alive, started_by, wait_for
from processes import seedbus as process_of
from torch import nn
from torch.utils.data import TensorDataset
from worlds import HISO, TINY, lossy, outcome

import seedbus
from seedbus.scenarios.errors import Exit, Interrupted, ScenarioError
from seedbus.scenarios.reporting.looks import Line, looks
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.paper import file_of, lines_figure
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load as load_scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.study import pool, worker
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.plots import plots
from seedbus.studies.study.progress import StudyProgress
from seedbus.studies.study.provenance import provenance
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.schema import Ask, Study, Tuning, load_study
from seedbus.studies.study.store import Store, key
from seedbus.studies.study.study import Conduct
from seedbus.studies.study.study_page import write_report
from seedbus.studies.study.study_report import StudyReport
from seedbus.studies.study.tables import cells, latex, markdown

pytestmark = pytest.mark.slow


def test_a_study_is_given_in_values_that_only_python_has(tmp_path: Path) -> None:
    base = seedbus.load("quickstart")
    grid = {"stop.rounds": np.arange(3, 5), "algorithm.learning_rate": [np.float64(0.5)]}
    study, _, _ = load_study({"name": "a", "base": base, "seeds": range(1, 3), "grid": grid})
    written = {"base": json.loads(json.dumps(base.resolved())), "seeds": [1, 2]}
    written["grid"] = {"stop.rounds": [3, 4], "algorithm.learning_rate": [0.5]}
    assert study == load_study({"name": "a"} | written)[0]


ROOT = Path(__file__).resolve().parents[3]
BASE = lossy(0.1).resolved()
STUDY: dict[str, Any] = {
    "name": "small",
    "base": BASE,
    "variants": {"decomfl": [], "hiso": {"algorithm": HISO}},
    "grid": {"faults.0.probability": [0.1, 0.3]},
    "seeds": [1, 2, 3],
    "ask": {"at": [10, "4 kB"], "target": 90.5, "splits": ["train"]},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> StudyReport:
    return seedbus.study(STUDY, tmp_path_factory.mktemp("studies"), jobs=2)


def test_every_variant_at_every_point_of_the_grid_is_a_row_with_all_seeds(found: StudyResults) -> None:
    assert list(found.table["row"]) == [f"{name}, drop {rate}" for name in ("decomfl", "hiso") for rate in (0.1, 0.3)]
    assert list(found.table["faults.0.probability"]) == [0.1, 0.3] * 2 and found.is_complete
    assert len(found.runs) == 12 and set(found.runs["seed"]) == {1, 2, 3}


def test_a_run_of_a_study_has_the_bits_of_the_same_scenario_run_alone(found: StudyResults, tmp_path: Path) -> None:
    one = found.members["hiso, drop 0.3"][1]
    alone = run(lossy(0.3, algorithm=HISO, seed=2), tmp_path / "alone")
    assert outcome(Results.read(one.run.folder)) == outcome(alone)


def test_figures_are_those_of_the_runs(found: StudyResults) -> None:
    row = found.table.iloc[0]
    members = [Results.read(member.run.folder) for member in found.members[row["row"]]]
    losses = [list(each.metrics["loss"]) for each in members]
    assert row["last"] == pytest.approx(np.mean([values[-1] for values in losses]))
    assert row["last_sd"] == pytest.approx(np.std([values[-1] for values in losses], ddof=1))
    ends = []
    for values in losses:  # x₀, and after every fifth round
        average = values[0]
        for value in values[1:]:
            average = 0.9**5 * average + (1 - 0.9**5) * value
        ends.append(average)
    assert row["final"] == pytest.approx(np.mean(ends)) and row["final_low"] <= np.mean(ends) <= row["final_high"]
    assert row["bytes"] == np.mean([each.summary["traffic"]["bytes"] for each in members])
    assert row["at_10"] == pytest.approx(np.mean([values[2] for values in losses]))
    runs = [member.run for member in found.members[row["row"]]]
    by_then = [[line for line in each.lines if line["bytes_up"] + line["bytes_down"] <= 4000] for each in runs]
    assert all(1 < len(lines) < 5 for lines in by_then)
    assert row["at_4kB"] == pytest.approx(np.mean([lines[-1]["loss"] for lines in by_then]))
    model = seedbus.replay(members[0].folder)
    on_train = model.problem.evaluate(model.replica.x, "train")["loss"]
    assert found.runs["train_loss"][0] == pytest.approx(on_train)


def test_in_python_a_study_shows_draws_and_writes_what_the_command_does(
    found: StudyReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = found._repr_html_()
    assert shown.count("<tr>") == 1 + len(found.table) + len(found.circumstances) and "drop 0.1" in shown
    page = found.write()
    assert page.is_file() and (page.parent / "table.tex").read_text() == found.to_latex() + "\n"
    drawn = {path.stem for path in (page.parent / "figures").glob("*.svg")}
    assert "loss-over-bytes" in drawn and found.plot("loss-over-bytes").axes[0].get_xscale() == "log"
    assert found.plot().legends[0].get_title().get_text() == "rounds"
    with pytest.raises(ScenarioError, match="did you mean loss-over-bytes"):
        found.plot("loss-over-byte")
    seedbus.study({"name": "one", "base": BASE, "seeds": [1]}, tmp_path, progress=True)
    told = capsys.readouterr()
    assert "1/1  small, seed 1: done" in told.err and told.out == ""


def task_of(shift: float = 0.0, loss: Any = "cross-entropy") -> seedbus.TorchTask:
    """Return a task of objects of this program."""
    points = torch.from_numpy(np.random.default_rng(1).normal(shift, size=(80, 3)).astype(np.float32))
    samples = TensorDataset(points, (points[:, 0] > shift).long())
    return seedbus.TorchTask(network=lambda: nn.Linear(3, 2), train=samples, test=samples, loss=loss)


OWN: dict[str, Any] = {
    "name": "own",
    "base": {"algorithm": "decomfl", "participation": {"clients": 4}, "stop": {"rounds": 3}},
    "variants": {"slow": [], "fast": {"algorithm.learning_rate": 0.5}},
    "seeds": [1, 2],
    "ask": {"splits": ["train"], "analysis": ["clients_mean"]},
}


def test_a_study_of_a_task_of_this_program_is_made_here_and_kept_by_what_the_task_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = seedbus.study(OWN, "studies", task=task_of(), settings={"stop.rounds": 4}, progress=True)
    assert not found.failures and found.is_complete and "4/4  fast, seed 2: done" in capsys.readouterr().err
    assert found.table["rounds"].eq(4).all() and found.table["train_accuracy"].between(0, 1).all()
    assert found.table["clients_mean"].between(0, 1).all() and found.folder == tmp_path / "studies/own"
    alone = seedbus.run(OWN["base"], task=task_of(), settings={"stop.rounds": 4, "seed": 2}, page=False)
    assert Results.read(found.runs["run"][1]).digest == alone.digest

    def runs(**changed: Any) -> set[str]:
        again = seedbus.study(OWN, "studies", task=task_of(**changed), settings=["stop.rounds=4"])
        return set(again.runs["run"])

    kept = set(found.runs["run"])
    assert runs() == kept, "the same data and functions are the same task, whichever objects they are"
    assert not runs(shift=1.0) & kept, "other data"
    assert not runs(loss=lambda outputs, classes: 2 * nn.functional.cross_entropy(outputs, classes)) & kept
    page = found.write("elsewhere")
    assert page == tmp_path / "elsewhere/report.html" and not found.folder.exists()
    named = pd.read_csv("elsewhere/runs.csv")["run"]
    assert all((page.parent / run / "results.json").is_file() for run in named)


def test_a_study_of_a_task_of_this_program_stops_on_ctrl_c_and_goes_on(tmp_path: Path) -> None:
    class Stops(StudyProgress):
        def advanced(self, row: str, seed: int, rounds: int) -> None:
            raise Interrupted(tmp_path, "go on")

    with Meter(is_quiet=True) as meter, pytest.raises(Interrupted):
        seedbus.study(OWN, tmp_path, task=task_of(), watcher=Stops("own", meter))
    assert seedbus.study(OWN, tmp_path, task=task_of()).is_complete


@pytest.mark.parametrize(
    ("changed", "given", "sentence"),
    [
        ({}, {"jobs": 2}, "jobs: 2 processes do not have the objects of task; expected 1, or functions of a plug-in"),
        ({}, {"settings": {"task.batch_size": 3}}, "--set task.batch_size=3: the task is an object of this program; "),
        ({"grid": {"task.batch_size": [3, 4]}}, {}, "grid.task.batch_size: the task is an object of this program; "),
        ({}, {"task": 3}, "task: int is not accepted; expected a task, such as seedbus.TorchTask"),
    ],
)
def test_what_does_not_go_with_a_task_of_this_program_is_one_sentence(
    tmp_path: Path, changed: dict[str, Any], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ScenarioError, match=re.escape(sentence)) as raised:
        seedbus.study(OWN | changed, tmp_path, **{"task": task_of()} | given)
    assert len(str(raised.value).splitlines()) == 1


def test_differences_are_paired_over_seeds(found: StudyResults) -> None:
    finals = found.runs.pivot(index="seed", columns="row", values="final")
    for row, other, each in found.compared_by["final"]:
        assert each.mean == pytest.approx((finals[row] - finals[other]).mean()) and each.seeds == 3
        better = found.better(row, other, each)
        assert not better or each.low > 0 or each.high < 0
        assert better in ("", row if each.mean < 0 else other), "less loss is better"
    assert [(row, other) for row, other, _ in found.compared_by["final"]] == [
        ("decomfl, drop 0.1", "hiso, drop 0.1"),
        ("decomfl, drop 0.3", "hiso, drop 0.3"),
    ], "rows that differ in one thing, under the same circumstances"
    assert list(found.differences["figure"]) == ["final"] * 2 + ["at_4kB"] * 2


def test_a_curve_counts_rounds_bytes_time_and_forward_passes(found: StudyResults) -> None:
    curve = found.curves.query("row == 'decomfl, drop 0.1' and seed == 1")
    assert list(curve["rounds"]) == [0, 5, 10, 15, 20]
    for name in ("bytes", "bytes_up", "bytes_down", "catchup_bytes", "simulated_s", "forward_passes"):
        assert curve[name].is_monotonic_increasing
    assert (curve["bytes_up"] + curve["bytes_down"] == curve["bytes"]).all()
    assert 0 < curve["catchup_bytes"].iloc[1] < curve["bytes_down"].iloc[1]
    total = Results.read(Path(found.runs["run"][0])).summary["traffic"]["catchup_bytes"]
    assert curve["catchup_bytes"].iloc[-1] == total
    met = curve[curve["loss"] <= 90.5].iloc[0]
    for name in ("rounds", "bytes", "bytes_up", "bytes_down", "catchup_bytes", "simulated_s"):
        assert found.runs[f"{name}_to_target"][0] == met[name]
    assert curve["forward_passes"].iloc[-1] == found.runs["forward_passes"][0]
    counted = Results.read(Path(found.runs["run"][0])).clients["answered"].sum()
    assert found.runs["forward_passes"][0] == 4 * counted, "three perturbations and the unperturbed point"


def test_nothing_is_run_twice_also_by_another_study_with_another_name(
    found: StudyResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)  # no process can be started
    folder = found.folder.parent
    other = STUDY | {"name": "other", "base": BASE | {"name": "renamed", "description": "too"}, "seeds": [3, 1]}
    again = seedbus.study(other, folder)
    assert again.is_complete and set(again.runs["run"]) < set(found.runs["run"])
    assert len(list((folder / "runs").glob("*/results.json"))) == 12


def test_the_key_is_that_of_what_is_computed() -> None:
    scenario = lossy(0.1)
    same = [lossy(0.1, name="other"), lossy(0.1, description="it"), lossy(0.1, expect={"loss": {"at_most": 1}})]
    others = [lossy(0.1, seed=2), lossy(0.2), lossy(0.1, stop={"rounds": 21}), lossy(0.1, verify=False)]
    assert {key(each) for each in same} == {key(scenario)}
    assert len({key(each) for each in [scenario, *others]}) == 5


def test_the_report_has_all_tables_and_plots_with_bands(found: StudyResults) -> None:
    html = write_report(found).read_text()
    assert "http:" not in own(html) and allowed(html) in html and 'rowgroup">drop 0.1</th>' in own(html)
    drawn = drawings(html)
    assert len(drawn) == 5 and [len(plot["data"]) for plot in drawn.values()] == [8, 8, 8, 8, 6], "a band for each line"
    figures = {path.name: Xml.parse(path).getroot() for path in (found.folder / "figures").glob("*.svg")}
    axes = ("rounds", "bytes", "simulated-time", "forward-passes")
    assert {path.stem for path in (found.folder / "figures").glob("*.pdf")} == {name[:-4] for name in figures}
    assert set(figures) == {"pareto.svg", *(f"loss-over-{axis}.svg" for axis in axes)}
    for name, figure in figures.items():
        parts = [str(each.get("id")) for each in figure.iter("{http://www.w3.org/2000/svg}g")]
        bands = [each for each in parts if each.startswith("FillBetweenPolyCollection_")]
        assert len(bands) == (0 if name == "pareto.svg" else 4)
    for name in ("table", "runs", "curves", "differences"):
        frame = getattr(found, name)
        if name == "runs":
            named = [Path("..", *Path(run).parts[-2:]) for run in frame["run"]]
            assert all((found.folder / run / "results.json").is_file() for run in named), "no path of this machine"
            frame = frame.assign(run=[*map(str, named)])
        pd.testing.assert_frame_equal(pd.read_parquet(found.folder / f"{name}.parquet"), frame)
        assert list(pd.read_csv(found.folder / f"{name}.csv").columns) == list(frame.columns)


def test_the_folder_of_a_report_says_how_its_runs_were_made_and_they_can_be_made_again_from_it(
    found: StudyResults, tmp_path: Path
) -> None:
    page = write_report(found)
    told = json.loads((page.parent / "study.json").read_text())
    assert load_study(told["study"])[0] == found.plan.study and told["settings"] == [] and told["plugins"] == {}
    assert told["scenarios"].keys() == found.members.keys()
    (row, (*_, member)), *_ = found.members.items()
    again = run(load_scenario(told["scenarios"][row], [f"seed={member.seed}"]), tmp_path / "again")
    assert member.run.results is not None and again.digest == member.run.results.digest
    summary = member.run.results.summary
    assert told["seedbus"] == [summary["seedbus"]] and told["versions"] == [summary["versions"]]
    assert told["processors"] == [summary["processor"]] and "<h2>Made with</h2>" in page.read_text()
    other = StudyResults(found.folder, plan_of(STUDY, ["stop.rounds=3"]), "loss", {row: [] for row in found.members})
    assert provenance(other)["settings"] == ["stop.rounds=3"] and provenance(other)["processors"] == []


def test_figures_for_papers_are_as_wide_as_columns_and_the_same_bytes_each_time(found: StudyResults) -> None:
    for plot in plots(found):
        first = [line for line in plot.drawn if line.panel == "drop 0.1"]
        for drawn, width_in in (([line._replace(panel="") for line in first], 3.25), (plot.drawn, 6.75)):
            figures = (lines_figure(*plot[2:4], drawn, is_log=plot.is_log) for _ in range(2))
            content, again = (file_of(figure, "pdf") for figure in figures)
            assert content == again
            width_pt = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", content)[1])  # type: ignore[index]
            assert width_pt == width_in * 72 and b"/Type3" not in content


def test_a_character_that_the_font_lacks_is_no_warning_in_a_figure_for_papers() -> None:
    figure = lines_figure("round", "loss", [Line(name, [0, 1], [1, 2]) for name in ("日本", "b")])
    assert file_of(figure, "pdf").startswith(b"%PDF") and "日本".encode() in file_of(figure, "svg")


def test_a_published_curve_is_dashed_in_the_colour_of_its_row_and_ends_where_the_rows_do(
    found: StudyResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    (tmp_path / "published-curves").mkdir()
    (tmp_path / "published-curves" / "theirs.csv").write_text("round,value\n4,9\n9,8\n499,7\n")
    named = {"hiso, drop 0.1": "theirs.csv", "hiso, drop 0.3": "lost.csv"}
    study = found.plan.study.model_copy(update={"published": named})
    beside = replace(found, plan=replace(found.plan, study=study))
    drawn = next(plots(beside)).drawn
    assert (drawn[-1].name, np.asarray(drawn[-1].x).tolist()) == ("hiso (published)", [5, 10])
    assert drawn[-1].panel == "drop 0.1", "that of the row"
    by_name = dict(zip((line.name for line in drawn), looks(drawn), strict=True))
    own, theirs = by_name["hiso"], by_name["hiso (published)"]
    assert own.colour == theirs.colour and theirs.dashes == "2 3" != own.dashes, "dotted"
    page = write_report(beside).read_text()
    missing = "not drawn beside: hiso, drop 0.3 (lost.csv); expected in published-curves/ in a directory of SEEDBUS"
    assert theirs.dashes in page and missing in page and str(tmp_path) not in page


@pytest.mark.usefixtures("cold_studies")
def test_trackers_are_told_of_every_run_with_its_tags_also_of_finished_ones(
    seedbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes write into one store at once; each run is there once."""
    pytest.importorskip("mlflow", reason='needs pip install "seedbus[track]"')
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    Path("told.yaml").write_text(dump(STUDY | {"name": "told", "grid": {}, "seeds": [1], "ask": {}}))
    assert seedbus("study", "told.yaml", "-q").code == Exit.OK
    Path("told.yaml").write_text(dump(STUDY | {"name": "told", "grid": {}, "seeds": [1, 2], "ask": {}}))
    for _ in range(2):
        answer = seedbus("study", "told.yaml", "-q", "--jobs", "2", "--track", "mlflow")
        assert (answer.code, answer.err) == (Exit.OK, "")
    client = MlflowClient(tracking_uri=(tmp_path / "studies/told/tracked/mlruns").as_uri())
    (experiment,) = [each for each in client.search_experiments() if each.name == "told"]
    runs = client.search_runs([experiment.experiment_id])
    names = sorted(each.info.run_name for each in runs)
    assert names == [f"{row}, seed {seed}" for row in ("decomfl", "hiso") for seed in (1, 2)]
    hiso = next(each for each in runs if each.info.run_name == "hiso, seed 2")
    assert hiso.data.tags["seedbus.variant"] == "hiso" and hiso.data.tags["seedbus.study"] == "told"
    assert hiso.data.tags["seedbus.digest"] == run(lossy(0.1, algorithm=HISO, seed=2), tmp_path / "alone").digest


def test_a_launcher_places_the_clients_of_every_run_and_a_run_that_it_cannot_place_is_told(seedbus: Command) -> None:
    if find_spec("submitit") is None:
        pytest.skip('needs pip install "seedbus[cluster]"')
    Path("small.yaml").write_text(dump(STUDY | {"variants": {}, "grid": {}, "seeds": [1, 2], "ask": {}}))
    placed = ["--launcher", "slurm", "--launch", "cluster=local", "--jobs", "2", "-q", "--format", "json"]
    answer = seedbus("study", "small.yaml", *placed)
    assert answer.code == Exit.OK
    (row,) = json.loads(answer.out)["rows"]
    for number, folder in enumerate(row["runs"], 1):
        assert '"submitted"' in (Path(folder) / "log.jsonl").read_text()
        assert Results.read(Path(folder)).digest == run(lossy(0.1, seed=number), Path(f"alone-{number}")).digest
    many = seedbus("study", "small.yaml", "--out", "other", "--workers", "99", *placed)
    assert many.code == Exit.USAGE and "row small cannot run: --workers 99: the run has 8 clients" in many.err


def test_workers_of_a_study_compute_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = {"launcher": {"launcher": "local"}, "workers": 2, "patience_s": 60.0}
    monkeypatch.setenv("SEEDBUS_DEVICE", "torch,cpu")
    placement = worker._placement(launch, "memory")
    assert placement is not None and placement.devices == ("torch", "cpu")
    monkeypatch.delenv("SEEDBUS_DEVICE")
    placement = worker._placement(launch, "memory")
    assert placement is not None and placement.devices == ("cpu",)


def test_runs_of_a_study_wait_for_workers_as_long_as_it_is_told(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(conduct: Conduct) -> None:
        assert conduct.launch is not None
        placed.append(worker._placement(conduct.launch, "memory"))
        raise KeyboardInterrupt

    placed: list[Placement | None] = []
    monkeypatch.setattr(Conduct, "run", stop)
    file = tmp_path / "one.yaml"
    file.write_text(dump(STUDY | {"base": TINY, "variants": {}, "grid": {}, "seeds": [1], "ask": {}}))
    seedbus("study", file, "--workers", "2", "--patience", "300", "-q")
    assert [each and each.patience_s for each in placed] == [300.0]


def test_the_table_is_one_in_all_formats(found: StudyResults) -> None:
    heads, rows = cells(found)
    lines = markdown(found).splitlines()
    assert [len(line.split(" | ")) for line in lines[:8]] == [len(heads)] * 8
    assert [line.split(" |")[0] for line in lines[2:8]] == [f"| {name}" for name in (
        "**drop 0.1**", "decomfl", "hiso", "**drop 0.3**", "decomfl", "hiso",
    )]  # fmt: skip
    tabular = latex(found).splitlines()
    assert [line.count("&") for line in tabular if "&" in line] == [len(heads) - 1] * 5
    assert r"\emph{drop 0.1}" in tabular[4] and r"\addlinespace" in tabular[7]
    assert r"$\pm$" in tabular[5] and r"\%" not in tabular[5] and tabular[5].startswith("decomfl & 3 & ")
    assert rows[1][2].startswith(f"{found.table['final'][0]:.2f}"[:3])


def test_pairs_without_a_difference_are_told_with_the_number_of_seeds(tmp_path: Path) -> None:
    few = STUDY | {"variants": {}, "seeds": [1, 2], "grid": {"faults.0.probability": [0.1, 0.11]}, "ask": {}}
    found = seedbus.study(few, tmp_path)
    told = r"not settled at 2 seeds: drop 0\.1 − drop 0\.11 = -?[\d.]+ \[-[\d.]+, [\d.]+\]"
    assert any(re.fullmatch(told, each) for each in sentences(found))


def test_runs_without_a_commit_and_those_that_end_worse_than_they_began_are_told(tmp_path: Path) -> None:
    variants = {"lost": ["faults.0.probability=1.0"], "rising": ["algorithm.learning_rate=0.05"], "good": []}
    few = STUDY | {"variants": variants, "grid": {}, "seeds": [1, 2], "ask": {}}
    told = sentences(seedbus.study(few, tmp_path))
    for seed in (1, 2):
        assert f"lost, seed {seed}: no round made a commit: the model is the one that the run began with" in told
        worse = rf"rising, seed {seed}: the model ended worse than it began: loss [\d.]+, before the first round [\d.]+"
        assert any(re.fullmatch(worse, each) for each in told)
    assert not any(each.startswith("good, seed") for each in told)


def test_a_run_that_fails_is_told_and_the_others_go_on(seedbus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(Path.cwd()))
    variants = {"bad": ["task=femnist"], "good": []}
    study = STUDY | {"variants": variants, "grid": {}, "seeds": [1], "ask": {"metric": "loss"}}
    Path("failing.yaml").write_text(dump(study))
    result = seedbus("study", "failing.yaml", "--quiet", "--format", "json")
    assert result.code == Exit.INCOMPLETE
    assert re.search(r"seedbus: a run failed: bad, seed 1: .*femnist", result.err)
    report = json.loads(result.out)
    assert [len(row["runs"]) for row in report["rows"]] == [0, 1] and not report["is_complete"]


@pytest.mark.usefixtures("cold_studies")
def test_a_killed_worker_costs_its_run_alone(tmp_path: Path) -> None:
    """The worker that makes the first run is killed as soon as the run has closed a round."""

    class Killer:
        killed = 0

        def begins(self, *_: Any) -> None: ...

        def advanced(self, row: str, seed: int, rounds: int) -> None:
            if not self.killed:
                self.killed += 1
                children = [
                    pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
                ]
                workers = [pid for pid in children if b"study.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
                os.kill(int(workers[0]), signal.SIGKILL)

        def ended(self, *_: Any) -> None: ...

    long = BASE | {"stop": {"rounds": 200}, "verify": False}
    study = STUDY | {"base": long, "variants": {}, "seeds": [1], "ask": {}}
    first = seedbus.study(study, tmp_path, watcher=Killer())
    assert len(first.failures) == 1 and "was killed by SIGKILL" in str(first.failures[0])
    assert len(first.runs) == 1 and not first.is_complete
    again = seedbus.study(study, tmp_path)
    assert again.is_complete and not again.failures


def test_a_study_that_is_stopped_while_it_estimates_says_how_it_goes_on(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rehearse(*arguments: Any, **options: Any) -> None:
        raise Interrupted(Path("a folder that is gone"), "another command")

    monkeypatch.setattr("seedbus.studies.study.estimate.rehearse", rehearse)
    Path("study.yaml").write_text(dump(STUDY))
    kept = "stopped; every closed round is kept: go on with the same command"
    begins = "small: 4 rows × 3 seeds = 12 runs; 12 to make"
    for option, said in (("--dry-run", "stopped"), ("--jobs=1", kept)):
        answer = seedbus("study", "study.yaml", option)
        assert (answer.code, answer.err) == (Exit.INTERRUPTED, f"{begins}\nseedbus: {said}\n")


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; its path is short enough for sockets."""
    with TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.mark.few(1, slow=2)
@pytest.mark.parametrize(
    ("how", "options"), [(signal.SIGINT, []), (signal.SIGKILL, []), (signal.SIGINT, ["--workers", "2"])]
)
def test_a_study_that_is_stopped_goes_on_where_it_was(
    tmp_path: Path, temporary: Path, how: signal.Signals, options: list[str]
) -> None:
    base = BASE | {"stop": {"rounds": 60}, "verify": False}
    study = STUDY | {"base": base, "variants": {}, "ask": {}, "seeds": [1, 2]}
    (tmp_path / "study.yaml").write_text(dump(study))
    command = [sys.executable, "-m", "seedbus", "study", "study.yaml", "--quiet", "--format", "json", *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command, cwd=tmp_path, **pipes)
    folder = tmp_path / "studies" / "runs"

    def is_in_third_run() -> bool:
        begun = [path for path in folder.glob("*/metrics.jsonl") if path.stat().st_size]
        return 2 <= len(list(folder.glob("*/results.json"))) < len(begun)

    wait_for(is_in_third_run)
    processes = started_by(child.pid)
    child.send_signal(how)
    _, err = child.communicate()
    assert child.returncode == (Exit.INTERRUPTED if how is signal.SIGINT else -how)
    if how is signal.SIGINT:
        assert err == "seedbus: stopped; every closed round is kept: go on with the same command\n"
        assert not list(temporary.iterdir())
        wait_for(lambda: not any(map(is_alive, processes)))
    wait_for(lambda: not list(temporary.iterdir()))
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/results.json")}
    assert 2 <= len(before) < 4
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["is_complete"]
    assert all(path.stat().st_mtime_ns == made for path, made in before.items()), "finished runs are not made again"
    whole = seedbus.study(study, tmp_path / "whole", jobs=2)
    for member in whole.members["drop 0.1"]:
        other = Results.read(folder / member.run.folder.name)
        assert other.digest == Results.read(member.run.folder).digest
        assert other.lines == Results.read(member.run.folder).lines


@pytest.mark.few(1)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_dry_run_that_is_stopped_leaves_no_temporary_files(
    tmp_path: Path, temporary: Path, how: signal.Signals
) -> None:
    long = dump(STUDY | {"base": BASE | {"stop": {"rounds": 10**6}, "verify": False}})
    (tmp_path / "study.yaml").write_text(long)
    child = process_of("study", "study.yaml", "--dry-run", cwd=tmp_path)
    wait_for(lambda: any(temporary.rglob("scenario.yaml")))
    child.send_signal(how)
    child.communicate()
    if how is signal.SIGINT:
        assert child.returncode == Exit.INTERRUPTED and not list(temporary.iterdir())
    wait_for(lambda: not list(temporary.iterdir()))


@pytest.mark.usefixtures("cold_studies")
def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deaf.py").write_text("""if True:
        import os, pathlib, sys, time
        pathlib.Path(sys.argv[1], "file").write_text(str(os.getpid()))
        print('{"rounds": 1}', flush=True)
        while True:
            time.sleep(60)
    """)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(pool, "WORKER", "deaf")
    with pool.Pool(1, stop_s=0.1) as deaf:
        next(deaf.do([pool.Job("run", None, {})]))
        (file,) = deaf.folder.iterdir()
        number = int(file.read_text())
    assert not is_alive(number) and not deaf.folder.exists()


def test_a_dry_run_says_what_it_would_cost_and_writes_nothing(seedbus: Command) -> None:
    Path("small.yaml").write_text(dump(STUDY))
    before = sorted(Path().iterdir())
    result = seedbus("study", "small.yaml", "--dry-run")
    assert (result.code, result.out, sorted(Path().iterdir())) == (Exit.OK, "", before)
    said = re.fullmatch(
        "small: 4 rows × 3 seeds = 12 runs; 12 to make\n"
        r"small: about \d+ s in 1 process, about ([\d.]+) kB sent\n",
        result.err,
    )
    assert said is not None, result.err
    seedbus("study", "small.yaml", "--quiet")
    sent = pd.read_csv("studies/small/runs.csv")["bytes"].sum()
    assert float(said[1]) * 1000 == pytest.approx(sent, rel=0.1)
    assert seedbus("study", "small.yaml", "--dry-run").err.endswith("= 12 runs; all are there already\n")


def test_tuned_values_are_in_the_report_with_the_trials_behind_them(seedbus: Command) -> None:
    rates = [0.001, 0.01]
    tuned = {"tune": {"algorithm.learning_rate": rates}, "tuning": {"rounds": 10, "further": 3}, "variants": {}}
    Path("tuned.yaml").write_text(dump(STUDY | tuned | {"seeds": [1], "ask": {}}))
    result = seedbus("study", "tuned.yaml", "--format", "json")
    assert result.code == Exit.OK, result.err
    assert "small: 4 trials (batch 1 of at most 4), 0 of them finished already\n1/4  drop 0.1, " in result.err
    assert "small: 2 trials (batch 2 of at most 4), 0 of them finished already\n1/2  drop 0.1, " in result.err
    report = json.loads(result.out)
    trials = pd.read_csv("studies/small/trials.csv")
    assert set(trials["row"]) == {"drop 0.1", "drop 0.3"} and trials.groupby("row").size().nunique() == 1
    for row in report["rows"]:
        best = min(report["tuned"][row["row"]]["trials"], key=lambda trial: trial["score"])
        assert row["algorithm.learning_rate"] == best["values"]["algorithm.learning_rate"]
        assert (
            f"learning_rate: {row['algorithm.learning_rate']}" in (Path(row["runs"][0]) / "scenario.yaml").read_text()
        )
    assert Path("studies/small/figures/tuning-algorithm.learning_rate.svg").is_file()
    assert "What was tried" in Path("studies/small/report.html").read_text()
    splits = {
        path.read_text().partition("split: ")[2].split()[0] for path in Path("studies/runs").glob("*/scenario.yaml")
    }
    assert splits == {"validation", "test"}


def test_a_variant_that_tunes_a_field_of_its_own_is_counted_kept_and_reported_as_the_others(seedbus: Command) -> None:
    rate, count = "algorithm.learning_rate", "algorithm.perturbations"
    rows = {"plain": [], "own": {"tune": {count: [2, 4]}}, "fixed": {"stop.rounds": 9, "tune": {rate: [0.01]}}}
    few: dict[str, Any] = STUDY | {"variants": rows, "grid": {}, "seeds": [1], "ask": {}}
    Path("own.yaml").write_text(dump(few | {"tune": {rate: [0.001, 0.01]}, "tuning": {"rounds": 6, "further": 1}}))
    said = seedbus("study", "own.yaml", "--dry-run").err
    begins = "small: 3 rows × 1 seed = 3 runs, after"
    assert said.startswith(f"{begins} 7 to 10 trials; 10 to 13 to make\n")
    assert re.search(r"about (\d+ s to )?\d+ s in 1 process, about \d.*B to \d.*B sent\n", said)
    Path("fewer.yaml").write_text(Path("own.yaml").read_text().replace("further: 1", "further: 0"))
    assert seedbus("study", "fewer.yaml", "--quiet").code == Exit.OK
    # the trials that follow the first ones are known now; they may choose other values than those of the finished runs
    assert seedbus("study", "own.yaml", "--dry-run").err.startswith(f"{begins} 9 trials; 2 to 5 to make\n")
    result = seedbus("study", "own.yaml", "--quiet", "--format", "markdown")
    assert result.code == Exit.OK, result.err
    assert (
        "| row | seeds | learning_rate | perturbations | " in result.out and "| fixed | 1 | 0.01 | – | " in result.out
    )
    assert "rows spent different numbers of trials, which favours those with more; 1: fixed; 3: plain; 5: own" in (
        result.out
    )
    trials = pd.read_parquet("studies/small/trials.parquet")
    assert dict(trials.groupby("row").size()) == {"fixed": 1, "own": 5, "plain": 3}
    assert (trials[count].notna() == (trials["row"] == "own")).all() and trials["is_chosen"].sum() == 3
    assert Path(f"studies/small/figures/tuning-{count}.svg").is_file()
    assert seedbus("study", "own.yaml", "--dry-run").err.endswith("; all are there already\n")
    found = json.loads(seedbus("study", "own.yaml", "--quiet", "--format", "json").out, parse_constant=pytest.fail)
    assert [row[count] is None for row in found["rows"]] == [True, False, True]


MISTAKES: list[tuple[dict[str, Any], str]] = [  # others: tests/mistakes/studies.yaml
    ({"ask": {"metric": "los"}}, 'ask.metric: "los" is not measured in decomfl, drop 0.1; did you mean loss?'),
    ({"tune": {"algorithm.momentum": [7]}}, "tune.algorithm.momentum: algorithm.momentum: 7 is not accepted"),
    (
        {"variants": {"a": [], "b": {"tune": {"algorithm.nu": [0.1]}}}},
        "wrong.yaml: base: variants.b.tune.algorithm.nu: algorithm.nu: no such field",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_in_the_file_is_one_sentence_before_anything_is_run(
    seedbus: Command, changes: dict[str, Any], sentence: str
) -> None:
    Path("wrong.yaml").write_text(dump(STUDY | changes))
    result = seedbus("study", "wrong.yaml")
    assert (result.code, result.out, result.err.count("\n")) == (Exit.USAGE, "", 1)
    assert result.err.startswith("seedbus: wrong.yaml: ") and sentence in result.err, result.err
    assert not Path("studies").exists()


def test_the_page_about_studies_names_every_field_and_its_example_is_valid() -> None:
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    fields = [*Study.model_fields, *Ask.model_fields, *(f"tuning.{name}" for name in Tuning.model_fields)]
    assert not [name for name in fields if f"`{name}`" not in page]
    example = ROOT / "examples" / "dropout.yaml"
    assert len(plan_of(example).cells) == 9
    search, conditions = (ROOT / "examples" / f"{name}.yaml" for name in ("search", "conditions"))
    assert len(plan_of(conditions).cells) == 12
    assert plan_of(search).study.is_searched
    assert all(each.read_text(encoding="utf-8").partition("\n")[2] in page for each in (example, search, conditions))


def test_a_base_file_is_looked_for_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.yaml").write_text(dump(BASE))
    (tmp_path / "there" / "study.yaml").write_text("base: mine.yaml\nseeds: [4]\n")
    (cell,) = plan_of(tmp_path / "there" / "study.yaml").cells
    assert (cell.name, cell.scenario.seed) == (BASE["name"], 4)
    assert Store(tmp_path).stored(cell.scenario).folder == tmp_path / "runs" / key(cell.scenario)
    with pytest.raises(ScenarioError, match="there is no such file"):
        plan_of({"base": "mine.yaml"})
