"""LEAF: its JSON files, the errors in them that are refused, the samples of each person, and the LSTM."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_data import femnist_samples, leaf_file, leaf_sets, shakespeare_samples

from seedbus.models import DataError, Iid, Natural
from seedbus.models.data.samples import Images
from seedbus.models.generators import generator
from seedbus.models.images import networks
from seedbus.models.parameters.flat import FlatModule, initial_values
from seedbus.models.tasks.femnist import Femnist
from seedbus.models.tasks.shakespeare import ALPHABET, Shakespeare


def counts(images: Images) -> list[int]:
    """Return the number of samples of each person, `[people]`."""
    assert images.owners is not None
    return list(map(int, np.bincount(images.owners)))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with four writers and four roles; each has 4 to 7 training samples."""
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path / "cache"))
    leaf_sets(tmp_path / "data")
    return tmp_path / "data"


def test_images_of_all_files_are_read_whole_with_their_owners(data: Path) -> None:
    for _ in range(2):  # first from the files, then from the cache
        train, test = Femnist().load()
        assert counts(train) == [4, 5, 6, 7] and counts(test) == [1, 2, 3, 4]
        x, y = femnist_samples(2, 6)
        mine = train.take(np.flatnonzero(train.owners == 2))
        assert np.array_equal(mine.pixels.reshape(6, 784) / 255, x) and mine.labels.tolist() == y


def test_a_person_has_the_same_number_in_both_splits_in_whatever_order_they_come(data: Path) -> None:
    folder = data / "leaf-femnist"
    (folder / "test" / "all_data_1.json").unlink()
    others = {f"f{writer:04}_00": femnist_samples(writer, writer + 1) for writer in (3, 1)}
    leaf_file(folder, "test", "all_data_0.json", {"new": femnist_samples(7, 9)} | others)
    for _ in range(2):
        train, test = Femnist().load()
        assert counts(train) == [4, 5, 6, 7] and counts(test) == [0, 2, 0, 4, 9]
        problem: Any = Femnist(model="softmax").bind(seed=1, clients=4, partition=Natural())
        assert [part.tolist() for part in problem.owned("test")] == [[], [13, 14], [], [9, 10, 11, 12]]
        assert Femnist(model="softmax").bind(seed=1, clients=4, partition=Iid()).owned("test") is None  # type: ignore[attr-defined]


def test_texts_are_read_as_symbols_and_the_stale_counts_are_not(data: Path) -> None:
    for _ in range(2):
        train, test = Shakespeare().load()
        assert counts(train) == [4, 5, 6, 7] and test.labels.size == 1 + 2 + 3 + 4
        x, y = shakespeare_samples(3, 7)
        mine = train.take(np.flatnonzero(train.owners == 3))
        assert ["".join(ALPHABET[symbol] for symbol in text) for text in mine.pixels] == x
        assert [ALPHABET[label] for label in mine.labels] == y


def test_a_client_is_a_person_and_keeps_to_their_samples(data: Path) -> None:
    problem: Any = Femnist(model="softmax", validation=0).bind(seed=1, clients=4, partition=Natural())
    assert [problem.samples(client) for client in range(4)] == [4, 5, 6, 7]
    assert problem.client_names() == ["f0000_00", "f0001_00", "f0002_00", "f0003_00"]
    _, labels = problem.objective(2, 0).batch(0)
    assert sorted(labels.tolist()) == sorted(femnist_samples(2, 6)[1])


def test_people_whose_samples_are_all_held_out_are_no_clients(data: Path) -> None:
    leaf_file(data / "leaf-femnist", "train", "all_data_2.json", {f"lone{n}": femnist_samples(n, 1) for n in range(30)})
    task = Femnist(model="softmax", validation=0.5)
    train, _ = task.hold_out(task.load()[0])
    people = len([count for count in counts(train) if count])
    assert people < 34
    problem: Any = task.bind(seed=1, clients=people, partition=Natural())
    assert min(problem.samples(client) for client in range(people)) > 0
    with pytest.raises(DataError, match=f"found 34 clients and {people} people with training samples; expected 1 to"):
        task.bind(seed=1, clients=34, partition=Natural())


def damage(path: Path, change: Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document, document["user_data"][document["users"][0]])
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda _, user: user["y"].pop(),
            "x and y of user f0000_00, which are not lists of equal length; expected a label",
        ),
        (lambda _, user: user["x"][2].pop(), "an image of user f0000_00; expected 784 numbers from 0 to 1"),
        (lambda _, user: user["x"][1].__setitem__(5, 1.5), "an image of user f0000_00"),
        (lambda _, user: user["x"][1].__setitem__(5, float("nan")), "an image of user f0000_00"),
        (lambda _, user: user["y"].__setitem__(0, 62), "a label of user f0000_00; expected whole numbers from 0 to 61"),
        (lambda _, user: user["y"].__setitem__(0, 1.5), "a label of user f0000_00"),
        (lambda document, _: document.pop("users"), "another layout .KeyError: 'users'.; expected LEAF's JSON"),
        (lambda document, _: document["users"].append("nobody"), "another layout .KeyError: 'nobody'."),
        (
            lambda document, _: document.update(users=[7], user_data=[]),
            "another layout .IndexError: list index out of range.; expected LEAF's JSON",
        ),
        (lambda document, _: document.update(users=5), "another layout .TypeError"),
        (
            lambda document, user: (document["users"].append(" "), document["user_data"].update({" ": user})),
            "a user without a name; expected a name for every user",
        ),
        (
            lambda document, _: document.update(users=document["users"] * 1000),
            "user f0000_00 twice; expected every user once",
        ),
        (lambda _, user: user["x"][1].__setitem__(5, 10**400), "an image of user f0000_00; expected 784 numbers from"),
        (lambda _, user: user["x"][1].__setitem__(5, float("inf")), "an image of user f0000_00"),
        (lambda _, user: user["y"].__setitem__(0, 10**400), "a label of user f0000_00; expected whole numbers from 0"),
    ],
)
def test_a_file_that_is_not_leafs_is_named_with_what_is_wrong(data: Path, change: Any, sentence: str) -> None:
    damage(data / "leaf-femnist" / "train" / "all_data_0.json", change)
    with pytest.raises(DataError, match=f"train/all_data_0.json: found {sentence}"):
        Femnist().load()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda user: user["x"].__setitem__(0, "short"), "a text of user PLAY_0; expected 80 of the 80 symbols"),
        (lambda user: user["x"].__setitem__(0, "é" * 80), "a text with 'é' of user PLAY_0"),
        (lambda user: user["y"].__setitem__(0, "ab"), "a next character of user PLAY_0; expected 1 of the 80 symbols"),
    ],
)
def test_a_text_beyond_the_alphabet_is_named(data: Path, change: Any, sentence: str) -> None:
    damage(data / "leaf-shakespeare" / "test" / "all_data.json", lambda _, user: change(user))
    with pytest.raises(DataError, match=f"test/all_data.json: found {sentence}"):
        Shakespeare().load()


def test_what_is_no_json_or_not_there_is_named(data: Path) -> None:
    path = data / "leaf-shakespeare" / "train" / "all_data.json"
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    with pytest.raises(DataError, match=r"all_data\.json: found invalid JSON"):
        Shakespeare().load()
    path.write_text("[" * 100_000)
    with pytest.raises(
        DataError, match=r"all_data\.json: found invalid JSON \(it is nested too deeply\); expected LEAF"
    ):
        Shakespeare().load()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(
        DataError, match=r"all_data\.json: found a file that cannot be read \(neither a file nor a link"
    ):
        Shakespeare().load()
    path.unlink()
    with pytest.raises(DataError, match="train: found no JSON files; expected LEAF's JSON files in train/ and test/"):
        Shakespeare().load()


# The LSTM


def lstm() -> FlatModule:
    flat = FlatModule(networks.character_lstm(80))
    flat.point[:] = initial_values(flat.module, generator("x"))
    return flat


def test_the_networks_have_leafs_numbers_of_parameters() -> None:
    assert lstm().point.size == 819_920
    assert sum(p.numel() for p in networks.leaf_cnn().parameters()) == 6_603_710


def test_the_lstm_computes_what_its_equations_say() -> None:
    flat = lstm()
    texts = torch.from_numpy(generator("texts").integers(0, 80, (2, 5)))
    names = {name: torch.from_numpy(tensor).double() for name, tensor in flat.tensors().items()}
    sequence = names["embedding.weight"][texts]
    for layer in (0, 1):
        weights = [names[f"lstm.{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        hidden = cell = torch.zeros(2, 256, dtype=torch.float64)
        outputs = []
        for symbol in sequence.unbind(1):
            gates = symbol @ weights[0].T + hidden @ weights[1].T + weights[2] + weights[3]
            entered, forgotten, candidate, shown = gates.chunk(4, dim=1)
            cell = forgotten.sigmoid() * cell + entered.sigmoid() * candidate.tanh()
            hidden = shown.sigmoid() * cell.tanh()
            outputs.append(hidden)
        sequence = torch.stack(outputs, dim=1)
    expected = sequence[:, -1] @ names["head.weight"].T + names["head.bias"]
    with torch.inference_mode():
        assert torch.allclose(flat.module(texts).double(), expected, atol=1e-5)
        flat.point[:] = 0
        assert not flat.module(texts).any(), "the cells read the vector, and no copy of it"


def test_an_lstm_begins_within_one_over_the_root_of_its_hidden_size_and_an_embedding_with_unit_variance() -> None:
    tensors = lstm().tensors()
    for name, tensor in tensors.items():
        if name.startswith("lstm."):
            assert 0.95 / 16 < np.abs(tensor).max() <= 1 / 16, name
    embedding = tensors["embedding.weight"]
    assert np.abs(embedding).max() <= np.sqrt(np.float32(3)) and embedding.std() == pytest.approx(1, rel=0.1)


# Real data

real = pytest.mark.skipif(
    not (Path(os.environ.get("SEEDBUS_DATA", "/nowhere")) / "leaf-femnist").is_dir(),
    reason="SEEDBUS_DATA does not name a folder that has leaf-femnist and leaf-shakespeare",
)


@real
def test_leafs_sample_of_femnist_is_read_whole() -> None:
    train, test = Femnist().load()
    assert (train.labels.size, test.labels.size, len(counts(train))) == (3_108, 355, 21)
    assert train.pixels.mean() / 255 == pytest.approx(Femnist.mean, abs=1e-4)
    assert (train.pixels / 255).std() == pytest.approx(Femnist.deviation, abs=1e-4)
    problem: Any = Femnist(model="softmax").bind(seed=1, clients=20, partition=Natural())
    assert sum(problem.samples(client) for client in range(20)) < 3_108


@real
def test_leafs_sample_of_shakespeare_is_read_whole() -> None:
    train, test = Shakespeare().load()
    assert (train.labels.size, test.labels.size) == (41_990, 3_881)
    assert counts(train)[:3] == [823, 7_528, 2_146]
    assert len(Shakespeare().bind(seed=1, clients=3, partition=Iid()).x0()) == 819_920
