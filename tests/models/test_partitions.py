"""The contract of every partition: each sample to exactly one client, nobody empty, a function of the seed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from seedbus.models import DataError, Dirichlet, Iid, Natural, Partition, Shards
from seedbus.models.partitions import divide

BALANCED = [
    Iid(),
    Dirichlet(alpha=0.3),
    Dirichlet(alpha=1.0, prior="class"),
    Dirichlet(alpha=1e-300),
    Dirichlet(alpha=1e9),
]
UNBALANCED = [Dirichlet(alpha=1.0, balanced=False), Dirichlet(alpha=3.0, balanced=False, prior="class")]
KINDS = [*BALANCED, *UNBALANCED, Shards(), Shards(shards_per_client=1)]
adapter: TypeAdapter[Any] = TypeAdapter(Partition)

label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=120).map(np.array)


@pytest.mark.parametrize("partition", KINDS, ids=repr)
@settings(deadline=None, max_examples=40)
@given(labels=label_lists, clients=st.integers(1, 12), seed=st.integers(0, 2**64 - 1))
def test_every_sample_goes_to_exactly_one_client_and_nobody_is_empty(
    partition: Any, labels: Any, clients: int, seed: int
) -> None:
    try:
        parts = partition.split(labels, clients, seed)
    except DataError:
        places = clients * getattr(partition, "shards_per_client", 1)
        assert places > labels.size or partition in UNBALANCED, "only these may be refused"
        return
    assert len(parts) == clients and all(part.size and part.dtype == np.int64 for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(labels.size))


@pytest.mark.parametrize("partition", BALANCED, ids=repr)
@settings(deadline=None, max_examples=40)
@given(labels=label_lists, clients=st.integers(1, 12), seed=st.integers(0, 9))
def test_balanced_sizes_differ_by_one_at_most_even_when_classes_run_out(
    partition: Any, labels: Any, clients: int, seed: int
) -> None:
    clients = min(clients, labels.size)
    sizes = [part.size for part in partition.split(labels, clients, seed)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("partition", KINDS, ids=repr)
def test_the_seed_alone_decides_who_holds_what(partition: Any) -> None:
    labels = np.arange(2_000) % 10
    first, again, other = (partition.split(labels, 8, seed) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("partition", KINDS, ids=repr)
@pytest.mark.parametrize("clients", [0, 11])
def test_more_clients_than_samples_or_none_is_refused(partition: Any, clients: int) -> None:
    with pytest.raises(DataError, match=f"{clients} clients.* 10 training samples; expected one client at least"):
        partition.split(np.arange(10), clients, 0)


def test_a_small_alpha_gives_few_classes_and_a_large_alpha_all() -> None:
    labels = np.arange(10_000) % 10

    def classes_held(alpha: float, prior: Any = "uniform") -> float:
        parts = Dirichlet(alpha=alpha, prior=prior).split(labels, 50, 0)
        return float(np.mean([np.unique(labels[part]).size for part in parts]))

    assert classes_held(0.05) < 5 < 9.9 < classes_held(100.0)
    assert classes_held(1.0, prior="class") < classes_held(1.0) - 2, "on ten even classes, α = 1 is the other's 0.1"
    assert classes_held(1.0, prior="class") == classes_held(0.1)


def test_balanced_mixtures_have_the_variance_of_their_dirichlet() -> None:
    labels = np.arange(100_000) % 10
    parts = Dirichlet(alpha=2.0).split(labels, 100, 0)
    shares = np.stack([np.bincount(labels[part], minlength=10) / part.size for part in parts])
    assert shares.mean() == pytest.approx(0.1)
    # Dir(α·1) over c classes has variance (c − 1) / (c² (cα + 1)); classes that run out take a little off
    assert shares.var() == pytest.approx(9 / (100 * 21), rel=0.2)


def test_an_unbalanced_partition_names_the_clients_it_leaves_empty() -> None:
    with pytest.raises(DataError, match=r"no samples for clients \d+, .* of 50 at alpha 0.001.*larger alpha"):
        Dirichlet(alpha=0.001, balanced=False).split(np.arange(500) % 10, 50, 0)


def test_a_client_with_two_shards_holds_two_labels_and_few_clients_more() -> None:
    labels = np.random.Generator(np.random.Philox(0)).permutation(np.arange(6_000) % 10)
    parts = Shards().split(labels, 100, 0)
    assert {part.size for part in parts} == {60}
    assert max(np.unique(labels[part]).size for part in parts) == 2


owner_lists = st.lists(st.integers(0, 9), min_size=1, max_size=60).map(np.array)


@settings(deadline=None, max_examples=60)
@given(owners=owner_lists, clients=st.integers(1, 12), seed=st.integers(0, 2**64 - 1))
def test_a_client_is_one_person_with_all_their_samples(owners: Any, clients: int, seed: int) -> None:
    people = np.unique(owners)
    if clients > people.size:
        with pytest.raises(DataError, match=f"{clients} clients and {people.size} people with training samples"):
            Natural().split(owners, clients, seed)
        return
    parts = Natural().split(owners, clients, seed)
    held = [int(owners[part[0]]) for part in parts]
    assert held == sorted(set(held)), "each another, in the order of the data set"
    for person, part in zip(held, parts, strict=True):
        assert np.array_equal(part, np.flatnonzero(owners == person))


def test_the_seed_draws_who_takes_part_among_more_people_than_clients() -> None:
    owners = np.arange(40) % 20

    def people(seed: int) -> set[int]:
        return {int(owners[part[0]]) for part in Natural().split(owners, 5, seed)}

    assert people(1) == people(1)
    assert len(set.union(*map(people, range(30)))) == 20, "everybody has a chance"


def test_samples_that_are_nobodys_cannot_be_divided_by_person() -> None:
    with pytest.raises(DataError, match="partition natural: found samples that are nobody's; expected kind: iid"):
        divide(Natural(), np.arange(10), None, 2, 0)
    with pytest.raises(DataError, match="0 clients and 10 people"):
        divide(Natural(), np.arange(10), np.arange(10), 0, 0)
    labels, owners = np.arange(10), np.zeros(10, dtype=np.int64)
    assert len(divide(Iid(), labels, owners, 4, 0)) == 4, "other kinds divide by label, whoever the owners are"


def test_one_sample_and_one_client_is_enough() -> None:
    partitions: list[Any] = [*BALANCED, *UNBALANCED]
    for partition in partitions:
        assert [part.tolist() for part in partition.split(np.array([3]), 1, 0)] == [[0]]


def test_kind_chooses_the_partition_and_unknown_words_are_refused() -> None:
    assert adapter.validate_python({"kind": "dirichlet", "alpha": 0.3}) == Dirichlet(alpha=0.3)
    for wrong in ({"kind": "iid", "alpha": 1}, {"kind": "dirichlet", "alpha": 0}, {"kind": "nature"}, {}):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_a_division_is_what_it_was_in_earlier_versions() -> None:
    parts = Dirichlet(alpha=0.5).split(np.arange(12) % 3, 3, seed=1)
    assert [part.tolist() for part in parts] == [[2, 5, 8, 9], [1, 3, 4, 6], [0, 7, 10, 11]]
