"""The contract of partitions: each sample has exactly one client, no client is empty, the seed alone decides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from promised import keep
from pydantic import TypeAdapter, ValidationError

from seedbus.discovery import PluginError
from seedbus.models import DataError, Dirichlet, File, Iid, Natural, Pathological, Quantity, Shards
from seedbus.models.partition import PARTITIONS, Divisible, Partition, client_names, digest, divide
from seedbus.models.partitions.by_column import ByColumn
from seedbus.studies.check.partition import CONTRACT, is_a_division

BALANCED = [
    Iid(),
    Dirichlet(alpha=0.3),
    Dirichlet(alpha=1.0, prior="class"),
    Dirichlet(alpha=1e-300),
    Dirichlet(alpha=1e9),
]
UNBALANCED = [Dirichlet(alpha=1.0, balanced=False), Dirichlet(alpha=3.0, balanced=False, prior="class")]
KINDS = [
    *BALANCED,
    *UNBALANCED,
    Shards(),
    Shards(shards_per_client=1),
    Pathological(),
    Pathological(classes=3),
    Quantity(beta=0.5),
    Quantity(beta=1e-300, minimum=2),
    Quantity(beta=1e9),
]
adapter: TypeAdapter[Any] = TypeAdapter(Annotated[Partition, PARTITIONS])

label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=120).map(np.array)


@pytest.mark.few(5)
@pytest.mark.parametrize("partition", KINDS, ids=repr)
@settings(max_examples=40)
@given(labels=label_lists, clients=st.integers(1, 12), seed=st.integers(0, 2**64 - 1))
def test_every_sample_goes_to_exactly_one_client_and_nobody_is_empty(
    partition: Any, labels: Any, clients: int, seed: int
) -> None:
    if not is_a_division(partition, labels, clients, seed):
        places = clients * getattr(partition, "shards_per_client", getattr(partition, "minimum", 1))
        by_class = isinstance(partition, Pathological)
        assert places > labels.size or partition in UNBALANCED or by_class, "only these may be refused"


@pytest.mark.parametrize("partition", KINDS, ids=repr)
def test_a_partition_keeps_its_promises(partition: Any) -> None:
    keep(repr(partition), CONTRACT, partition)


@pytest.mark.parametrize("partition", BALANCED, ids=repr)
@settings(max_examples=40)
@given(labels=label_lists, clients=st.integers(1, 12), seed=st.integers(0, 9))
def test_balanced_sizes_differ_by_one_at_most_even_when_classes_run_out(
    partition: Any, labels: Any, clients: int, seed: int
) -> None:
    clients = min(clients, labels.size)
    sizes = [part.size for part in partition.split(labels, clients, seed)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("partition", KINDS, ids=repr)
def test_another_seed_gives_another_division(partition: Any) -> None:
    labels = np.arange(2_000) % 10
    first, other = (partition.split(labels, 8, seed) for seed in (5, 6))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("partition", KINDS, ids=repr)
@pytest.mark.parametrize("clients", [0, 11])
def test_more_clients_than_samples_or_none_is_refused_in_one_sentence(partition: Any, clients: int) -> None:
    with pytest.raises(DataError, match=f"{clients} clients.* 10 training samples; expected one client at least"):
        partition.split(np.arange(10), clients, 0)


@pytest.mark.parametrize("partition", [*KINDS, Natural()], ids=repr)
def test_a_seed_of_its_own_draws_the_division_whatever_the_seed_of_the_run_is(partition: Any) -> None:
    samples = Divisible(np.arange(200) % 10, np.arange(200), np.arange(200) % 20)
    own = partition.model_copy(update={"seed": 5})
    divided = [digest(divide(own, samples, 8, seed)) for seed in (1, 2)]
    assert {*divided} == {digest(divide(partition, samples, 8, 5))} != {digest(divide(partition, samples, 8, 1))}


def test_a_file_draws_nothing_so_it_takes_no_seed_and_a_partitioner_of_flwr_takes_it_as_its_argument() -> None:
    with pytest.raises(ValidationError, match="a file says who holds what, and nothing is drawn; expected no seed"):
        adapter.validate_python({"kind": "file", "file": "f.csv", "seed": 3})
    flwr = {"kind": "flwr", "partitioner": "DirichletPartitioner", "alpha": 1.0}
    assert adapter.validate_python(flwr | {"seed": 3}).arguments == {"alpha": 1.0, "seed": 3}
    assert adapter.validate_python(flwr).arguments == {"alpha": 1.0}


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
    # Dir(α·1) over c classes has variance (c − 1) / (c² (cα + 1)); exhausted classes reduce it slightly
    assert shares.var() == pytest.approx(9 / (100 * 21), rel=0.2)


def test_a_partition_of_ones_own_that_leaves_a_client_empty_is_named() -> None:
    class Greedy(Iid, frozen=True):
        def split(self, labels: Any, clients: int, seed: int) -> Any:
            return [np.arange(labels.size), *[np.zeros(0, np.int64)] * (clients - 1)]

    samples = Divisible(np.zeros(6, np.int64), np.arange(6))
    assert len(divide(Greedy(), samples, 1, 0)) == 1
    with pytest.raises(PluginError, match="the partition iid gave client 1 no samples; expected one at least"):
        divide(Greedy(), samples, 3, 0)


def test_an_unbalanced_partition_names_the_clients_it_leaves_empty() -> None:
    with pytest.raises(DataError, match=r"no samples for clients \d+, .* of 50 at alpha 0.001.*larger alpha"):
        Dirichlet(alpha=0.001, balanced=False).split(np.arange(500) % 10, 50, 0)


def test_a_client_with_two_shards_holds_two_labels_and_few_clients_more() -> None:
    labels = np.random.Generator(np.random.Philox(0)).permutation(np.arange(6_000) % 10)
    parts = Shards().split(labels, 100, 0)
    assert {part.size for part in parts} == {60}
    assert max(np.unique(labels[part]).size for part in parts) == 2


owner_lists = st.lists(st.integers(0, 9), min_size=1, max_size=60).map(np.array)


@settings(max_examples=60)
@given(owners=owner_lists, clients=st.integers(1, 12), seed=st.integers(0, 2**64 - 1))
def test_a_client_is_one_person_with_all_their_samples(owners: Any, clients: int, seed: int) -> None:
    people = np.unique(owners)
    if clients > people.size:
        noun = "person" if people.size == 1 else "people"
        with pytest.raises(DataError, match=f"{clients} clients and {people.size} {noun} with training samples"):
            Natural().split(owners, clients, seed)
        return
    parts = Natural().split(owners, clients, seed)
    held = [int(owners[part[0]]) for part in parts]
    assert held == sorted(set(held)), "each another, in the order of the data set"
    for person, part in zip(held, parts, strict=True):
        assert np.array_equal(part, np.flatnonzero(owners == person))


@pytest.mark.parametrize(
    ("partition", "owners", "found"),
    [
        (Natural(), np.zeros(4, np.int64), "3 clients and 1 person with training samples; expected 1 client, "),
        (
            ByColumn(column="site"),
            np.array(["a", "b"], object),
            "3 clients and 2 values of site in the training samples; expected 1 to 2 clients, ",
        ),
    ],
)
def test_a_process_with_the_samples_of_few_clients_is_told_that_it_needs_those_of_all(
    partition: Any, owners: Any, found: str
) -> None:
    with pytest.raises(DataError) as refused:
        partition.split(owners, 3, 0)
    assert f"found {found}or more data: every process of a run needs the samples of all clients" in str(refused.value)


def test_the_seed_draws_who_takes_part_among_more_people_than_clients() -> None:
    owners = np.arange(40) % 20

    def people(seed: int) -> set[int]:
        return {int(owners[part[0]]) for part in Natural().split(owners, 5, seed)}

    assert people(1) == people(1)
    assert len(set.union(*map(people, range(30)))) == 20, "everybody has a chance"


def test_samples_that_are_nobodys_cannot_be_divided_by_person() -> None:
    with pytest.raises(
        DataError,
        match="partition natural: found samples that are nobody's; expected kind: dirichlet, file, flwr, iid, ",
    ):
        divide(Natural(), Divisible(np.arange(10), np.arange(10)), 2, 0)
    with pytest.raises(DataError, match="0 clients and 10 people"):
        divide(Natural(), Divisible(np.arange(10), np.arange(10), np.arange(10)), 0, 0)
    samples = Divisible(np.arange(10), np.arange(10), np.zeros(10, dtype=np.int64))
    assert len(divide(Iid(), samples, 4, 0)) == 4, "other kinds divide by label, whoever the owners are"


def test_one_sample_and_one_client_is_enough() -> None:
    partitions: list[Any] = [*BALANCED, *UNBALANCED]
    for partition in partitions:
        assert [part.tolist() for part in partition.split(np.array([3]), 1, 0)] == [[0]]


def test_kind_chooses_the_partition_and_unknown_words_are_refused() -> None:
    assert adapter.validate_python({"kind": "dirichlet", "alpha": 0.3}) == Dirichlet(alpha=0.3)
    assert {type(each).model_fields["kind"].default for each in KINDS} | {
        "by-column",
        "flwr",
        "file",
        "natural",
        "own",
    } == PARTITIONS.all().keys()
    for wrong in ({"kind": "iid", "alpha": 1}, {"kind": "dirichlet", "alpha": 0}, {"kind": "nature"}, {}):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_a_division_is_what_it_was_in_earlier_versions() -> None:
    parts = Dirichlet(alpha=0.5).split(np.arange(12) % 3, 3, seed=1)
    assert [part.tolist() for part in parts] == [[2, 5, 8, 9], [1, 3, 4, 6], [0, 7, 10, 11]]
    labels = np.repeat(np.arange(5), [30, 17, 13, 11, 9])
    assert {repr(each): digest(each.split(labels, 6, seed=8)).hex()[:8] for each in KINDS} == DIVISIONS


DIVISIONS = {
    "Iid(kind='iid')": "c6974e05",
    "Dirichlet(kind='dirichlet', alpha=0.3, balanced=True, prior='uniform')": "db3c9fe4",
    "Dirichlet(kind='dirichlet', alpha=1.0, balanced=True, prior='class')": "20321a7b",
    "Dirichlet(kind='dirichlet', alpha=1e-300, balanced=True, prior='uniform')": "ca17d0d7",
    "Dirichlet(kind='dirichlet', alpha=1000000000.0, balanced=True, prior='uniform')": "c1ecbc31",
    "Dirichlet(kind='dirichlet', alpha=1.0, balanced=False, prior='uniform')": "7318c928",
    "Dirichlet(kind='dirichlet', alpha=3.0, balanced=False, prior='class')": "6cbd6f41",
    "Shards(kind='shards', shards_per_client=2)": "3a28ed19",
    "Shards(kind='shards', shards_per_client=1)": "5ec7cad7",
    "Pathological(kind='pathological', classes=2)": "9b9e3d42",
    "Pathological(kind='pathological', classes=3)": "55ace95b",
    "Quantity(kind='quantity', beta=0.5, minimum=1)": "eafd73f5",
    "Quantity(kind='quantity', beta=1e-300, minimum=2)": "13376687",
    "Quantity(kind='quantity', beta=1000000000.0, minimum=1)": "7d3eb347",
}


@settings(max_examples=60)
@given(
    totals=st.lists(st.integers(12, 40), min_size=1, max_size=6),
    clients=st.integers(1, 12),
    classes=st.integers(1, 7),
    seed=st.integers(0, 9),
)
def test_a_pathological_client_holds_so_many_classes_and_each_class_has_equally_many_clients(
    totals: Any, clients: int, classes: int, seed: int
) -> None:
    labels = np.repeat(np.arange(len(totals)) * 7, totals)
    partition = Pathological(classes=classes)
    if classes > len(totals):
        with pytest.raises(DataError, match=f"classes: {classes} and {len(totals)} classes.*; expected at most"):
            partition.split(labels, clients, seed)
        return
    if clients * classes < len(totals):
        with pytest.raises(DataError, match=f"{clients} clients with {classes} classes each, and {len(totals)} cl"):
            partition.split(labels, clients, seed)
        return
    counts = table(labels, partition.split(labels, clients, seed))
    assert ((counts > 0).sum(axis=1) == classes).all()
    holders = (counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    for column in counts.T:
        assert np.ptp(column[column > 0]) <= 1, "its samples are divided equally among them"


def table(labels: Any, parts: Any) -> Any:
    """Return the number of samples of each client and class, `[clients, classes]`."""
    return np.stack([[np.sum(labels[part] == label) for label in np.unique(labels)] for part in parts])


def test_a_class_with_fewer_samples_than_clients_is_named() -> None:
    labels = np.repeat([3, 8], [50, 4])
    with pytest.raises(DataError, match="class 8 with 4 training samples for 5 clients; expected a sample of each"):
        Pathological(classes=1).split(labels, 10, 0)


@pytest.mark.slow
def test_the_shares_of_a_quantity_skew_have_the_variance_of_their_dirichlet_and_know_no_labels() -> None:
    labels = np.arange(100_000) % 10
    parts = Quantity(beta=2.0).split(labels, 200, 0)
    shares = np.array([part.size for part in parts]) / labels.size
    assert shares.var() == pytest.approx(199 / (200**2 * 401), rel=0.25)
    whole = table(labels, parts) / np.array([[part.size] for part in parts])
    assert np.abs(whole - 0.1).max() < 0.25 and np.abs(whole - 0.1).mean() < 0.02
    equal = [part.size for part in Quantity(beta=1e9).split(labels, 200, 0)]
    assert max(equal) - min(equal) <= 2


def test_every_client_has_the_minimum_of_a_quantity_skew_or_the_sentence_says_what_could_be() -> None:
    labels = np.arange(1_000) % 10
    sizes = sorted(part.size for part in Quantity(beta=0.1, minimum=30).split(labels, 30, 3))
    assert sizes[0] == 30 and sizes[-1] > 60 and sum(sizes) == 1_000
    assert {part.size for part in Quantity(beta=0.1, minimum=20).split(labels, 50, 3)} == {20}
    with pytest.raises(DataError, match=r"minimum: 34 for 30 clients and 1000 training samples; expected .* 1 to 33"):
        Quantity(beta=0.1, minimum=34).split(labels, 30, 3)


def written(folder: Path, text: str) -> File:
    (folder / "parts.csv").write_text(text, encoding="utf-8")
    return File(file=str(folder / "parts.csv"))


def test_a_file_says_who_holds_what_by_the_rows_of_the_data_set_and_held_out_rows_are_passed_over(
    tmp_path: Path,
) -> None:
    partition = written(tmp_path, "client,row\n1,5\n0,0\n1,2\n0,4\n1,3\n")
    rows = np.array([0, -1, 1, 2, -1, 3, 4])  # rows 1 and 4 are held out
    samples = Divisible(np.arange(5), rows)
    parts = divide(partition, samples, 2, seed=7)
    assert [part.tolist() for part in parts] == [[0], [1, 2, 3]]
    digest = partition.file_digest(2)
    shuffled = written(tmp_path, "client,row\r\n0,4\r\n0,0\r\n\r\n1,2\r\n1,3\r\n1,5\r\n")
    assert shuffled.file_digest(2) == digest, "the order of its lines does not matter"
    assert written(tmp_path, "client,row\n0,0\n0,2\n1,4\n1,3\n1,5\n").file_digest(2) != digest


BAD_TABLES = {
    "client,sample\n0,1\n": r"parts.csv, line 1: found 'client,sample'; expected the columns client,row",
    "": r"line 1: found ''; expected the columns client,row",
    "client,row\n0,0\n2,1\n": r"line 3: found '2,1'; expected a client from 0 to 1",
    "client,row\n0,0\n-1,1\n": r"line 3: found '-1,1'; expected two whole numbers, a client and a row",
    "client,row\n0,0\n1\n": r"line 3: found '1'; expected two whole numbers",
    "client,row\n0,0\n1,1.5\n": r"line 3: found '1,1.5'; expected two whole numbers",
    "client,row\n0,0\n1,\u0661\n": r"line 3: found '1,.'; expected two whole numbers",
    "client,row\n0,0\n1,99999999999999999999\n": r"line 3: found '1,9+'; expected two whole numbers",
    "client,row\n0,3\n1,2\n1,3\n": r"parts.csv: found row 3 twice, for clients 0 and 1; expected every row at most",
    "client,row\n1,3\n": r"parts.csv: found no row for client 0; expected a row at least for each client, 0 to 1",
    "client,row\n0,3\n1,7\n": r"parts.csv: found row 7 for client 1; expected a row from 0 to 6",
    "client,row\n0,3\n1,6\n": r"parts.csv: found only rows that the task holds out for client 1; expected a training",
}


@pytest.mark.parametrize(("text", "sentence"), BAD_TABLES.items(), ids=lambda text: text[:40])
def test_a_wrong_table_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as raised:
        written(tmp_path, text).split(np.array([0, 1, 2, 3, 4, 5, -1]), 2, 0)
    assert "\n" not in str(raised.value)


def test_a_table_that_is_not_there_or_no_text_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"partition.file: found no file nowhere.csv; expected a CSV file .* SEEDBUS"):
        File(file="nowhere.csv").file_digest(2)
    (tmp_path / "image.csv").write_bytes(b"\x89PNG\xff\x00")
    with pytest.raises(DataError, match=r"image.csv: found a file that cannot be read .*; expected CSV text"):
        File(file=str(tmp_path / "image.csv")).file_digest(2)


@pytest.mark.parametrize("names", [["East"], ["East", 3]])
def test_names_that_are_not_a_text_for_each_client_are_the_partitions_mistake(names: list[Any]) -> None:
    class Named(Iid, frozen=True):
        def names_of(self, samples: Divisible, parts: Any) -> list[str]:
            return names

    parts = [np.arange(3), np.arange(3, 6)]
    with pytest.raises(
        PluginError, match=rf"the partition iid returned {len(names)} names; expected a text for each of 2"
    ):
        client_names(Named(), Divisible(np.zeros(6, np.int64), np.arange(6)), parts)
