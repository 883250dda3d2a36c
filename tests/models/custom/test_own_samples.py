"""Owners' data sets by a plug-in that the owners' processes have been given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from owners import own_scenario
from plugin_files import SIGNS, forget

from seedbus.models.errors import DataError
from seedbus.plugin import load_plugin
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.prepare import bind, build_of
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.transports.placement import Placement

pytestmark = pytest.mark.usefixtures("no_plugins")
WARDS = SIGNS.with_name("wards.py")
TASK = {"name": "torch", "network": "wards:network", "own": "wards:read", "batch_size": 4}
SIZES = (14, 9)


def fields(**more: Any) -> dict[str, Any]:
    return own_scenario(task=TASK, participation={"clients": 2, "cohort": 2}, **more)


def written(folder: Path) -> Path:
    folder.mkdir()
    for owner, size in enumerate(SIZES):
        values = np.random.default_rng(owner).normal(size=(size, 3)).round(3)
        lines = [" ".join(map(str, [*row, int(row[0] > owner)])) for row in values]
        (folder / f"{owner}.txt").write_text("\n".join(lines) + "\n")
    return folder


def bound(own: Path | str, clients: list[int], **more: Any) -> Any:
    return bind(with_own(load(fields(**more)), str(own), clients, evaluates=False))


def test_owners_data_sets_are_read_by_the_plug_in_of_their_processes(tmp_path: Path) -> None:
    load_plugin(WARDS)
    sent = load(fields()).resolved()
    forget()
    with pytest.raises(ScenarioError, match=r"plugins\.wards: this process has not loaded that plug-in"):
        validate(sent, "the server's")
    load_plugin(WARDS)
    own = written(tmp_path / "owners")
    together, nobody = bound(own / "*", [0, 1]), bound("", [])
    alone = [bound(own / f"{client}.txt", [client]) for client in range(2)]
    scenario = load(fields())
    builds = [build_of(scenario, each) for each in (together, nobody, *alone)]
    assert all(each == builds[0] for each in builds), "owners' data take no part in any proof"
    for client, problem in enumerate(alone):
        for of in (problem, together):
            of.objective(client, 3).point[:] = of.x0()
        assert problem.objective(client, 3).loss(1) == together.objective(client, 3).loss(1)
        assert problem.samples(client) + problem.owned("test")[client].size in (SIZES[client], SIZES[client] - 1)
    placement = Placement("memory", own=str(own / "*"))
    results = run(scenario, tmp_path / "run", placement=placement, page=False)
    assert results.summary["metrics"]["samples"] == sum(round(0.2 * size) for size in SIZES)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 2 3 0\n1 2 3 7\n", "the class 7, and 2 outputs of the network"),
        ("1 2 0\n", r"mine.txt: found items of shapes float32\[2\], int64\[\]; expected those of the made-up samples"),
        ("1 2 3 0\nnan 2 3 1\n", r"item 1 of .*mine.txt: found an input that is not finite"),
        ("", "task.own: "),
    ],
)
def test_a_data_set_that_does_not_fit_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    load_plugin(WARDS)
    (tmp_path / "mine.txt").write_text(text)
    with pytest.raises(DataError, match=sentence):
        bound(tmp_path / "mine.txt", [1])


def test_own_is_in_the_place_of_data() -> None:
    load_plugin(WARDS)
    for change, sentence in (
        ({"task": TASK | {"data": "wards:read"}}, "for `partition: own` `own`"),
        ({"task": TASK | {"labels": "wards:read"}}, "labels is for partitions of common samples"),
        ({"partition": "iid"}, "and task.own: wards:read reads what owners have"),
    ):
        with pytest.raises(ScenarioError, match=sentence):
            load(fields() | change)
