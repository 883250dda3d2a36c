"""`seedbus partition`: it shows the data that the run's clients hold, and its figures are correct."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.division import mean_distance, picture
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.schema.loading import load

DIGITS = ("small.yaml", "--set", "task={name: digits, model: softmax}")
SKEWED = ("--set", "partition={kind: dirichlet, alpha: 0.3, balanced: false}")


def found(seedbus: Command, *arguments: str) -> Any:
    said = seedbus("partition", *DIGITS, *arguments, "--format", "json")
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
    said = seedbus("partition", "small.yaml", "--set", task, "--format", "json")
    assert said.code == Exit.OK, said.err
    assert np.sum(json.loads(said.out)["counts"], axis=0).tolist() == [20, 20]


def test_the_distance_is_half_the_sum_of_differences_of_shares() -> None:
    apart, alike = np.array([[6, 0], [0, 2]]), np.array([[3, 6], [1, 2], [10, 20]])
    assert mean_distance(apart) == pytest.approx((0.25 + 0.75) / 2) and mean_distance(alike) == pytest.approx(0)


def test_equal_parts_are_as_far_from_the_whole_as_chance_and_few_classes_farther(seedbus: Command) -> None:
    iid = found(seedbus, "--set", "partition={kind: iid}")["total_variation"]
    few = found(seedbus, "--set", "partition={kind: pathological, classes: 2}")["total_variation"]
    assert iid["mean"] == pytest.approx(iid["by_chance"], rel=0.3) and few["mean"] > 0.75 > 0.2 > few["by_chance"]


def test_the_table_ends_after_twenty_clients_and_sums_up_all(seedbus: Command) -> None:
    said = seedbus("partition", *DIGITS, *SKEWED, "--set", "participation={clients: 25, cohort: 5}")
    rows = re.findall(r"^│ +(\d+|…|all) │ +([\d,]*) │", said.out, re.MULTILINE)
    assert [name for name, _ in rows] == [*map(str, range(20)), "…", "all"] and rows[-1][1] == "1,350"
    assert re.search(r"samples held +│ 1,350 of 1,350 training samples", said.out)
    assert "(total variation, mean)" in said.out and said.err == ""


def test_the_drawing_stacks_the_classes_of_each_client_to_scale(seedbus: Command) -> None:
    counts = found(seedbus, *SKEWED, "--svg", "parts.svg")["counts"]
    root = Xml.parse("parts.svg").getroot()
    bars = [each for each in root if each.get("class") == "bar"]
    drawn = {str(bar[0].text): float(bar.get("height", "")) for bar in bars}
    scale = drawn[f"client 0, {np.argmax(counts[0])}: {max(counts[0])}"] / max(counts[0])
    for client, row in enumerate(counts):
        for label, count in enumerate(row):
            height = drawn.get(f"client {client}, {label}: {count}", 0.0)
            assert height == pytest.approx(scale * count, abs=0.02)
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    for bar in bars:
        x, y, wide, high = (float(bar.get(name, "")) for name in ("x", "y", "width", "height"))
        assert 0 <= x < x + wide <= width and 0 <= y < y + high <= height


@pytest.mark.parametrize(
    "labels", [["airplane", "automobile", "bird"] * 9, list(range(100)), ["\x01\n\ud800", "b" * 500]]
)
def test_the_names_of_classes_do_not_overlap_in_the_legend_and_are_safe(labels: list[Any]) -> None:
    whole = {"scenario": "a", "partition": {"kind": "iid"}, "seed": 1, "labels": labels, "counts": [[1] * len(labels)]}
    root = Xml.fromstring(picture(whole).encode())
    names = [each for each in root if each.tag.endswith("text")][-len(labels) :]
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    ends: dict[str, float] = {}
    for name in names:
        x, y = float(name.get("x", "")), name.get("y", "")
        assert x > ends.get(y, 0.0) and float(y) < height
        ends[y] = x + 6 * len(str(name.text))  # of a character in this font, on average
        assert ends[y] <= width


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("small.yaml",), Exit.DATA, r"task quadratic: found no samples that could be divided; expected a task with"),
        ((*DIGITS, "--set", "partition={kind: pathological, classes: 11}"), Exit.DATA, r".*classes: 11 and 10 classes"),
        (
            (*DIGITS, "--set", "partition={kind: file, file: no.csv}"),
            Exit.DATA,
            r"partition.file: found no file no.csv",
        ),
        ((*DIGITS, "--svg", "no/where.svg"), Exit.FOLDER, r"no/where.svg: it cannot be written \(No such file"),
        ((*DIGITS, "--svg", ""), Exit.USAGE, r"--svg .*: it names no file; expected one like partition.svg"),
    ],
)
def test_a_mistake_is_one_sentence(seedbus: Command, arguments: tuple[str, ...], code: Exit, sentence: str) -> None:
    said = seedbus("partition", *arguments)
    assert (said.code, said.out) == (code, "")
    assert re.match(rf"seedbus: {sentence}", said.err) and said.err.count("\n") == 1, said.err
