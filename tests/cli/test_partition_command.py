"""`seedbus explain SCENARIO partition`: it shows the data that the run's clients hold, and its figures are correct."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command
from small_data import people_table

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.division import mean_distance, picture
from seedbus.scenarios.reporting.paper import bars_figure
from seedbus.scenarios.reporting.terminal import shown
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.schema.loading import load

DIGITS = ("small.yaml", "--set", "task={name: digits, model: softmax}")
SKEWED = ("--set", "partition={kind: dirichlet, alpha: 0.3, balanced: false}")


def found(seedbus: Command, *arguments: str) -> Any:
    said = seedbus("explain", *DIGITS, "partition", *arguments, "--format", "json")
    assert (said.code, said.err) == (Exit.OK, "")
    return json.loads(said.out)


@pytest.mark.parametrize("kind", ["{kind: pathological, classes: 3}", "{kind: dirichlet, alpha: 0.5}", "{kind: iid}"])
def test_it_shows_what_the_clients_of_the_run_hold(seedbus: Command, kind: str) -> None:
    shown = found(seedbus, "--set", f"partition={kind}")
    problem: Any = bind(load("small.yaml", [DIGITS[2], f"partition={kind}"]))
    labels = problem.splits["train"].labels
    assert shown["counts"] == [np.bincount(labels[part], minlength=10).tolist() for part in problem.parts]
    assert shown["samples"] == shown["held"] == labels.size == 1350


def test_a_task_on_text_is_divided_without_its_weights(seedbus: Command, tmp_path: Path) -> None:
    lines = "".join(f"a film number {number}\t{number % 2}\n" for number in range(40))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("sentence\tlabel\n" + lines)
    task = f"task={{name: sentence-encoder, dataset: sst2, data: {tmp_path}, validation: 0}}"
    said = seedbus("explain", "small.yaml", "partition", "--set", task, "--format", "json")
    assert said.code == Exit.OK, said.err
    assert np.sum(json.loads(said.out)["counts"], axis=0).tolist() == [20, 20]


@pytest.mark.parametrize("task", [DIGITS[2], "task={name: table, file: people.csv, target: city, owner: person}"])
@pytest.mark.parametrize("kind", ["{kind: dirichlet, alpha: 0.5}", "{kind: natural}"])
def test_its_csv_is_the_file_by_which_a_run_has_the_same_clients(
    seedbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, kind: str
) -> None:
    if "digits" in task and "natural" in kind:
        return  # nobody owns these
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    people_table(tmp_path / "people.csv")
    settings = [task, f"partition={kind}", "participation={clients: 3}"]
    sets = [argument for each in settings for argument in ("--set", each)]
    said = seedbus("explain", "small.yaml", "partition", *sets, "--format", "csv")
    assert said.code == Exit.OK, said.err
    assert ("nobody trains on" in said.err) == ("natural" in kind)
    (tmp_path / "f.csv").write_text(said.out)
    drawn, by_file = (
        bind(load("small.yaml", [*settings, *more])) for more in ([], ["partition={kind: file, file: f.csv}"])
    )
    assert [part.tolist() for part in by_file.parts] == [part.tolist() for part in drawn.parts]  # type: ignore[attr-defined]
    again = seedbus(
        "explain", "small.yaml", "partition", *sets, "--set", "partition={kind: file, file: f.csv}", "--format", "csv"
    )
    assert (again.code, again.out) == (Exit.OK, said.out)


def test_a_division_with_a_seed_of_its_own_is_the_same_in_runs_of_other_seeds(seedbus: Command, tmp_path: Path) -> None:
    ends = {}
    for own, seed in (("null", 4), ("4", 4), ("4", 5)):
        sets = ("--set", f"partition={{kind: dirichlet, alpha: 0.3, seed: {own}}}", "--set", f"seed={seed}")
        csv = seedbus("explain", *DIGITS, "partition", *sets, "--format", "csv").out
        run = seedbus("run", *DIGITS, *sets, "-q", "--out", str(tmp_path / f"{own}-{seed}"), "--format", "json")
        ends[own, seed] = csv, json.loads(run.out)["digest"]
    assert ends["null", 4] == ends["4", 4]
    assert ends["4", 5][0] == ends["4", 4][0] and ends["4", 5][1] != ends["4", 4][1]
    said = seedbus("explain", *DIGITS, "partition", "--set", "partition={kind: dirichlet, alpha: 0.3, seed: 4}").out
    assert said.startswith(
        "small: dirichlet, alpha 0.3, balanced True, prior uniform, 8 clients, the partition's own s"
    )
    refused = seedbus("explain", *DIGITS, "partition", "--set", "partition={kind: file, file: f.csv, seed: 4}")
    assert refused.code == Exit.USAGE and "partition.seed: 4 is not accepted; a file says who holds" in refused.err


@pytest.mark.parametrize("command", ["run -q", "explain fields", "explain --seconds 0", "explain partition"])
def test_rows_of_owners_that_are_no_clients_are_counted_wherever_a_scenario_is_told_of(
    seedbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    people_table(tmp_path / "people.csv")
    task = "task={name: table, file: people.csv, target: city, owner: person, validation: 0}"
    for clients, owners in ((2, "2 of 5"), (5, "")):
        sets = ("--set", task, "--set", "partition=natural", "--set", f"participation={{clients: {clients}}}")
        first, *rest = command.split()
        said = seedbus(first, "small.yaml", *rest, *sets)
        words = " ".join(re.sub("[│┌┐└┘─]", " ", said.out + said.err).split())
        told = re.findall(r"partition natural: (\d of \d) owners are clients, so nobody trains on (\d+) of 38", words)
        held = load("small.yaml", [task, "partition=natural", f"participation={{clients: {clients}}}"])
        parts = bind(held).parts  # type: ignore[attr-defined]
        assert told == ([(owners, str(38 - sum(part.size for part in parts)))] if owners else []), words


def test_the_distance_is_half_the_sum_of_differences_of_shares() -> None:
    apart, alike = np.array([[6, 0], [0, 2]]), np.array([[3, 6], [1, 2], [10, 20]])
    assert mean_distance(apart) == pytest.approx((0.25 + 0.75) / 2) and mean_distance(alike) == pytest.approx(0)


def test_equal_parts_are_as_far_from_the_whole_as_chance_and_few_classes_farther(seedbus: Command) -> None:
    iid = found(seedbus, "--set", "partition={kind: iid}")["total_variation"]
    few = found(seedbus, "--set", "partition={kind: pathological, classes: 2}")["total_variation"]
    assert iid["mean"] == pytest.approx(iid["by_chance"], rel=0.3) and few["mean"] > 0.75 > 0.2 > few["by_chance"]


def test_the_table_ends_after_twenty_clients_and_sums_up_all(seedbus: Command) -> None:
    said = seedbus("explain", *DIGITS, "partition", *SKEWED, "--set", "participation={clients: 25, cohort: 5}")
    rows = re.findall(r"^│ +(\d+|…|all) │ +([\d,]*) │", said.out, re.MULTILINE)
    assert [name for name, _ in rows] == [*map(str, range(20)), "…", "all"] and rows[-1][1] == "1,350"
    assert re.search(r"samples held +│ 1,350 of 1,350 training samples", said.out)
    assert "(total variation, mean)" in said.out and said.err == ""


def test_the_drawing_stacks_the_classes_of_each_client_to_scale(seedbus: Command) -> None:
    counts = np.array(found(seedbus, *SKEWED, "--out", "parts.svg")["counts"])
    texts = {each.text for each in Xml.parse("parts.svg").getroot().iter("{http://www.w3.org/2000/svg}text")}
    assert {"client", "training samples", *map(str, range(counts.shape[1]))} <= texts
    names = [str(number) for number in range(counts.shape[1])]
    axes = bars_figure("t", "client", "samples", counts, names).axes[0]
    heights = np.array([[bar.get_height() for bar in bars] for bars in axes.containers])
    bottoms = np.array([[bar.get_y() for bar in bars] for bars in axes.containers])
    assert (heights.T == counts).all() and (bottoms + heights).max() == counts.sum(axis=1).max()
    assert (bottoms[1:] == np.cumsum(heights, axis=0)[:-1]).all()


@pytest.mark.parametrize(
    "labels", [["airplane", "automobile", "bird"] * 9, list(range(100)), ["\x01\n\ud800", "b" * 500]]
)
def test_the_names_of_classes_fit_into_the_drawing_and_are_safe(labels: list[Any]) -> None:
    whole = {"scenario": "a", "partition": {"kind": "iid"}, "seed": 1, "labels": labels, "counts": [[1] * len(labels)]}
    texts = [each.text or "" for each in Xml.fromstring(picture(whole)).iter("{http://www.w3.org/2000/svg}text")]
    names = [shown(str(label), 60) for label in labels]
    assert all(name in texts for name in names)
    figure = bars_figure("t", "x", "y", np.array(whole["counts"]), names)
    figure.canvas.draw()
    (legend,) = figure.legends
    box, size = legend.get_window_extent(), figure.bbox
    assert 0 <= box.x0 < box.x1 <= size.x1 and 0 <= box.y0 < box.y1 < size.y1 / 2 + 50 * len(labels)
