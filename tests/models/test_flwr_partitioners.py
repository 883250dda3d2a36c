"""Flower's partitioners divide for us; where their definitions are ours, our divisions must agree with theirs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp
from small_data import people_table
from worlds import DECOMFL, outcome, scenario

from seedbus.agents.client.worker import prove
from seedbus.models import DataError, Dirichlet, Natural, Pathological, Shards
from seedbus.models.partition import Divisible, divide
from seedbus.models.partitions.flwr import Flwr
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

LABELS = np.random.Generator(np.random.Philox(0)).permutation(np.arange(6_000) % 10)


@pytest.fixture
def installed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that it imports
        pytest.importorskip("flwr_datasets", reason="flwr-datasets is not installed: pip install seedbus[flwr]")


def flwr(partitioner: str, **arguments: Any) -> Flwr:
    return Flwr.model_validate({"partitioner": f"{partitioner}Partitioner", **arguments})


def table(partition: Any, clients: int, seed: int) -> Any:
    """Return the number of samples of each client and class, `[clients, 10]`."""
    parts = divide(partition, Divisible(LABELS, np.arange(LABELS.size)), clients, seed)
    return np.stack([np.bincount(LABELS[part], minlength=10) for part in parts])


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_the_clients_shares_of_a_class_have_the_distribution_of_flowers_dirichlet(alpha: float) -> None:
    theirs = np.stack([table(flwr("Dirichlet", alpha=alpha, min_partition_size=1), 10, seed) for seed in range(12)])
    ours = np.stack([table(Dirichlet(alpha=alpha, balanced=False), 10, seed) for seed in range(12)])
    other = np.stack([table(Dirichlet(alpha=3 * alpha, balanced=False), 10, seed) for seed in range(12)])
    assert ks_2samp(ours.ravel(), theirs.ravel()).pvalue > 0.01
    assert ks_2samp(other.ravel(), theirs.ravel()).pvalue < 1e-4, "the comparison tells thrice the concentration apart"


@pytest.mark.usefixtures("installed")
def test_shards_are_flowers_shards() -> None:
    kinds = (Shards(shards_per_client=2), flwr("Shard", num_shards_per_partition=2))
    ours, theirs = ([table(kind, 10, seed) for seed in range(30)] for kind in kinds)
    for tables in (ours, theirs):
        assert all(set(np.unique(each)) <= {0, 300, 600} and (each.sum(axis=1) == 600).all() for each in tables)
        alone = np.mean([(each == 600).sum() for each in tables])  # clients with two shards of one class
        assert alone == pytest.approx(10 / 19, abs=0.35), "of 19 other shards one is of the same class"


@pytest.mark.usefixtures("installed")
def test_a_pathological_division_has_flowers_sizes() -> None:
    theirs = table(flwr("Pathological", num_classes_per_partition=2, class_assignment_mode="deterministic"), 10, 1)
    ours = table(Pathological(classes=2), 10, 1)
    assert np.array_equal(np.sort(ours, axis=0), np.sort(theirs, axis=0))
    assert np.array_equal(np.sort(ours, axis=1), np.sort(theirs, axis=1))


@pytest.mark.usefixtures("installed")
def test_natural_clients_are_flowers_natural_ids() -> None:
    samples = Divisible(LABELS, np.arange(LABELS.size), owners=LABELS * 7 % 10)
    ours = divide(Natural(), samples, 10, 1)
    theirs = divide(flwr("NaturalId", partition_by="owner"), samples, 10, 1)
    assert {part.tobytes() for part in ours} == {part.tobytes() for part in theirs}


@pytest.mark.usefixtures("installed")
@pytest.mark.usefixtures("warm_workers")
def test_a_run_is_divided_by_flower_in_every_process_which_proves_it(tmp_path: Path) -> None:
    people_table(tmp_path / "people.csv")

    def world(**partition: Any) -> Any:
        return scenario(
            task={"name": "table", "file": str(tmp_path / "people.csv"), "target": "city", "hidden": []},
            partition={"kind": "flwr", **partition},
            algorithm=DECOMFL,
            participation={"clients": 3, "cohort": 2},
            stop={"rounds": 3},
        )

    by_age = world(partitioner="ContinuousPartitioner", partition_by="age", strictness=0.9)
    assert outcome(run(by_age, tmp_path / "shared", placement=Placement("ipc", 2))) == outcome(
        run(by_age, tmp_path / "run")
    )
    assert by_age.resolved()["partition"]["strictness"] == 0.9
    sizes = [world(partitioner="SizePartitioner", partition_sizes=sizes) for sizes in ([9, 9, 9], [9, 9, 8])]
    first, other = (prove(each.algorithm, bind(each))["x0"] for each in sizes)
    assert first != other


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "Dirichlet": (
        {"alpha": 1, "beta": 2},
        r"partition.beta: found no such argument of Dirichlet.*; expected .*: alpha, m",
    ),
    "Shard": ({"num_partitions": 3}, r"partition.num_partitions: found no such argument of ShardPartitioner"),
    "Pathological": (
        {},
        r"PathologicalPartitioner: found TypeError: .*missing.*num_classes_per_partition'; expected oth",
    ),
    "NaturalId": ({}, r"NaturalIdPartitioner: found 10 partitions; expected 7, one for each client$"),
    "Size": (
        {"partition_sizes": [9] * 6 + [0]},
        r"SizePartitioner: found ValueError: All partition sizes must be greater",
    ),
    "Continuous": ({"partition_by": "age", "strictness": 1}, r"partition_by: found age, which the samples do not have"),
    "VerticalEven": ({}, r"partition.partitioner: found VerticalEvenPartitioner; expected one of Continuous"),
    "Zipf": ({}, r"partition.partitioner: found ZipfPartitioner; expected one of ContinuousPartitioner, DirichletP"),
}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("name", "fields", "sentence"), [(name, *case) for name, case in MISTAKES.items()])
def test_what_a_partitioner_cannot_do_is_one_sentence(name: str, fields: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as raised:
        table(flwr(name, **fields), 7, 1)
    assert "\n" not in str(raised.value)


def test_without_the_package_the_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(DataError, match=r'found no package flwr-datasets; expected pip install "seedbus\[flwr\]"$'):
        table(flwr("Iid"), 7, 1)
